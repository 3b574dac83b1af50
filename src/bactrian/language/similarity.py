"""Near-identity of turns.

The ending ``repeat_loop`` and the behaviour ``infinite_loop`` both call :func:`is_alike`.
"""

from __future__ import annotations

from collections.abc import Set

ALIKE = 0.85
"""Minimum Jaccard similarity of the word sets of near-identical turns."""


def split_words(body: str) -> frozenset[str]:
    """Return the set of words of ``body`` in lower case, split at white space."""
    return frozenset(body.lower().split())


def compute_jaccard(one: Set[str], other: Set[str]) -> float:
    """Return the share of the words in the union that both sets contain (Jaccard 1901); 0 if the sets are disjoint."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def has_other_numbers(one: Set[str], other: Set[str]) -> bool:
    """Return True if only one of the sets contains some word with a digit: other numbers are new content."""
    return any(map(str.isdigit, "".join(one ^ other)))


def is_alike(one: Set[str], other: Set[str], least: float = ALIKE) -> bool:
    """Return True if turns with these words are nearly identical."""
    shared = len(one & other)
    if not shared or shared < least * (len(one) + len(other) - shared):
        return False
    return not has_other_numbers(one, other)
