"""Conversations to train on, read from runs and JSON lines; prepared data keeps one JSON object a line."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from bactrian.analyze.behaviours import find_behaviours
from bactrian.errors import InputError
from bactrian.export.dialogue import SystemPrompts
from bactrian.export.format import ExportContext
from bactrian.export.formats import CHAT_MESSAGES, build_row
from bactrian.export.session_filters import Filters, SessionFilter, locate_group, name_group
from bactrian.files.atomic import is_sqlite_file
from bactrian.files.toml import suggest_name
from bactrian.records.run import BEHAVIOURS
from bactrian.records.session import ENDING_CODES, Session, find_kind
from bactrian.records.text import clean_text
from bactrian.store import open_store
from bactrian.train.training_recipe import DataSource

ChatMessage = dict[str, str]
"""A message: ``role`` (system, user or assistant) and ``content``."""
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages whose assistant is learned."""

    id: str
    group: str
    """What must not be divided between training and held-out data, such as a pair of roles."""
    messages: Sequence[ChatMessage]

    def to_json(self) -> str:
        """Return it as one line."""
        values = {"id": self.id, "group": self.group, "messages": list(self.messages)}
        return json.dumps(values, ensure_ascii=False) + "\n"

    def list_texts(self) -> list[str]:
        """Return what was said, without the system prompt, which conversations share."""
        return [message["content"] for message in self.messages if message["role"] != "system"]


