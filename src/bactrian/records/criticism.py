"""A critic, as it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unreadable = Literal["first", "fail"]
"""What follows a choice that cannot be read: the first proposal is taken, or the session fails."""

CRITERIA = "it improves how well the task is done"
"""What a critic looks for unless it is told; the paper's default."""


@dataclass(frozen=True, slots=True)
class Criticism:
    """A critic who chooses what is said (paper, section 3.2)."""

    role: str
    proposals: int = 3
    """Candidates for each turn."""
    rounds: int = 1
    """Most rounds of proposals for a turn; from the second on, each needs feedback on the one before."""
    criteria: str = CRITERIA
    unreadable: Unreadable = "first"
    """What follows a choice that cannot be read, twice."""
