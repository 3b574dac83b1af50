"""A conversation to train on, as prepared data keeps it: one JSON object a line."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bactrian.errors import InputError
from bactrian.records.text import clean_text

Said = dict[str, str]
"""A message: ``role`` (system, user or assistant) and ``content``."""
ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Conversation:
    """Messages whose assistant is learned."""

    id: str
    group: str
    """What must not be divided between training and held-out data, such as a pair of roles."""
    messages: Sequence[Said]

    def to_json(self) -> str:
        """Return it as one line."""
        values = {"id": self.id, "group": self.group, "messages": list(self.messages)}
        return json.dumps(values, ensure_ascii=False) + "\n"

    def list_texts(self) -> list[str]:
        """Return what was said, without the system prompt, which conversations share."""
        return [said["content"] for said in self.messages if said["role"] != "system"]


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
        messages = [_read_message(said) for said in row["messages"]]
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


def _read_message(said: Any) -> Said:
    role, content = said["role"], said["content"]
    if role not in ROLES or not isinstance(content, str):
        raise ValueError
    return {"role": role, "content": clean_text(content)}


def find_fault(messages: Sequence[Said]) -> str | None:
    """Return why a model cannot learn from these messages; None if it can."""
    roles = [said["role"] for said in messages]
    spoken = roles[1:] if roles[:1] == ["system"] else roles
    if "assistant" not in spoken:
        return "it has no message of an assistant"
    wanted = ["user", "assistant"] * len(spoken)
    return None if spoken == wanted[: len(spoken)] else "its messages do not alternate"


def hash_messages(messages: Sequence[Said]) -> str:
    """Return a short hash of what is said, ignoring white space at the ends."""
    text = json.dumps([[said["role"], said["content"].strip()] for said in messages], ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _name(row: dict[str, Any], messages: Sequence[Said]) -> str:
    if isinstance(row.get("id"), str):
        return clean_text(row["id"])
    if isinstance(row.get("session"), str):
        return f"{row.get('run', '')}:{row['session']}"
    return hash_messages(messages)


def _find_group(row: dict[str, Any], messages: Sequence[Said]) -> str:
    if isinstance(row.get("group"), str):
        return clean_text(row["group"]).casefold()
    roles = row.get("assistant_role"), row.get("user_role")
    if all(isinstance(role, str) and role for role in roles):
        return "\0".join(map(str, roles)).casefold()
    return hash_messages(messages)
