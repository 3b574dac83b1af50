"""From files to a run."""

from __future__ import annotations

import asyncio
import hashlib
import json
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
_NAMED = 100
"""Broken files that are named; more are counted."""


@dataclass(slots=True)
class ImportReport:
    """What became of what was found."""

    stored: int = 0
    already: int = 0
    """Conversations that the run held before."""
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
    """What ``path`` holds, from its first conversation on; what is broken before it, too.

    Raises:
        InputError: it is not there, cannot be read, is of no known form, or holds no conversation.
    """
    if not path.exists():
        raise InputError("There is no such file or folder.", where=str(path), next="Check the path.")
    form = form or guess_format(path)
    if form == "camel-chat":
        source = camel_chat.find_chats(path, origin)
    elif path.is_dir():
        raise InputError("This is a folder.", where=str(path), next=f"Name one file for --format {form}.")
    else:
        source = chats.find_chats(path, chats.MESSAGES if form == "messages" else chats.SHAREGPT, origin)
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


def guess_format(path: Path) -> Form:
    """The form of ``path``: of its first line if it is a file of JSON lines, else CAMEL's chats."""
    if path.is_dir() or not path.name.lower().endswith((".jsonl", ".jsonl.gz", ".ndjson")):
        return "camel-chat"
    try:
        for _, line in islice(chats.read_lines(path), 100):
            row = _object(line)
            if row is not None:
                return "sharegpt" if "conversations" in row else "messages"
    except chats.FAULTS:
        pass  # Reading it in earnest tells what is wrong.
    return "messages"


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", row) if isinstance(row, dict) else None


async def import_chats(
    store: RunWriter, source: Iterable[Found], tell: Callable[[ImportReport], None] | None = None
) -> ImportReport:
    """RunWriter the conversations of ``source``. Doing it again stores nothing twice.

    A conversation whose id another one has gets a hash of its own added to it.

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
    taken = await asyncio.gather(*(_begin(store, session) for session in _with_unique_ids(sessions)))
    missing = {session.id: session for session, stored in taken if not _complete(session, stored)}
    report.already += len(sessions) - len(missing)
    report.stored += len(missing)
    report.messages += sum(len(session.turns) for session in missing.values())
    await asyncio.gather(*(_finish(store, session) for session in missing.values()))


def _with_unique_ids(sessions: list[Session]) -> Iterator[Session]:
    """Sessions that are begun together, each under an id of its own: what the run holds cannot tell them apart yet."""
    seen: dict[str, Session] = {}
    for session in sessions:
        first = seen.setdefault(session.id, session)
        yield session if first == session else replace(session, id=f"{session.id}-{_digest(session)}")


async def _begin(store: RunWriter, session: Session) -> tuple[Session, Session]:
    """RunWriter the head of a session, under an id that is its own. Gives it, and what the run holds of it."""
    stored = await store.begin(replace(session, turns=(), ending=None))
    if not _same(session, stored):
        session = replace(session, id=f"{session.id}-{_digest(session)}")
        stored = await store.begin(replace(session, turns=(), ending=None))
    return session, stored


def _same(session: Session, stored: Session) -> bool:
    """True if what the run holds under this id is this session, or the beginning of it."""
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


def _digest(session: Session) -> str:
    content = [
        session.assistant.name,
        session.user.name,
        session.task.text,
        *(turn.text for turn in session.turns),
    ]
    return hashlib.sha256("\0".join(content).encode()).hexdigest()[:8]


async def _finish(store: RunWriter, session: Session) -> None:
    await asyncio.gather(*(store.add_turn(session.id, turn) for turn in session.turns))
    assert session.ending is not None
    await store.end(session.id, session.ending, session.usage)
