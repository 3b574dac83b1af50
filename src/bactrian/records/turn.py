"""One message by one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bactrian.records.text import Text
from bactrian.records.tool import Use, group_rounds
from bactrian.records.usage import Usage

Speaker = str
"""Name of an agent among its session's: ``user`` (who instructs) and ``assistant`` (who solves) in a role-play."""
Finish = Literal["stop", "length", "content_filter", "tool_calls", "other"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """What the AI user asks for: the two fields of the inception protocol (paper, figure 2)."""

    instruction: str
    input: str | None = None
    """None where the user wrote ``Input: None`` or no input at all."""
    preface: str = ""
    """Anything the user said before the instruction, normally nothing."""


@dataclass(frozen=True, slots=True)
class Solution:
    """What the AI assistant answers, without the protocol's markers."""

    solution: str
    asks_next: bool = False
    """True if the turn ends with the request for the next instruction."""
    preface: str = ""
    """Anything the assistant said before the solution, normally nothing."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a session, with what it cost and where it came from."""

    number: int
    """1-based; odd turns are the AI user's in a two-agent session."""
    speaker: Speaker
    role: str
    """Name of the role the speaker plays."""
    text: Text
    said: Instruction | Solution | None
    """The text read by the inception protocol; None where its markers are missing."""
    usage: Usage
    seconds: float
    """From sending the request to the last byte of the reply, retries included."""
    first_token: float | None
    """Seconds until the first piece of a streamed reply; None if it was not streamed."""
    model: str
    """The model as the endpoint named it."""
    finish: Finish
    lossy: bool = False
    """True if bytes or characters that no store can hold were replaced in ``text``."""
    fingerprint: str | None = None
    """The endpoint's name for the exact system that answered, if it gives one."""
    uses: tuple[Use, ...] = ()
    """The tools that were called for it. Their calls cost part of ``usage``."""
    thought: str = ""
    """What a reasoning model thought before it spoke. No agent hears it, and no rule reads it."""

    @property
    def requests(self) -> int:
        """How often its model was asked, repetitions not counted."""
        return 1 + len(group_rounds(self.uses)) if self.uses else 1
