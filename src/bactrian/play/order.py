"""Who speaks next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bactrian.records.turn import Speaker, Turn


class Order(Protocol):
    """A policy: given what was said, whose turn it is."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """The agent that speaks after ``turns``."""
        ...


@dataclass(frozen=True, slots=True)
class Alternate:
    """Two agents in turn; the AI user begins (paper, equation 1)."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """The one that did not speak last."""
        return "assistant" if turns and turns[-1].speaker == "user" else "user"
