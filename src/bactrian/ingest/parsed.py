"""Results of parsing: conversations and skipped items."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bactrian.language.protocol import is_done, read_instruction, read_solution
from bactrian.records.ending import Ending
from bactrian.records.session import IMPORTED, Provenance, Session
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Speaker, Turn
from bactrian.records.usage import Usage
from bactrian.tables.camel import read_termination

LONGEST = 16 * 1024 * 1024
"""Most bytes of a conversation."""
_MOST_MESSAGES = 1_000_000
_LIMIT = 40
"""Most messages of a chat in CAMEL's data."""


@dataclass(frozen=True, slots=True)
class SkippedItem:
    """Something that was skipped."""

    name: str
    """Name of the file, or of the file and its line."""
    problem: str


Found = Session | SkippedItem


class NotAChat(Exception):
    """The content is not a conversation; the message says why."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Facts about imported conversations that their files do not contain."""

    model: str = ""
    """The model of both sides; empty if unknown."""
    language: str | None = None

    def provenance(self, form: str) -> Provenance:
        """Return the provenance of a session of this format. The files do not contain the prompts."""
        return Provenance(
            prompts=f"{IMPORTED}{form}",
            prompts_hash="",
            protocol="free",
            models={"assistant": self.model, "user": self.model} if self.model else {},
            language=self.language,
        )


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """One message of a file."""

    number: int
    speaker: Speaker
    role: str
    text: str


def build_turns(said: Iterable[ParsedMessage], model: str) -> tuple[Turn, ...]:
    """Return messages as turns. Their usage is unknown: zero, marked as an estimate."""
    return tuple(_turn(one, model) for one in said)


def _turn(said: ParsedMessage, model: str) -> Turn:
    if not 1 <= said.number <= _MOST_MESSAGES:
        raise NotAChat(f"it has a message {said.number}")
    text = clean_text(said.text)
    return Turn(
        number=said.number,
        speaker=said.speaker,
        role=clean_text(said.role),
        text=Text(text),
        said=(read_instruction if said.speaker == "user" else read_solution)(text),
        usage=Usage(estimated=True),
        seconds=0.0,
        first_token=None,
        model=model,
        finish="other",
        lossy=text != said.text,
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
    """Return a short id, without characters that file names cannot hold."""
    text = clean_text(value) if isinstance(value, str) else ""
    return re.sub(r"[^\w.-]+", "-", text or otherwise).strip(".-")[:100] or "chat"
