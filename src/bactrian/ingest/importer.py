"""Imports files and data sets of the Hugging Face hub into a run."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from bactrian.errors import InputError
from bactrian.files.atomic import MANIFEST, name_companion, read_manifest
from bactrian.files.toml import suggest_name
from bactrian.ingest import chats
from bactrian.ingest.rows import RowGroups, read_rows
from bactrian.models.hub_access import explain_hub_errors, get_endpoint, get_token, import_hub, make_hub_bar
from bactrian.records.session import Session
from bactrian.store import RunStore, is_run

# Data sets of the Hugging Face hub, such as CAMEL's own: ``hf://OWNER/NAME``, ``hf://OWNER/NAME@REVISION/FILE``.


# A path has one slash where the address has two.
_ADDRESS = re.compile(r"hf:/+(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[^/@\s]+))?(/(?P<file>.+))?")
_IMPORTED = re.compile(r"(?P<stem>.+?)\.(zip|tar|tar\.gz|tgz|jsonl?|jsonl?\.gz)", re.IGNORECASE)
# CAMEL's chats, or its chats in a language; its repositories have other forms of them, too.
_CHAT = re.compile(r"(.*/)?\w+_chat(_[a-z]{2,3})?", re.IGNORECASE)
_CAMEL = "camel-ai/"


@dataclass(frozen=True, slots=True)
class HubSet:
    """A data set of the hub. Without a file, the conversations of the whole set; without a revision, the latest."""

    repo: str
    revision: str | None = None
    file: str | None = None


def read_hub_address(path: Path) -> HubSet | None:
    """Parse an address; None if ``path`` is none. Raises InputError."""
    parts = _ADDRESS.fullmatch(str(path))
    if parts is None and str(path).startswith("hf:/"):
        next = "Write it as hf://OWNER/NAME."
        raise InputError("This is not the address of a data set.", where=str(path), next=next)
    return HubSet(parts["repo"], parts["revision"], parts["file"]) if parts else None


def fetch_hub_set(
    named: HubSet, origin: chats.Origin, report: Callable[[str], None]
) -> tuple[Sequence[Path], chats.Origin]:
    """Download a data set to the hub's cache, unless it is there, and return its files with their origin.

    The client continues a download whose connection broke, and keeps files that are complete. ``report`` receives a
    message before each download.

    Raises:
        InputError: there is no such data set, revision or file, or it is not clear which file is meant.
        MissingExtra: ``huggingface_hub`` is not installed.
        Refused: the hub cannot be reached.
    """
    hub: Any = import_hub("Importing from the Hugging Face hub")
    with explain_hub_errors(named.repo, f"The data set {named.repo} could not be downloaded"):
        api = hub.HfApi(endpoint=get_endpoint(), token=get_token())
        info = api.dataset_info(named.repo, revision=named.revision, files_metadata=True)
        sizes: dict[str, int] = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        paths: list[Path] = []
        for name in choose_files(named, sizes):
            report(f"Fetching {name} of {named.repo}: {sizes[name] / 1e6:,.1f} MB.")
            path = hub.hf_hub_download(
                named.repo,
                name,
                repo_type="dataset",
                revision=info.sha,
                endpoint=get_endpoint(),
                token=get_token(),
                tqdm_class=make_hub_bar(sizes[name]),
            )
            paths.append(Path(path))
    card: Any = info.card_data
    license_name = _write_license(card.get("license") if card else None)
    if named.repo.startswith(_CAMEL):
        license_name = license_name or chats.LICENSE
    source = {"name": named.repo, "revision": str(info.sha)}
    source |= {"license": license_name} if license_name else {}
    return paths, replace(origin, source={**source, **origin.source})


def choose_files(named: HubSet, sizes: dict[str, int]) -> list[str]:
    """Return the files to import, by name and size: the file that is named, or the chats.

    Of two files with the same content, such as CAMEL's ``.zip`` and ``.tar.gz``, the smaller one is taken.

    Raises:
        InputError: there is none, or several that have nothing in common.
    """
    where = f"hf://{named.repo}"
    if named.file is not None:
        if named.file in sizes:
            return [named.file]
        raise InputError(
            f"The data set has no file {named.file!r}.", where=where, next=f"It has: {_list_names(sizes)}."
        )
    matches = {name: match["stem"] for name in sizes if (match := _IMPORTED.fullmatch(name))}
    by_size = sorted(matches.items(), key=lambda item: -sizes[item[0]])  # the last one of a stem stays
    smallest = {stem: name for name, stem in by_size if not name.endswith("dataset_infos.json")}
    of_camel = {stem: name for stem, name in smallest.items() if _CHAT.fullmatch(stem)}
    chosen = of_camel or smallest
    if not chosen or (len(chosen) > 1 and not of_camel):
        what = "several files to choose from" if chosen else "no file that can be imported"
        raise InputError(
            f"The data set has {what}.",
            where=where,
            next=f"Name one: {where}/FILE. It has: {_list_names(sizes)}.",
        )
    return sorted(chosen.values())


def _list_names(sizes: dict[str, int]) -> str:
    return ", ".join(sorted(sizes)[:12]) or "none"


def _write_license(named: object) -> str:
    """Return the licence of a card as SPDX writes it, as far as that is only a matter of capitals."""
    text = " AND ".join(map(str, named)) if isinstance(named, list) else str(named or "")  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return text.upper() if text.lower().startswith("cc") else text


# Imports files into a run.


Form = Literal[
    "camel-chat", "camel-instructions", "camel-science", "camel-translated", "messages", "sharegpt", "alpaca"
]
_READERS: Mapping[Form, Callable[[Sequence[chats.Row], chats.Origin], Session]] = MappingProxyType(
    {
        "camel-chat": lambda rows, origin: chats.read_chat(rows[0], origin),
        "camel-instructions": chats.read_instructions,
        "camel-science": lambda rows, origin: chats.read_problem(rows[0], origin),
        "camel-translated": lambda rows, origin: chats.read_translation(rows[0], origin),
        "messages": lambda rows, origin: chats.read_row(rows[0].content, chats.MESSAGES, origin),
        "sharegpt": lambda rows, origin: chats.read_row(rows[0].content, chats.SHAREGPT, origin),
        "alpaca": chats.read_alpaca,
    }
)
FORMS: tuple[Form, ...] = tuple(_READERS)
# Formats with a file for each conversation.
_IN_ARCHIVES: tuple[Form, ...] = ("camel-chat", "camel-science", "camel-translated")
# Conversations in memory at a time.
_BATCH = 100
# Rows of a conversation.
_MOST_ROWS = 10_000
# Skipped files that are listed by name; further ones are only counted.
_NAMED = 100


@dataclass(slots=True)
class ImportReport:
    """The result of an import."""

    stored: int = 0
    # Conversations that were stored before.
    already: int = 0
    # Of those that were stored.
    messages: int = 0
    # The licences of all conversations; empty for those whose licence is not known.
    licenses: list[str] = field(default_factory=list[str])
    broken: int = 0
    # The first hundred that were skipped.
    named: list[chats.SkippedItem] = field(default_factory=list[chats.SkippedItem])

    def skip(self, item: chats.SkippedItem) -> None:
        """Count something that was skipped."""
        self.broken += 1
        if len(self.named) < _NAMED:
            self.named.append(item)


def find_chats(
    path: Path, form: Form | None, origin: chats.Origin, report: Callable[[str], None] = lambda _: None
) -> Iterator[chats.Found]:
    """Yield the conversations in ``path``, and the items that are skipped.

    ``path`` may be a data set of the Hugging Face hub, ``hf://OWNER/NAME``, which is downloaded first; ``report``
    receives a message about that. Blocks meanwhile.

    Raises:
        InputError: it does not exist, cannot be read, has no known format, or contains no conversation.
    """
    if named := read_hub_address(path):
        paths, origin = fetch_hub_set(named, origin, report)
        return chain.from_iterable(find_chats(file, form, origin) for file in paths)
    if not path.exists():
        raise InputError("There is no such file or folder.", where=str(path), next="Check the path.")
    if is_run(path):
        raise InputError("This is a run.", where=str(path), next="`bactrian merge` adds a run to another.")
    if path.is_dir() and form not in (None, *_IN_ARCHIVES):
        raise InputError("This is a folder.", where=str(path), next=f"Name one file for form={form}.")
    manifest = read_manifest(path / MANIFEST) or read_manifest(path.with_name(name_companion(path)))
    if not origin.source and manifest and (license_name := manifest.get("license")):
        origin = replace(origin, source={"license": license_name})
    source = _read_all(read_rows(path, plain=form is not None and form not in _IN_ARCHIVES), form, origin)
    before: list[chats.Found] = []
    for item in source:
        before.append(item)
        if isinstance(item, Session):
            return chain(before, source)
    first = before[0] if before else None
    reason = f" {first.name}: {first.problem}." if isinstance(first, chats.SkippedItem) else ""
    named = f" of the form {form}" if form else ""
    raise InputError(
        f"There is no conversation{named} in it.{reason}",
        where=str(path),
        next=f"Name {'another' if form else 'a'} form with form=FORM: {', '.join(FORMS)}.",
    )


def find_form(name: str) -> Form:
    """Return the format of this name.

    Raises:
        InputError: there is no such format.
    """
    if name in FORMS:
        return name
    raise InputError(
        f"There is no format {name!r} to import.{suggest_name(name, FORMS)}",
        option="format",
        next=f"Formats: {', '.join(FORMS)}.",
    )


def detect_form(row: chats.Row) -> Form:
    """Return the format of ``row``, by its keys; a chat of CAMEL's if they tell nothing."""
    keys = row.lower
    if "messages" in keys:
        return "messages"
    if "conversations" in keys:
        return "sharegpt"
    if "instruction" in keys and "output" in keys:
        return "camel-instructions" if "role_1" in keys else "alpaca"
    if "role_2" not in keys and isinstance(keys.get("message_1"), str):
        return "camel-science"
    return "camel-translated" if chats.find_language(row) else "camel-chat"


