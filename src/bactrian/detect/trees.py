"""Boosted decision trees (Friedman 2001), evaluated in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Tree:
    """A tree in flat lists, one entry for each node; node 0 is the root."""

    features: list[int]
    """Column that a node compares; -1 for a leaf."""
    thresholds: list[float]
    """A value up to it goes left."""
    left: list[int]
    right: list[int]
    values: list[float]
    """Log odds that the node adds. Those of inner nodes explain a score."""


@dataclass(frozen=True, slots=True)
class Forest:
    """A sum of trees."""

    base: float
    trees: tuple[Tree, ...]
    check: int
    """Number of trees after which a hopeless turn is given up."""
    hopeless: float
    """Log odds after ``check`` trees below which a turn is given up: hardly any that shows the behaviour is."""

    def score(self, row: Sequence[float], *, whole: bool = False) -> float:
        """Return the log odds of a row; those of the first trees if they are hopeless, unless ``whole``."""
        total = self.base + _sum_trees(self.trees[: self.check], row)
        if total < self.hopeless and not whole:
            return total
        return total + _sum_trees(self.trees[self.check :], row)

    def explain(self, row: Sequence[float]) -> Counter[int]:
        """Return what each column adds to the score: the change of value along the path (Saabas 2014)."""
        added: Counter[int] = Counter()
        for tree in self.trees:
            node = 0
            while (feature := tree.features[node]) >= 0:
                child = tree.left[node] if row[feature] <= tree.thresholds[node] else tree.right[node]
                added[feature] += tree.values[child] - tree.values[node]  # type: ignore[assignment]
                node = child
        return added


def _sum_trees(trees: Sequence[Tree], row: Sequence[float]) -> float:
    total = 0.0
    for tree in trees:
        features, thresholds, left, right = tree.features, tree.thresholds, tree.left, tree.right
        node = 0
        while (feature := features[node]) >= 0:
            node = left[node] if row[feature] <= thresholds[node] else right[node]
        total += tree.values[node]
    return total


def read_forest(data: Any) -> Forest:
    """Read a forest from JSON."""
    return Forest(data["base"], tuple(Tree(*tree) for tree in data["trees"]), data["check"], data["hopeless"])


def write_forest(forest: Forest) -> dict[str, Any]:
    """Return a forest as JSON."""
    return {
        "base": round(forest.base, 5),
        "check": forest.check,
        "hopeless": round(forest.hopeless, 4),
        "trees": [
            [
                tree.features,
                [round(value, 5) for value in tree.thresholds],
                tree.left,
                tree.right,
                [round(value, 5) for value in tree.values],
            ]
            for tree in forest.trees
        ],
    }
