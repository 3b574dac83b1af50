"""Chats as JSON lines: ``messages`` (role and content) and ``sharegpt`` (from and value).

Roles and tasks are read from files of our own exports. System prompts are not turns: those before the first turn are
kept beside them, and exports write them again. A chat from the AI user's side (``export --side user``) is converted
back.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from bactrian.ingest.parsed import (
    Extra,
    NotAChat,
    Origin,
    ParsedMessage,
    build_ending,
    build_turns,
    collect_extra,
    pick_extra,
    read_id,
    read_name,
    read_text,
)
from bactrian.records.session import SYSTEM, Role, Session, Task
from bactrian.records.text import clean_text
from bactrian.records.turn import Speaker
from bactrian.tables.lineage import COLUMNS


@dataclass(frozen=True, slots=True)
class ChatKeys:
    """The keys of a chat format."""

    form: str
    messages: str
    role: str
    content: str


MESSAGES = ChatKeys("messages", "messages", "role", "content")
SHAREGPT = ChatKeys("sharegpt", "conversations", "from", "value")
ROW_KEYS = frozenset((*COLUMNS, "id", "original_task", "specified_task", "side", "system_prompt", "tools"))
"""The keys of a row of our own exports besides its messages."""
_AXIS = re.compile(r"[a-z_][a-z0-9_]{0,99}")
"""The name of an axis."""
_MESSAGE_KEYS = frozenset(("tool_calls", "tool_call_id", "reasoning_content"))
"""Keys of a message that an import leaves out."""
_SPEAKERS: Mapping[str, Speaker | None] = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "system": None,
    "tool": None,
}


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
    models, values = read_models(row), read_values(row)
    known = {shape.messages, *name_row_keys(values)}
    said = list(_said(row, shape, names))
    if not said:
        raise NotAChat(f"it has no {shape.messages}")
    spoken = build_turns(said, origin.model)
    first = next((one.text for one in said if one.speaker == "user"), said[0].text)
    original, specified = read_text(row, "original_task"), read_text(row, "specified_task")
    digest = hashlib.sha256("\0".join(f"{one.number} {one.text}" for one in spoken).encode()).hexdigest()
    return Session(
        id=read_id(row.get("session") or row.get("id"), digest[:12]),
        assistant=Role(names["assistant"]),
        user=Role(names["user"]),
        task=Task(original or clean_text(first), specified if specified != original and specified else None),
        provenance=origin.provenance(
            shape.form,
            {**collect_extra(pick_extra(row, known), said), **_pick_system(row, shape)},
            agents=_find_agents(models),
            models=models,
        ),
        turns=spoken,
        ending=build_ending(read_text(row, "ending"), spoken),
        values=values or {},
        mark=read_text(row, "mark") or None,
    )


def _pick_system(row: Mapping[str, Any], shape: ChatKeys) -> Extra:
    """Return the system prompt before the first turn, by the side that it is for; empty if it is missing or ours."""
    if row.get("system_prompt") == "stand-in":
        return {}
    texts: list[str] = []
    for message in cast("list[dict[str, Any]]", row[shape.messages]):
        if message.get(shape.role) != "system":
            break
        texts.append(read_text(message, shape.content))
    side = "user" if row.get("side") == "user" else "assistant"
    return {SYSTEM: {side: "\n\n".join(texts)}} if any(texts) else {}


def read_models(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the models by agent, as a row that was exported here names them; empty if it does not."""
    return _read_object(row, "models") or {}


def read_values(row: Mapping[str, Any]) -> dict[str, str] | None:
    """Return the items by axis, as a row that was exported here names them; None if it does not."""
    values = _read_object(row, "values")
    return values if values is None or all(_AXIS.fullmatch(axis) for axis in values) else None


def name_row_keys(values: Mapping[str, str] | None) -> frozenset[str]:
    """Return the keys of our own rows. A column ``values`` of another meaning is not among them, and is kept."""
    return ROW_KEYS if values is not None else ROW_KEYS - {"values"}


def _read_object(row: Mapping[str, Any], key: str) -> dict[str, str] | None:
    """Return the texts of a JSON object that is written as text; None if it is not one."""
    try:
        found: object = json.loads(read_text(row, key))
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    pairs = cast("dict[str, object]", found).items()
    return {clean_text(name): clean_text(text) for name, text in pairs if isinstance(text, str)}


def _find_agents(models: Mapping[str, str]) -> tuple[str, ...]:
    """Return the one agent of a question or of a translation, which tells the kind of the session."""
    alone = "translator" if "translator" in models else "assistant"
    return (alone,) if models and "user" not in models and alone in models else ()


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
        extra = pick_extra(cast("dict[str, Any]", message), {shape.role, shape.content, *_MESSAGE_KEYS})
        yield ParsedMessage(number, speaker, names[speaker], text, extra=extra)


def _message(message: object, shape: ChatKeys) -> tuple[Speaker | None, str]:
    if not isinstance(message, dict):
        raise NotAChat("one of its messages is not an object")
    parts = cast("dict[str, Any]", message)
    role, text = parts.get(shape.role), parts.get(shape.content)
    if not isinstance(role, str) or role not in _SPEAKERS:
        raise NotAChat(f"it has a message of {role!r}")
    if parts.get("tool_calls"):  # A tool call; the text follows in a later message.
        return None, ""
    if not isinstance(text, str):
        raise NotAChat("one of its messages is not a text")
    return _SPEAKERS[role], text
