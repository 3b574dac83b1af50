"""When two turns count as the same but for a word here and there.

The ending ``repeat_loop`` and the behaviour ``infinite_loop`` both ask :func:`is_alike`.
"""

from __future__ import annotations

from collections.abc import Set

ALIKE = 0.85
"""Share of their different words that near-identical turns have in common."""


def split_words(body: str) -> frozenset[str]:
    """The different words of ``body`` in lower case, split at white space."""
    return frozenset(body.lower().split())


def compute_jaccard(one: Set[str], other: Set[str]) -> float:
    """The share of all different words that both have (Jaccard 1901); 0 if they have none in common."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0


def has_other_numbers(one: Set[str], other: Set[str]) -> bool:
    """True if a word with a digit is in one of them alone: other numbers are something new."""
    return any(map(str.isdigit, "".join(one ^ other)))


def is_alike(one: Set[str], other: Set[str], least: float = ALIKE) -> bool:
    """True if two turns with these words are the same but for a word here and there."""
    shared = len(one & other)
    if not shared or shared < least * (len(one) + len(other) - shared):
        return False
    return not has_other_numbers(one, other)
