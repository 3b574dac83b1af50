"""Votes of people on pairs of solutions."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Literal, get_args

Preference = Literal["left", "right", "equal", "both_bad", "skip"]
"""What a voter says of the two texts as they were shown."""
PREFERENCES: tuple[Preference, ...] = get_args(Preference)


@dataclass(frozen=True, slots=True)
class Vote:
    """A person's vote on one pair of solutions of a task.

    It keeps what was on the left and what was chosen, and not only who won: so a mistake in one can be seen.
    """

    session: str
    """Id of the task's session, which holds the solutions."""
    pair: str
    """The two solutions, as an item of the axis ``pair``: ``extraction | single_shot``."""
    voter: str
    """A pseudonym."""
    repeated: bool
    """True if the voter had seen the pair before, the other way round: a check of attention."""
    left: str
    """The solution that was shown on the left."""
    choice: str
    """One of :data:`PREFERENCES`."""
    comment: str
    texts: str
    """SHA-256, hexadecimal, of both texts as the voter saw them, the first of the pair first."""
    seconds: float
    """From showing the pair to the vote."""
    created: float = field(default_factory=time.time)
    """Seconds since 1970."""

    @property
    def preferred(self) -> str | None:
        """The solution that won the vote; None for neither."""
        if self.choice not in ("left", "right"):
            return None
        ways = self.pair.split(" | ")
        right = next(way for way in ways if way != self.left)
        return self.left if self.choice == "left" else right
