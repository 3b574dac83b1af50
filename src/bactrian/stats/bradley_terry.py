"""The strengths of several systems from comparisons in pairs (Bradley and Terry, 1952)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_STEPS = 100
_CLOSE = 1e-10
_PRIOR = 0.1
"""Draws that are added to each pair that was compared, so that a system that never lost has a finite strength."""


def fit_bradley_terry(wins: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Return the strength of each system, as natural logarithms with mean 0.

    The odds that one system beats another are ``exp`` of the difference of their strengths. The likelihood has
    one maximum (Hunter 2004, MM algorithms for generalized Bradley-Terry models), which Newton's method finds.

    Args:
        wins: How often the first system of a pair beat the second. Count a draw as half a win for each.

    Raises:
        ValueError: there are no comparisons, or they do not connect all systems.
    """
    import numpy as np

    names = sorted({name for pair in wins for name in pair})
    if not names:
        raise ValueError("nothing was compared")
    places = {name: place for place, name in enumerate(names)}
    won = np.zeros(len(names))
    games = np.zeros((len(names), len(names)))
    for (one, other), count in wins.items():
        first, second = places[one], places[other]
        if not games[first, second]:
            games[first, second] = games[second, first] = 2 * _PRIOR
            won[[first, second]] += _PRIOR
        games[first, second] += count
        games[second, first] += count
        won[first] += count
    _check_connected(names, games > 0)
    strength = np.zeros(len(names))
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(strength - strength[:, None]))
        curve = games * chance * (1 - chance)
        # The likelihood does not change if all strengths grow alike; the last term keeps their mean at 0.
        slope = np.diag(curve.sum(axis=1)) - curve + 1 / len(names)
        step = np.linalg.solve(slope, won - (games * chance).sum(axis=1))
        largest = np.abs(step).max()
        strength += step / max(1.0, largest)
        if largest < _CLOSE:
            break
    strength -= strength.mean()
    return {name: float(value) for name, value in zip(names, strength, strict=True)}


def _check_connected(names: list[str], met: NDArray[np.bool_]) -> None:
    reached = {0}
    while more := {int(other) for one in reached for other in met[one].nonzero()[0]} - reached:
        reached |= more
    if len(reached) < len(names):
        left = ", ".join(name for place, name in enumerate(names) if place not in reached)
        raise ValueError(f"{left} was never compared with {names[0]}")