def _read_all(
    rows: Iterable[chats.Row | chats.SkippedItem], form: Form | None, origin: chats.Origin
) -> Iterator[chats.Found]:
    """Yield the conversation of each row, and at the end those that have several rows, wherever these are."""
    with closing(RowGroups(_MOST_ROWS)) as groups:
        for row in rows:
            if isinstance(row, chats.SkippedItem):
                yield row
                continue
            row_form = form or detect_form(row)
            common = chats.find_conversation(row, row_form)
            if common is None:
                yield _read([row], row_form, origin)
            else:
                groups.add((row_form, *common), row)
        for common, some in groups:
            yield _read(some, find_form(common[0]), origin)


def _read(rows: Sequence[chats.Row], form: Form, origin: chats.Origin) -> chats.Found:
    row = rows[0]
    if (
        "license" not in origin.source
        and form.startswith("camel")
        and (license_name := chats.find_license(row))
    ):
        origin = replace(origin, source={**origin.source, "license": license_name})
    try:
        return _READERS[form](rows, origin)
    except chats.NotAChat as reason:
        return chats.SkippedItem(row.name, str(reason))
    except RecursionError:
        return chats.SkippedItem(row.name, "it is nested too deeply")


async def import_chats(
    store: RunStore, source: Iterable[chats.Found], tell: Callable[[ImportReport], None] | None = None
) -> ImportReport:
    """Store the conversations of ``source``. A repeated import stores nothing twice.

    If another conversation has the same id, a hash is appended to the id.

    Raises:
        StoreError: the run cannot be written.
    """
    report = ImportReport()
    rest = iter(source)
    while batch := await asyncio.to_thread(list, islice(rest, _BATCH)):
        sessions = [item for item in batch if isinstance(item, Session)]
        for item in batch:
            if isinstance(item, chats.SkippedItem):
                report.skip(item)
        report.licenses = sorted({*report.licenses, *(session.provenance.license for session in sessions)})
        await _store(store, sessions, report)
        if tell is not None:
            tell(report)
    return report


