"""Boosted decision trees (Friedman 2001), evaluated in plain Python."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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


# Not slotted: a cached property needs a place to be kept in.
@dataclass(frozen=True)
class Forest:
    """A sum of trees."""

    base: float
    trees: tuple[Tree, ...]
    checks: tuple[tuple[int, float], ...]
    """Numbers of trees after which a turn may be given up, and the log odds below which it is hopeless by then:
    hardly any turn that is found in the end is."""

    @cached_property
    def _parts(self) -> list[tuple[list[Any], float]]:
        """The trees between two checks, nested for speed, and the log odds below which a turn is given up."""
        parts: list[tuple[list[Any], float]] = []
        begin = 0
        for end, hopeless in (*self.checks, (len(self.trees), float("-inf"))):
            parts.append(([_nest_tree(tree) for tree in self.trees[begin:end]], hopeless))
            begin = end
        return parts

    def score(self, row: Sequence[float]) -> float:
        """Return the log odds of a row; those so far if they are hopeless at a check."""
        total = self.base
        for trees, hopeless in self._parts:
            total = _add_trees(trees, row, total)
            if total < hopeless:
                return total
        return total

    def add_up(self, row: Sequence[float]) -> list[float]:
        """Return the log odds of a row at each check, and at the end."""
        total = self.base
        return [total := _add_trees(trees, row, total) for trees, _ in self._parts]

    @cached_property
    def _steps(self) -> list[Any]:
        return [_nest_steps(tree) for tree in self.trees]

    def explain(self, row: Sequence[float]) -> dict[int, float]:
        """Return what each column adds to the score: the change of value along the path (Saabas 2014)."""
        added: defaultdict[int, float] = defaultdict(float)
        for node in self._steps:
            while node is not None:
                feature, threshold, change, left, other_change, right = node
                if row[feature] <= threshold:
                    added[feature] += change
                    node = left  # noqa: PLW2901
                else:
                    added[feature] += other_change
                    node = right  # noqa: PLW2901
        return added


def _add_trees(trees: Sequence[Any], row: Sequence[float], total: float) -> float:
    for node in trees:
        while node.__class__ is tuple:
            feature, threshold, left, right = node
            node = left if row[feature] <= threshold else right  # noqa: PLW2901
        total += node
    return total


def _nest_tree(tree: Tree, node: int = 0) -> Any:
    """Return a node as ``(feature, threshold, left, right)``; a leaf as its value."""
    feature = tree.features[node]
    if feature < 0:
        return tree.values[node]
    left, right = tree.left[node], tree.right[node]
    return feature, tree.thresholds[node], _nest_tree(tree, left), _nest_tree(tree, right)


def _nest_steps(tree: Tree, node: int = 0) -> Any:
    """Return a node as ``(feature, threshold, change, left, change, right)``, the changes of value; a leaf as None."""
    feature = tree.features[node]
    if feature < 0:
        return None
    left, right = tree.left[node], tree.right[node]
    return (
        feature,
        tree.thresholds[node],
        tree.values[left] - tree.values[node],
        _nest_steps(tree, left),
        tree.values[right] - tree.values[node],
        _nest_steps(tree, right),
    )


def read_forest(data: Any) -> Forest:
    """Read a forest from JSON."""
    checks = tuple((count, hopeless) for count, hopeless in data.get("checks", ()))
    return Forest(data["base"], tuple(Tree(*tree) for tree in data["trees"]), checks)


def write_forest(forest: Forest) -> dict[str, Any]:
    """Return a forest as JSON."""
    return {
        "base": round(forest.base, 5),
        "checks": [[count, round(hopeless, 4)] for count, hopeless in forest.checks],
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
