"""Imports files into a run."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, cast, get_args

from bactrian.errors import InputError
from bactrian.ingest import camel_chat, chats
from bactrian.ingest.parsed import Found, Origin, SkippedItem
from bactrian.records.session import Session
from bactrian.store import RunWriter

Form = Literal["camel-chat", "messages", "sharegpt"]
FORMS: tuple[Form, ...] = get_args(Form)
_BATCH = 100
"""Conversations in memory at a time."""
_LOOKED_AT = 100
"""Lines that are examined to detect the format."""
_NAMED = 100
"""Skipped files that are listed by name; further ones are only counted."""


@dataclass(slots=True)
class ImportReport:
    """The result of an import."""

    stored: int = 0
    already: int = 0
    """Conversations that were stored before."""
    messages: int = 0
    """Of those that were stored."""
    broken: int = 0
    named: list[SkippedItem] = field(default_factory=list[SkippedItem])
    """The first hundred that were skipped."""

    def skip(self, one: SkippedItem) -> None:
        """Count something that was skipped."""
        self.broken += 1
        if len(self.named) < _NAMED:
            self.named.append(one)


def find_chats(path: Path, form: Form | None, origin: Origin) -> Iterator[Found]:
    """Yield the conversations in ``path``, and the items that are skipped.

    Raises:
        InputError: it does not exist, cannot be read, has no known format, or contains no conversation.
    """
    if not path.exists():
        raise InputError("There is no such file or folder.", where=str(path), next="Check the path.")
    lines: Iterable[tuple[int, bytes]] | None = None
    if form is None and _may_hold_lines(path):
        form, lines = _guess_by_lines(path)
    form = form or "camel-chat"
    if form == "camel-chat":
        source = camel_chat.find_chats(path, origin)
    elif path.is_dir():
        raise InputError("This is a folder.", where=str(path), next=f"Name one file for --format {form}.")
    else:
        keys = chats.MESSAGES if form == "messages" else chats.SHAREGPT
        source = chats.find_chats(path, keys, origin, lines)
    before: list[Found] = []
    for one in source:
        before.append(one)
        if isinstance(one, Session):
            return chain(before, source)
    first = before[0] if before else None
    reason = f" {first.name}: {first.problem}." if isinstance(first, SkippedItem) else ""
    raise InputError(
        f"There is no conversation of the form {form} in it.{reason}",
        where=str(path),
        next=f"Name another form with --format: {', '.join(FORMS)}.",
    )


def _may_hold_lines(path: Path) -> bool:
    """Return True for a file of JSON lines by its name, and for any pipe."""
    if path.name.lower().endswith((".jsonl", ".jsonl.gz", ".ndjson")):
        return not path.is_dir()
    return not path.is_dir() and not path.is_file()


def _guess_by_lines(path: Path) -> tuple[Form, Iterable[tuple[int, bytes]] | None]:
    """Return the format of ``path``, detected by its first object, and its lines if it is a pipe."""
    lines = chats.read_lines(path)
    read: list[tuple[int, bytes]] = []
    form: Form = "messages"
    try:
        for line in islice(lines, _LOOKED_AT):
            read.append(line)
            row = _object(line[1])
            if row is not None:
                form = "sharegpt" if "conversations" in row else "messages"
                break
    except chats.FAULTS:
        return form, None  # The import itself reports what is wrong.
    return form, chain(read, lines)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", row) if isinstance(row, dict) else None


async def import_chats(
    store: RunWriter, source: Iterable[Found], tell: Callable[[ImportReport], None] | None = None
) -> ImportReport:
    """Store the conversations of ``source``. A repeated import stores nothing twice.

    If another conversation has the same id, a hash is appended to the id.

    Raises:
        StoreError: the run cannot be written.
    """
    report = ImportReport()
    rest = iter(source)
    while batch := await asyncio.to_thread(list, islice(rest, _BATCH)):
        for one in batch:
            if isinstance(one, SkippedItem):
                report.skip(one)
        await _store(store, [one for one in batch if isinstance(one, Session)], report)
        if tell is not None:
            tell(report)
    return report


async def _store(store: RunWriter, sessions: list[Session], report: ImportReport) -> None:
    for wave in _split_by_id(sessions):
        taken = await asyncio.gather(*(_begin(store, session) for session in wave))
        missing = [session for session, stored in taken if not _complete(session, stored)]
        report.already += len(wave) - len(missing)
        report.stored += len(missing)
        report.messages += sum(len(session.turns) for session in missing)
        await asyncio.gather(*(_finish(store, session) for session in missing))


def _split_by_id(sessions: list[Session]) -> list[list[Session]]:
    """Split into groups in which every id occurs once: a session is compared with stored ones only."""
    waves: list[list[Session]] = []
    seen: Counter[str] = Counter()
    for session in sessions:
        if seen[session.id] == len(waves):
            waves.append([])
        waves[seen[session.id]].append(session)
        seen[session.id] += 1
    return waves


async def _begin(store: RunWriter, session: Session) -> tuple[Session, Session]:
    """Store the head of a session under a unique id. Return the session, and the stored one."""
    stored = await store.begin(replace(session, turns=(), ending=None))
    for digest in (_digest_texts(session), _digest_all(session)):
        if _same(session, stored):
            break
        session = replace(session, id=f"{session.id}-{digest}")
        stored = await store.begin(replace(session, turns=(), ending=None))
    return session, stored


def _same(session: Session, stored: Session) -> bool:
    """Return True if the stored session of this id is this session, or its beginning."""
    texts = {turn.number: turn.text for turn in session.turns}
    # What this run made is never taken up by an import, only recognized once it is whole.
    own = stored.provenance.prompts != session.provenance.prompts
    return (
        not (own and not _complete(session, stored))
        and (session.assistant, session.user, session.task) == (stored.assistant, stored.user, stored.task)
        and all(texts.get(turn.number) == turn.text for turn in stored.turns)
        and stored.ending in (None, session.ending)
    )


def _complete(session: Session, stored: Session) -> bool:
    return stored.ending is not None and len(stored.turns) == len(session.turns)


def _digest_texts(session: Session) -> str:
    """Return a hash of the session's texts. It is part of stored ids and must never change."""
    content = [
        session.assistant.name,
        session.user.name,
        session.task.text,
        *(turn.text for turn in session.turns),
    ]
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:8]


def _digest_all(session: Session) -> str:
    """Return a hash of everything that :func:`_same` compares."""
    content = (
        session.assistant,
        session.user,
        session.task,
        [(turn.number, turn.text) for turn in session.turns],
        session.ending,
    )
    return hashlib.sha256(repr(content).encode()).hexdigest()[:8]


async def _finish(store: RunWriter, session: Session) -> None:
    await asyncio.gather(*(store.add_turn(session.id, turn) for turn in session.turns))
    assert session.ending is not None
    await store.end(session.id, session.ending, session.usage)
