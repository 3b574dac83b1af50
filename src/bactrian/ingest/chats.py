"""Chats as JSON lines: ``messages`` (role and content) and ``sharegpt`` (from and value).

Roles and tasks are read from files of our own exports. System prompts are dropped, as they are not turns. A chat
from the AI user's side (``export --side user``) is converted back.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, cast

from bactrian.ingest.parsed import (
    LONGEST,
    Found,
    NotAChat,
    Origin,
    ParsedMessage,
    SkippedItem,
    build_ending,
    build_turns,
    read_id,
    read_name,
)
from bactrian.records.session import Role, Session, Task
from bactrian.records.text import clean_text
from bactrian.records.turn import Speaker


@dataclass(frozen=True, slots=True)
class ChatKeys:
    """The keys of a chat format."""

    form: str
    messages: str
    role: str
    content: str


MESSAGES = ChatKeys("messages", "messages", "role", "content")
SHAREGPT = ChatKeys("sharegpt", "conversations", "from", "value")
_SPEAKERS: Mapping[str, Speaker | None] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "system": None,
    "tool": None,
}


def find_chats(
    path: Path, shape: ChatKeys, origin: Origin, lines: Iterable[tuple[int, bytes]] | None = None
) -> Iterator[Found]:
    """Yield the chats of a file, plain or compressed with gzip, one per line; ``lines`` are those of an open file."""
    try:
        for number, line in read_lines(path) if lines is None else lines:
            name = f"{path.name}, line {number}"
            if len(line) > LONGEST:
                yield SkippedItem(name, f"it has more than {LONGEST:,} bytes")
            elif line.strip():
                yield _read(line, name, shape, origin)
    except FAULTS as error:
        yield SkippedItem(path.name, f"the file cannot be read, or not to its end: {error}")


FAULTS = (OSError, EOFError, zlib.error)
"""Exceptions raised for a damaged or unreadable file."""


def read_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines of a file; a line that is too long is cut, so that it cannot fill the memory."""
    # Opened once, because a pipe cannot be read twice.
    with path.open("rb") as start, _unpack(start) as file:
        number = 0
        while line := file.readline(LONGEST + 1):
            number += 1
            yield number, line
            while len(line) > LONGEST and not line.endswith(b"\n"):
                line = file.readline(LONGEST + 1)


def _unpack(file: BufferedReader) -> BinaryIO:
    """Return ``file``, decompressed if it is compressed."""
    packed = file.peek(2)[:2] == b"\x1f\x8b"
    return cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file


def _read(line: bytes, name: str, shape: ChatKeys, origin: Origin) -> Found:
    try:
        row: object = json.loads(line)
        if not isinstance(row, dict):
            raise NotAChat("it is no JSON object")
        return read_row(cast("dict[str, Any]", row), shape, origin)
    except NotAChat as reason:
        return SkippedItem(name, str(reason))
    except (ValueError, RecursionError) as error:
        return SkippedItem(name, f"it is no JSON: {error}")


def read_row(row: Mapping[str, Any], shape: ChatKeys, origin: Origin) -> Session:
    """Return the session of a row.

    Its id is the row's ``session`` or ``id``, or else a hash of its messages.

    Raises:
        NotAChat: a required part is missing.
    """
    names: dict[Speaker, str] = {
        "assistant": read_name(row.get("assistant_role"), "Assistant"),
        "user": read_name(row.get("user_role"), "User"),
    }
    said = list(_said(row, shape, names))
    if not said:
        raise NotAChat(f"it has no {shape.messages}")
    spoken = build_turns(said, origin.model)
    first = next((one.text for one in said if one.speaker == "user"), said[0].text)
    original, specified = _text(row, "original_task"), _text(row, "specified_task")
    digest = hashlib.sha256("\0".join(f"{one.number} {one.text}" for one in spoken).encode()).hexdigest()
    return Session(
        id=read_id(row.get("session") or row.get("id"), digest[:12]),
        assistant=Role(names["assistant"]),
        user=Role(names["user"]),
        task=Task(original or clean_text(first), specified if specified != original and specified else None),
        provenance=origin.provenance(shape.form),
        turns=spoken,
        ending=build_ending(_text(row, "ending"), spoken),
        mark=_text(row, "mark") or None,
    )


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return clean_text(value) if isinstance(value, str) else ""


def _said(row: Mapping[str, Any], shape: ChatKeys, names: Mapping[Speaker, str]) -> Iterator[ParsedMessage]:
    """Yield the messages with turn numbers, in which the user's are odd."""
    given: object = row.get(shape.messages)
    if not isinstance(given, list):
        raise NotAChat(f"it has no {shape.messages}")
    turned = row.get("side") == "user"
    number = 0
    opened = not turned
    for message in cast("list[object]", given):
        speaker, text = _message(message, shape)
        if speaker is None:
            continue
        if not opened:
            # The first message of a chat from the user's side is the request to begin.
            opened = True
            continue
        if turned:
            speaker = "user" if speaker == "assistant" else "assistant"
        number += 1 if (number % 2 == 0) == (speaker == "user") else 2
        yield ParsedMessage(number, speaker, names[speaker], text)


def _message(message: object, shape: ChatKeys) -> tuple[Speaker | None, str]:
    if not isinstance(message, dict):
        raise NotAChat("one of its messages is no object")
    parts = cast("dict[str, Any]", message)
    role, text = parts.get(shape.role), parts.get(shape.content)
    if not isinstance(role, str) or role not in _SPEAKERS:
        raise NotAChat(f"it has a message of {role!r}")
    if parts.get("tool_calls"):  # A tool call; the text follows in a later message.
        return None, ""
    if not isinstance(text, str):
        raise NotAChat("one of its messages is no text")
    return _SPEAKERS[role], text
