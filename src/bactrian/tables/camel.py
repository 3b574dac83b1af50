"""Endings and roles under the names that CAMEL's own files use."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from bactrian.language.protocol import DONE
from bactrian.records.ending import ENDING_CODES, Ending, EndingCode
from bactrian.records.session import Session
from bactrian.records.turn import Speaker

_TOKEN_LIMIT = "max_tokens_exceeded"  # noqa: S105
_NAMES: Mapping[EndingCode, str] = MappingProxyType(
    {
        "task_done": DONE,
        "user_no_instruct": "user_no_instruct_threshold",
        "assistant_instruct": "assistant_instruct_threshold",
        "max_messages": "max_num_messages",
        "repeat_loop": "repeat_word_threshold",
    }
)
_CODES: Mapping[str, EndingCode] = MappingProxyType(
    {**{code: code for code in ENDING_CODES}, **{name: code for code, name in _NAMES.items()}}
)
_SPEAKERS: Mapping[EndingCode, Speaker] = MappingProxyType(
    {"task_done": "user", "user_no_instruct": "user", "assistant_instruct": "assistant"}
)


CODE_AXES = ("programming_language", "domain")
"""The axes of the Code data set, whose items are its roles in CAMEL's files (``Java_RoleType.ASSISTANT``)."""
_ROLE = re.compile(r"(.*)_roletype\.(assistant|user)\s*", re.IGNORECASE | re.DOTALL)


def name_roles(session: Session) -> tuple[str, str]:
    """Return the names of assistant and user as CAMEL's files have them, without their suffix."""
    language, field = (session.values.get(axis) for axis in CODE_AXES)
    return (language, field) if language and field else (session.assistant.name, session.user.name)


def write_roles(session: Session) -> dict[str, str]:
    """Return ``role_1`` and ``role_2`` of a session."""
    assistant, user = name_roles(session)
    return {"role_1": f"{assistant}_RoleType.ASSISTANT", "role_2": f"{user}_RoleType.USER"}


def read_role(text: object) -> tuple[object, Speaker | None]:
    """Return the name in ``role_1`` or ``role_2``, and the speaker that its suffix names; None without a suffix."""
    match = _ROLE.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return text, None
    return match[1], "assistant" if match[2].lower() == "assistant" else "user"


def write_termination(ending: Ending | None) -> str:
    """Return CAMEL's name of an ending; our own if CAMEL has none, ``unknown`` for a session without an ending."""
    if ending is None:
        return "unknown"
    if ending.code == "token_limit":
        return f"RoleType.{ending.speaker.upper()}: {_TOKEN_LIMIT}"
    return _NAMES.get(ending.code, ending.code)


def read_termination(reason: str, last: int) -> Ending | None:
    """Return the ending that ``reason`` names, in CAMEL's names or ours, for a session of ``last`` turns.

    None if the name is unknown.
    """
    reason = reason.strip()
    if reason.endswith(_TOKEN_LIMIT):
        return Ending("token_limit", last, "user" if ".USER" in reason.upper() else "assistant", reason)
    code = _CODES.get(reason)
    if code is None:
        return None
    return Ending(code, last, _SPEAKERS.get(code, "user" if last % 2 else "assistant"), reason)
