"""Turns: one message by one agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bactrian.records.text import Text
from bactrian.records.tool import Use, group_rounds
from bactrian.records.usage import Usage

Speaker = str
"""Name of an agent within its session; in a role-play, ``user`` instructs and ``assistant`` solves."""
Finish = Literal["stop", "length", "content_filter", "tool_calls", "other"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """An AI user's turn, with the two fields of the inception protocol (paper, figure 2)."""

    instruction: str
    input: str | None = None
    """None if the user wrote ``Input: None`` or no input."""
    preface: str = ""
    """Text before the instruction, normally empty."""


@dataclass(frozen=True, slots=True)
class Solution:
    """An AI assistant's turn, without the protocol's markers."""

    solution: str
    asks_next: bool = False
    """True if the turn ends with the request for the next instruction."""
    preface: str = ""
    """Text before the solution, normally empty."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a session, with its cost and origin.

    Example:
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha."]
        >>> turn = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, max_messages=2).turns[0]
        >>> turn.speaker, turn.role, turn.said.instruction
        ('user', 'Beginner', 'Name one.')
    """

    number: int
    """1-based; odd turns are the AI user's in a two-agent session."""
    speaker: Speaker
    role: str
    """Name of the role the speaker plays."""
    text: Text
    said: Instruction | Solution | None
    """The parsed text; None if the markers of the inception protocol are missing."""
    usage: Usage
    seconds: float
    """From sending the request to the last byte of the reply, retries included."""
    first_token: float | None
    """Seconds until the first piece of a streamed reply; None if it was not streamed."""
    model: str
    """The model as the endpoint named it."""
    finish: Finish
    lossy: bool = False
    """True if bytes or characters that cannot be stored were replaced in ``text``."""
    fingerprint: str | None = None
    """The endpoint's name for the exact system that answered, if it gives one."""
    uses: tuple[Use, ...] = ()
    """The tool calls of the turn. ``usage`` includes their cost."""
    thought: str = ""
    """Thoughts of a reasoning model before its reply. Agents do not see them, and rules ignore them."""

    @property
    def requests(self) -> int:
        """Number of requests to the model, not counting retries.

        Example:
            >>> turn.requests
            1
        """
        return 1 + len(group_rounds(self.uses)) if self.uses else 1
