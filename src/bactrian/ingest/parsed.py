"""Results of parsing: conversations and skipped items."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from pathlib import PurePosixPath
from typing import Any, cast

from bactrian.protocol.markers import is_done, read_instruction, read_solution
from bactrian.records.session import IMPORTED, SOURCE, Ending, Provenance, Session, Task
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Instruction, Solution, Speaker, Turn, Usage
from bactrian.tables.tables import read_termination

# Most bytes of a conversation.
LONGEST = 16 * 1024 * 1024
_MOST_MESSAGES = 1_000_000
# Most messages of a chat in CAMEL's data.
_LIMIT = 40


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """Something that was skipped."""

    # Name of the file, or of the file and its line.
    name: str
    problem: str


Found = Session | SkippedItem


class NotAChat(Exception):
    """The content is not a conversation; the message says why."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Facts about imported conversations that their files do not contain."""

    # The model of both sides; empty if unknown.
    model: str = ""
    language: str | None = None
    # Name, revision and licence of the data set, as far as they are known.
    source: Mapping[str, str] = field(default_factory=dict[str, str])

    def provenance(
        self, form: str, extra: Extra, *, agents: Sequence[str] = (), models: Mapping[str, str] | None = None
    ) -> Provenance:
        """Return the provenance of a session of this format. The files do not contain the prompts.

        ``agents`` name those that spoke, where it tells the kind of the session; ``models`` are those that the file
        names.
        """
        named = {"assistant": self.model, "user": self.model} if self.model else dict(models or {})
        return Provenance(
            prompts=f"{IMPORTED}{form}",
            prompts_hash="",
            protocol="free",
            models={agent: named.get(agent, self.model) for agent in agents} if agents else named,
            language=self.language,
            extra={**extra, SOURCE: dict(self.source)} if self.source else extra,
        )


@dataclass(frozen=True, slots=True)
class Row:
    """A JSON object of a file."""

    # Name of the file, with the line or the row.
    name: str
    content: Mapping[str, Any]
    # The names on the way to it: of the file given, and of folders and files in it.
    folders: tuple[str, ...] = ()

    @property
    def lower(self) -> dict[str, Any]:
        """The content with keys in lower case, as some of CAMEL's files have capitals."""
        return {key.lower(): value for key, value in self.content.items()}

    @property
    def stem(self) -> str:
        """Name of the file without folder and suffix."""
        return PurePosixPath(self.name.replace("\\", "/")).stem


# Keys that have no other place, as in :attr:`Provenance.extra`.
Extra = dict[str, dict[str, Any]]


def pick_extra(content: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return the keys of ``content`` that are not ``known`` (in lower case), as clean JSON."""
    return {clean_text(key): _clean_json(value) for key, value in content.items() if key.lower() not in known}


def _clean_json(value: Any) -> Any:
    """Return JSON data that every store and every reader accepts: without NUL, lone surrogates, NaN and infinity."""
    match value:
        case str():
            return clean_text(value)
        case float():
            return value if isfinite(value) else None
        case dict():
            pairs = cast("dict[str, Any]", value).items()
            return {clean_text(key): _clean_json(item) for key, item in pairs}
        case list():
            return [_clean_json(item) for item in cast("list[Any]", value)]
        case _:
            return value


def read_text(content: Mapping[str, Any], key: str) -> str:
    """Return the text under ``key``; empty if it is missing or is not a text."""
    value = content.get(key)
    return clean_text(value) if isinstance(value, str) else ""


def read_task(content: Mapping[str, Any]) -> Task:
    """Return the task as CAMEL's files have it. Raises NotAChat."""
    original, specified = read_text(content, "original_task"), read_text(content, "specified_task")
    if not (original or specified):
        raise NotAChat("it has no task")
    return Task(original or specified, specified or None, read_text(content, "planned_task") or None)


def read_own_task(content: Mapping[str, Any], otherwise: str) -> Task:
    """Return the task as our own exports have it, in which an unspecified task is there twice."""
    original, specified = read_text(content, "original_task"), read_text(content, "specified_task")
    return Task(original or otherwise, specified if specified != original and specified else None)


def read_own_roles(content: Mapping[str, Any]) -> dict[Speaker, str]:
    """Return the role names by speaker as our own exports have them."""
    return {
        "assistant": read_name(content.get("assistant_role"), "Assistant"),
        "user": read_name(content.get("user_role"), "User"),
    }


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """One message of a file."""

    number: int
    speaker: Speaker
    role: str
    text: str
    # The parts of the text where the file has them apart; None parses the text.
    parsed: Instruction | Solution | None = None
    # Its other keys.
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])


def collect_extra(shared: Mapping[str, Any], messages: Iterable[ParsedMessage]) -> Extra:
    """Return the other keys of a conversation: those ``shared`` by its messages, and those of each."""
    parts = {"0": shared, **{str(message.number): message.extra for message in messages}}
    return {number: dict(part) for number, part in parts.items() if part}


def build_turns(messages: Iterable[ParsedMessage], model: str) -> tuple[Turn, ...]:
    """Return messages as turns. Their usage is unknown: zero, marked as an estimate."""
    return tuple(_build_turn(message, model) for message in messages)


def _build_turn(message: ParsedMessage, model: str) -> Turn:
    if not 1 <= message.number <= _MOST_MESSAGES:
        raise NotAChat(f"it has a message {message.number}")
    text = clean_text(message.text)
    return Turn(
        number=message.number,
        speaker=message.speaker,
        role=clean_text(message.role),
        text=Text(text),
        said=message.parsed or (read_instruction if message.speaker == "user" else read_solution)(text),
        usage=Usage(estimated=True),
        seconds=0.0,
        first_token=None,
        model=model,
        finish="other",
        lossy=text != message.text,
    )


def build_ending(reason: str, spoken: Sequence[Turn]) -> Ending:
    """Return the ending given by the file or visible in the turns, else ``imported``."""
    last = spoken[-1].number if spoken else 0
    if known := read_termination(reason, last):
        return known
    if spoken and spoken[-1].speaker == "user" and is_done(spoken[-1].text):
        return Ending("task_done", last, "user", spoken[-1].text[:500])
    speaker = spoken[-1].speaker if spoken else "user"
    if len(spoken) == _LIMIT:
        return Ending("max_messages", last, speaker, f"{_LIMIT} messages")
    return Ending("imported", last, speaker, clean_text(reason)[:500])


def read_name(value: object, otherwise: str) -> str:
    """Return a name on one line."""
    name = " ".join(clean_text(value).split()) if isinstance(value, str) else ""
    return name[:300] or otherwise


def read_id(value: object, otherwise: str) -> str:
    """Return a short id, without characters that file names cannot contain."""
    text = clean_text(value) if isinstance(value, str) else ""
    return re.sub(r"[^\w.-]+", "-", text or otherwise).strip(".-")[:100] or "chat"
