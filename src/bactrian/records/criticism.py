"""A critic, as it is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Unreadable = Literal["first", "fail"]
"""What follows a choice that cannot be read: the first proposal is taken, or the session fails."""

CRITERIA = "it improves how well the task is done"
"""What a critic looks for unless it is told; the paper's default."""


@dataclass(frozen=True, slots=True)
class CriticSettings:
    """A critic who chooses what is said (paper, section 3.2)."""

    role: str
    proposals: int = 3
    """Candidates for each turn."""
    rounds: int = 1
    """Most rounds of proposals for a turn; from the second on, each needs feedback on the one before."""
    criteria: str = CRITERIA
    unreadable: Unreadable = "first"
    """What follows a choice that cannot be read, twice."""
    width: int = 1
    """Lines that a search keeps alive; with ``depth`` 1, too, there is no search."""
    depth: int = 1
    """Turns that a search looks ahead."""

    @property
    def searches(self) -> bool:
        """True if it looks further than the next turn, or at more than one line."""
        return (self.width, self.depth) != (1, 1)

    def count_settled(self, turns: int) -> int:
        """How many of so many turns a session that is taken up again need not look at any more."""
        return turns // self.depth * self.depth


def read_search(text: str) -> tuple[int, int]:
    """Width and depth of ``beam:WIDTHxDEPTH``.

    Raises:
        ValueError: it is none, or searches nothing.
    """
    match = re.fullmatch(r"beam:([1-9]\d?)x([1-9]\d?)", text)
    if match is None:
        raise ValueError("a search is beam:WIDTHxDEPTH, each from 1 to 99, for example beam:2x3")
    return int(match[1]), int(match[2])
