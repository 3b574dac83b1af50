"""CAMEL's chats: one JSON object for each session, as released by CAMEL or written by ``export --format camel-chat``.

Irregularities of the released files are accepted: keys in upper case, no termination reason, no messages, missing
messages, a wrong ``role``, a role type in lower case, no role name. The translated chats are the same in folders or
archives that name the language.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from types import MappingProxyType
from typing import Any, cast

from bactrian.ingest.parsed import (
    NotAChat,
    Origin,
    ParsedMessage,
    Row,
    build_ending,
    build_turns,
    collect_extra,
    pick_extra,
    read_id,
    read_name,
    read_task,
    read_text,
)
from bactrian.records.session import IMPORTED, Ending, Role, Session, Task
from bactrian.records.turn import Speaker
from bactrian.tables.tables import CODE_AXES, read_role

FORM = "camel-chat"
TRANSLATED = "camel-translated"
_MESSAGE = re.compile(r"message_(\d{1,7})")
_KNOWN = frozenset(
    "role_1 role_2 id original_task specified_task planned_task mark termination_reason num_messages".split()
)
_KNOWN_OF_MESSAGE = frozenset(("role_type", "role_name", "role", "content"))
_NAMES = "Arabic German Spanish French Hindi Italian Japanese Korean Russian Chinese".split()
# The languages of CAMEL's translations, by code.
LANGUAGES: Mapping[str, str] = MappingProxyType(
    dict(zip("ar de es fr hi it ja ko ru zh".split(), _NAMES, strict=True))
)
_CODES = {name.lower(): code for code, name in LANGUAGES.items()} | {code: code for code in LANGUAGES}
# Name of an archive of translations, without its suffix.
_PACK = re.compile(r".*_chat_([a-z]{2,3})", re.IGNORECASE)

LICENSE = "CC-BY-NC-4.0"
# The names of CAMEL's published files, without suffix, as a browser may have numbered them.
_PUBLISHED = re.compile(
    r"(ai_society(_chat|_instructions|_translated|_chat_[a-z]{2,3})?|code(_chat|_instructions)|math(50k)?"
    r"|physics|chemistry|biology|misalignment)(_chat)?( ?\(\d+\))?",
    re.IGNORECASE,
)


def find_license(row: Row) -> str:
    """Return the licence of CAMEL's published data if the names on the way to ``row`` are those of its files."""
    stems = (name.partition(".")[0] for name in row.folders)
    return LICENSE if any(map(_PUBLISHED.fullmatch, stems)) else ""


def read_chat(row: Row, origin: Origin) -> Session:
    """Return the session of a chat.

    Raises:
        NotAChat: a required part is missing.
    """
    chat = row.lower
    roles = read_roles(chat)
    task = read_task(chat)
    messages = list(_list_messages(chat, roles))
    turns = build_turns(messages, origin.model)
    values = _find_code_axes(messages, roles)
    others = {key: value for key, value in row.content.items() if not _MESSAGE.fullmatch(key.lower())}
    if values:
        roles = {message.speaker: message.role for message in messages[:2]}
    return Session(
        id=read_id(chat.get("id"), row.stem),
        assistant=Role(roles["assistant"]),
        user=Role(roles["user"]),
        task=task,
        provenance=origin.provenance(FORM, collect_extra(pick_extra(others, _KNOWN), messages)),
        turns=turns,
        ending=build_ending(read_text(chat, "termination_reason"), turns),
        values=values,
        mark=read_text(chat, "mark") or None,
    )


def read_translation(row: Row, origin: Origin) -> Session:
    """Return the session of a translated chat, whose language is that of its folder or archive.

    Its id is that of a translation made here: the language and the id of the chat.

    Raises:
        NotAChat: a required part is missing, or the language is not known.
    """
    name = (origin.language or "").strip()
    code = _CODES.get(name.lower(), name) or find_language(row)
    if code is None:
        raise NotAChat("its language is not known; name it with language=LANGUAGE")
    chat = read_chat(row, origin)
    return replace(
        chat,
        id=f"{code}_{chat.id}",
        values={**chat.values, "language": code, "source": chat.id},
        provenance=replace(
            chat.provenance,
            prompts=f"{IMPORTED}{TRANSLATED}",
            models={"translator": origin.model},
            language=LANGUAGES.get(code, code),
        ),
    )


