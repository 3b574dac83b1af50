"""Similarity of sets of words."""

from __future__ import annotations

from collections.abc import Set


def compute_jaccard(one: Set[str], other: Set[str]) -> float:
    """Return the share of the words in the union that both sets contain (Jaccard 1901); 0 if the sets are disjoint."""
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else 0.0