def read_prepared(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of a file that this package wrote."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            values = json.loads(line)
            yield Conversation(values["id"], values["group"], values["messages"])


def read_json_lines(path: Path) -> Iterator[Conversation]:
    """Yield the conversations of JSON lines with ``messages``, as ``export --format messages`` writes them.

    Consecutive rows need no id: a hash of the messages serves. The roles of an exported row are its group.

    Raises:
        InputError: the file cannot be read, or a line is not a conversation.
    """
    try:
        if path.exists() and not path.is_file():  # a device or a pipe may never end
            raise InputError(
                "The data is not a file.", where=str(path), next="Give a run, or a file of JSON lines."
            )
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield _read_line(line, f"{path}, line {number}")
    except OSError as error:
        raise InputError(
            f"The data cannot be read: {error.strerror}.", where=str(path), next="Check the path."
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(
            "The data is neither a run nor JSON lines in UTF-8.",
            where=str(path),
            next="Give a run, or what `bactrian export --format messages` writes.",
        ) from error


def _read_line(line: str, where: str) -> Conversation:
    try:
        row: Any = json.loads(line)
        messages = [_read_message(message) for message in row["messages"]]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise InputError(
            "This line is not a conversation: an object with `messages`, each with `role` and `content`.",
            where=where,
            next="`bactrian export --format messages` writes such lines.",
        ) from error
    if fault := find_fault(messages):
        raise InputError(
            f"This conversation cannot be learned: {fault}.",
            where=where,
            next="Messages alternate: an optional system message, then user and assistant.",
        )
    return Conversation(_name(row, messages), _find_group(row, messages), messages)


def _read_message(message: Any) -> ChatMessage:
    role, content = message["role"], message["content"]
    if role not in ROLES or not isinstance(content, str):
        raise ValueError
    return {"role": role, "content": clean_text(content)}


def find_fault(messages: Sequence[ChatMessage]) -> str | None:
    """Return why a model cannot learn from these messages; None if it can."""
    roles = [message["role"] for message in messages]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    if "assistant" not in spoken:
        return "it has no message of an assistant"
    wanted = ["user", "assistant"] * len(spoken)
    return None if spoken == wanted[: len(spoken)] else "its messages do not alternate"


def hash_messages(messages: Sequence[ChatMessage]) -> str:
    """Return a short hash of what is said, ignoring white space at the ends."""
    text = json.dumps(
        [[message["role"], message["content"].strip()] for message in messages], ensure_ascii=False
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _name(row: dict[str, Any], messages: Sequence[ChatMessage]) -> str:
    if isinstance(row.get("id"), str):
        return clean_text(row["id"])
    if isinstance(row.get("session"), str):
        return f"{row.get('run', '')}:{row['session']}"
    return hash_messages(messages)


def _find_group(row: dict[str, Any], messages: Sequence[ChatMessage]) -> str:
    if isinstance(row.get("group"), str):
        return clean_text(row["group"]).casefold()
    roles = row.get("assistant_role"), row.get("user_role")
    if all(isinstance(role, str) and role for role in roles):
        return "\0".join(map(str, roles)).casefold()
    return hash_messages(messages)


@dataclass(slots=True)
class ReadCounts:
    """Counts the used and the omitted conversations of a source."""

    used: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Number by reason."""


async def read_source(source: DataSource, counts: ReadCounts) -> AsyncIterator[Conversation]:
    """Yield the conversations of a run or a file that fit the filters.

    Raises:
        InputError: the source cannot be read, or a filter does not apply to it.
        StoreError: the run is damaged.
    """
    path = Path(source.path)
    if _is_database(path):
        async for conversation in _read_run(path, source, counts):
            if _is_in_share(conversation.id, source.share, counts):
                yield conversation
        return
    if source.only or source.drop or source.min_rounds:
        raise InputError(
            "JSON lines know no endings and behaviours to filter by.",
            where=str(path),
            next="Filter while exporting: `bactrian export RUN --format messages --only ending=CODE`.",
        )
    if source.side != "assistant":
        raise InputError(
            "Of JSON lines, the messages of the assistant are learned; they have no other side.",
            where=str(path),
            next=f"Give the run itself, or export it by `bactrian export RUN --format messages --side {source.side}`.",
        )
    for conversation in read_json_lines(path):
        if _is_in_share(conversation.id, source.share, counts):
            yield conversation


def _is_database(path: Path) -> bool:
    """Return True if ``path`` is a database."""
    try:
        return is_sqlite_file(path)
    except OSError:
        return False


async def _read_run(path: Path, source: DataSource, counts: ReadCounts) -> AsyncIterator[Conversation]:
    fits = SessionFilter(make_filters(source))
    async with open_store(path, read_only=True) as opened, opened.snapshot() as run:
        context = ExportContext(path.stem, SystemPrompts(await run.recipe()), source.side)
        async for session in run.sessions():
            if (kind := find_kind(session)) not in CHAT_MESSAGES.kinds:
                counts.left_out[kind] += 1
            elif reason := fits.find_reason(session):
                counts.left_out[reason] += 1
            elif row := build_row(session, context):
                messages = [
                    {"role": message["role"], "content": message["content"]}
                    for message in cast("list[ChatMessage]", row["messages"])
                ]
                if fault := find_fault(messages):
                    counts.left_out[fault] += 1
                else:
                    yield Conversation(f"{path.stem}:{session.id}", name_group(session), messages)
            else:
                counts.left_out[f"no turn of the {source.side}"] += 1


def make_filters(source: DataSource) -> Filters:
    """Return the filters of a run. Raises InputError for an unknown code."""
    known = (*ENDING_CODES, *BEHAVIOURS)
    for code in (*source.only, *source.drop):
        allowed = ENDING_CODES if code in source.only else known
        if code not in allowed:
            raise InputError(
                f"There is no {'ending' if code in source.only else 'ending or behaviour'} {code!r}."
                f"{suggest_name(code, allowed)}",
                where=source.path,
                next=f"There are {', '.join(allowed)}.",
            )
    return Filters(
        endings=frozenset(source.only),
        reject={code: _make_test(code) for code in source.drop},
        min_rounds=source.min_rounds,
    )


def _make_test(code: str) -> Callable[[Session], bool]:
    if code in ENDING_CODES:
        return lambda session: session.ending is not None and session.ending.code == code
    return lambda session: any(finding.behaviour == code for finding in find_behaviours(session))


def _is_in_share(name: str, share: float, counts: ReadCounts) -> bool:
    """Choose by a hash of the id, so that the same conversations are chosen on every machine."""
    if locate_group(f"share\0{name}") >= share:
        counts.left_out["not in the share"] += 1
        return False
    counts.used += 1
    return True