def find_language(row: Row) -> str | None:
    """Return the code of the language that the names on the way to ``row`` give; None if they give none."""
    for name in reversed(row.folders):
        stem = name.partition(".")[0]
        if code := _CODES.get(stem.lower()):
            return code
        if match := _PACK.fullmatch(stem):
            return match[1].lower()
    return None


def read_roles(chat: Mapping[str, Any]) -> dict[Speaker, str]:
    """Return the role names by speaker, identified by suffix; without one, the first is the assistant's.

    Raises:
        NotAChat: a role is missing.
    """
    if not ("role_1" in chat and "role_2" in chat):
        raise NotAChat("it has no role_1 and role_2, so it is not a chat of CAMEL's")
    roles: dict[Speaker, str] = {}
    expected: tuple[tuple[str, Speaker], ...] = (("role_1", "assistant"), ("role_2", "user"))
    for key, usual in expected:
        value, speaker = read_role(chat[key])
        speaker = speaker or usual
        name = read_name(value, "")
        if not name or speaker in roles:
            raise NotAChat(f"its {key} names no role")
        roles[speaker] = name
    return roles


def _find_code_axes(messages: list[ParsedMessage], roles: Mapping[Speaker, str]) -> dict[str, str]:
    """Return language and field of a chat of the Code data set, whose messages name the roles in full."""
    names = {message.speaker: message.role for message in messages[:2]}
    language, field = roles["assistant"], roles["user"]
    if names.get("assistant") != f"{language} Programmer" or field not in names.get("user", ""):
        return {}
    return dict(zip(CODE_AXES, (language, field), strict=True))


def _list_messages(chat: Mapping[str, Any], roles: Mapping[Speaker, str]) -> Iterator[ParsedMessage]:
    numbered = sorted((int(match[1]), key) for key in chat if (match := _MESSAGE.fullmatch(key)))
    if repeated := [number for (number, _), (later, _) in pairwise(numbered) if number == later]:
        raise NotAChat(f"it has two messages {repeated[0]}")
    for number, key in numbered:
        message: object = chat[key]
        if not isinstance(message, dict):
            raise NotAChat(
                f"its {key} is not an object, so this is not a chat; CAMEL's problems have such messages"
            )
        parts = cast("dict[str, Any]", message)
        text = parts.get("content")
        if not isinstance(text, str):
            raise NotAChat(f"its {key} has no text")
        speaker = _read_speaker(parts.get("role_type"), number)
        name = read_name(parts.get("role_name"), roles[speaker])
        yield ParsedMessage(number, speaker, name, text, extra=pick_extra(parts, _KNOWN_OF_MESSAGE))


def _read_speaker(role_type: object, number: int) -> Speaker:
    """Return the speaker of a message by its role type, or else by its number: odd messages are the user's."""
    kind = str(role_type).lower().rpartition(".")[2]
    if kind in ("user", "assistant"):
        return "user" if kind == "user" else "assistant"
    return "user" if number % 2 else "assistant"


# CAMEL's problems and solutions (math, physics, chemistry, biology): one JSON object for each.


SCIENCE = "camel-science"
_KNOWN_OF_PROBLEM = frozenset("role_1 topic topic; sub_topic message_1 message_2 id mark".split())


def read_problem(row: Row, origin: Origin) -> Session:
    """Return the session of a problem: its question and its answer.

    Raises:
        NotAChat: problem or solution is missing.
    """
    problem = row.lower
    question, answer = problem.get("message_1"), problem.get("message_2")
    if not (isinstance(question, str) and isinstance(answer, str)):
        raise NotAChat("it has no problem and solution as message_1 and message_2")
    if not question.strip():
        raise NotAChat("its problem is empty")
    role = read_name(read_role(problem.get("role_1"))[0], "Assistant")
    messages = (ParsedMessage(1, "user", "User", question), ParsedMessage(2, "assistant", role, answer))
    turns = build_turns(messages, origin.model)
    topics = {
        "topic": read_text(problem, "topic;") or read_text(problem, "topic"),
        "sub_topic": read_text(problem, "sub_topic"),
    }
    return Session(
        id=read_id(problem.get("id"), row.stem),
        assistant=Role(role),
        user=Role("User"),
        task=Task(str(turns[0].text)),
        provenance=origin.provenance(
            SCIENCE,
            collect_extra(pick_extra(row.content, _KNOWN_OF_PROBLEM), ()),
            agents=("assistant",),
        ),
        turns=turns,
        ending=Ending("answered", 2, "assistant", ""),
        values={name: text for name, text in topics.items() if text},
        mark=read_text(problem, "mark") or None,
    )
