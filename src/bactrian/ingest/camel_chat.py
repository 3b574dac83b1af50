"""CAMEL's chats: one JSON file for each session, as released by CAMEL or written by ``export --format camel-chat``.

Irregularities of the released files are accepted: keys in upper case, no termination reason, no messages, missing
messages, a wrong ``role``, a role type in lower case, no role name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, cast

from bactrian.ingest.archive import Member, list_members
from bactrian.ingest.parsed import (
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

FORM = "camel-chat"
_MESSAGE = re.compile(r"message_(\d{1,7})")
_ROLE = re.compile(r"(.*)_roletype\.(assistant|user)\s*", re.IGNORECASE | re.DOTALL)


def find_chats(path: Path, origin: Origin) -> Iterator[Found]:
    """Yield the chats of a folder or an archive."""
    for member in list_members(path):
        yield _read(member, origin) if isinstance(member, Member) else member


def _read(member: Member, origin: Origin) -> Found:
    try:
        content: object = json.loads(member.content)
        if not isinstance(content, dict):
            raise NotAChat("it is no JSON object")
        chat = {key.lower(): value for key, value in cast("dict[str, Any]", content).items()}
        return read_chat(chat, member.name, origin)
    except NotAChat as reason:
        return SkippedItem(member.name, str(reason))
    except (ValueError, RecursionError) as error:
        return SkippedItem(member.name, f"it is no JSON: {error}")


def read_chat(chat: Mapping[str, Any], name: str, origin: Origin) -> Session:
    """Return the session of a chat with keys in lower case; ``name`` is its file's.

    Raises:
        NotAChat: a required part is missing.
    """
    roles = _roles(chat)
    original, specified = _text(chat, "original_task"), _text(chat, "specified_task")
    if not (original or specified):
        raise NotAChat("it has no task")
    spoken = build_turns(_said(chat, roles), origin.model)
    mark = chat.get("mark")
    return Session(
        id=read_id(chat.get("id"), PurePosixPath(name.replace("\\", "/")).stem),
        assistant=Role(roles["assistant"]),
        user=Role(roles["user"]),
        task=Task(original or specified, specified or None, _text(chat, "planned_task") or None),
        provenance=origin.provenance(FORM),
        turns=spoken,
        ending=build_ending(_text(chat, "termination_reason"), spoken),
        mark=clean_text(mark) if isinstance(mark, str) and mark else None,
    )


def _text(chat: Mapping[str, Any], key: str) -> str:
    value = chat.get(key)
    return clean_text(value) if isinstance(value, str) else ""


def _roles(chat: Mapping[str, Any]) -> dict[Speaker, str]:
    """Return the role names by speaker, identified by suffix; without one, the first is the assistant's."""
    if not ("role_1" in chat and "role_2" in chat):
        raise NotAChat("it has no role_1 and role_2, so it is not a chat of CAMEL's")
    roles: dict[Speaker, str] = {}
    expected: tuple[tuple[str, Speaker], ...] = (("role_1", "assistant"), ("role_2", "user"))
    for key, speaker in expected:
        value = chat[key]
        match = _ROLE.fullmatch(value) if isinstance(value, str) else None
        if match:
            speaker = "assistant" if match[2].lower() == "assistant" else "user"  # noqa: PLW2901
            value = match[1]
        name = read_name(value, "")
        if not name or speaker in roles:
            raise NotAChat(f"its {key} names no role")
        roles[speaker] = name
    return roles


def _said(chat: Mapping[str, Any], roles: Mapping[Speaker, str]) -> Iterator[ParsedMessage]:
    numbered = sorted((int(match[1]), key) for key in chat if (match := _MESSAGE.fullmatch(key)))
    if repeated := [number for (number, _), (later, _) in pairwise(numbered) if number == later]:
        raise NotAChat(f"it has two messages {repeated[0]}")
    for number, key in numbered:
        message: object = chat[key]
        if not isinstance(message, dict):
            raise NotAChat(f"its {key} is no object, so it is no chat; CAMEL's problems have such messages")
        parts = cast("dict[str, Any]", message)
        text = parts.get("content")
        if not isinstance(text, str):
            raise NotAChat(f"its {key} has no text")
        speaker = _speaker(parts.get("role_type"), number)
        yield ParsedMessage(number, speaker, read_name(parts.get("role_name"), roles[speaker]), text)


def _speaker(role_type: object, number: int) -> Speaker:
    """Return the speaker of a message by its role type, or else by its number: odd messages are the user's."""
    kind = str(role_type).lower().rpartition(".")[2]
    if kind in ("user", "assistant"):
        return "user" if kind == "user" else "assistant"
    return "user" if number % 2 else "assistant"