async def _store(store: RunStore, sessions: list[Session], report: ImportReport) -> None:
    for wave in _split_by_id(sessions):
        taken = await asyncio.gather(*(_store_head(store, session) for session in wave))
        missing = [session for session, stored in taken if not _is_complete(session, stored)]
        report.already += len(wave) - len(missing)
        report.stored += len(missing)
        report.messages += sum(len(session.turns) for session in missing)
        await asyncio.gather(*(_store_turns(store, session) for session in missing))


def _split_by_id(sessions: list[Session]) -> list[list[Session]]:
    """Split into groups in which every id occurs once: a session is compared with stored ones only."""
    waves: defaultdict[int, list[Session]] = defaultdict(list)
    seen: Counter[str] = Counter()
    for session in sessions:
        waves[seen[session.id]].append(session)
        seen[session.id] += 1
    return list(waves.values())


async def _store_head(store: RunStore, session: Session) -> tuple[Session, Session]:
    """Store the head of a session under a unique id. Return the session, and the stored one."""
    stored = await store.begin(replace(session, turns=(), ending=None))
    for digest in (_digest_texts(session), _digest_all(session)):
        if _is_same(session, stored):
            break
        session = replace(session, id=f"{session.id}-{digest}")
        stored = await store.begin(replace(session, turns=(), ending=None))
    return session, stored


def _is_same(session: Session, stored: Session) -> bool:
    """Return True if the stored session of this id is this session, or its beginning."""
    texts = {turn.number: turn.text for turn in session.turns}
    # What this run made is never taken up by an import, only recognized once it is whole.
    differs = stored.provenance.prompts != session.provenance.prompts
    return (
        not (differs and not _is_complete(session, stored))
        and (session.assistant, session.user, session.task) == (stored.assistant, stored.user, stored.task)
        and all(texts.get(turn.number) == turn.text for turn in stored.turns)
        and stored.ending in (None, session.ending)
    )


def _is_complete(session: Session, stored: Session) -> bool:
    return stored.ending is not None and len(stored.turns) == len(session.turns)


def _digest_texts(session: Session) -> str:
    """Return a hash of the session's texts. It is part of stored ids and must never change."""
    names = (session.assistant.name, session.user.name, session.task.text)
    content = "\0".join((*names, *(turn.text for turn in session.turns)))
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _digest_all(session: Session) -> str:
    """Return a hash of everything that :func:`_is_same` compares."""
    turns = [(turn.number, turn.text) for turn in session.turns]
    content = (session.assistant, session.user, session.task, turns, session.ending)
    return hashlib.sha256(repr(content).encode()).hexdigest()[:8]


async def _store_turns(store: RunStore, session: Session) -> None:
    await asyncio.gather(*(store.add_turn(session.id, turn) for turn in session.turns))
    assert session.ending is not None
    await store.end(session.id, session.ending, session.usage)
