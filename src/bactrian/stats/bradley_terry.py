"""The strengths of several systems from comparisons in pairs (Bradley and Terry, 1952)."""

from __future__ import annotations

from collections.abc import Mapping
from math import log

_STEPS = 10_000
_CLOSE = 1e-10
_PRIOR = 0.1
"""Draws that are added to each pair that was compared, so that a system that never lost has a finite strength."""


def fit_bradley_terry(wins: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Return the strength of each system, as natural logarithms with mean 0.

    The odds that one system beats another are ``exp`` of the difference of their strengths. The fit is that of Hunter
    (2004, MM algorithms for generalized Bradley-Terry models).

    Args:
        wins: How often the first system of a pair beat the second. Count a draw as half a win for each.

    Raises:
        ValueError: there are no comparisons, or they do not connect all systems.
    """
    names = sorted({name for pair in wins for name in pair})
    if not names:
        raise ValueError("nothing was compared")
    games: dict[tuple[str, str], float] = {}
    won = dict.fromkeys(names, 0.0)
    for (one, other), count in wins.items():
        first, second = sorted((one, other))
        key = (first, second)
        if key not in games:
            games[key] = 2 * _PRIOR
            won[one] += _PRIOR
            won[other] += _PRIOR
        games[key] += count
        won[one] += count
    _check_connected(names, games)
    strength = dict.fromkeys(names, 1.0)
    for _ in range(_STEPS):
        shares = dict.fromkeys(names, 0.0)
        for (one, other), count in games.items():
            part = count / (strength[one] + strength[other])
            shares[one] += part
            shares[other] += part
        renewed = {name: won[name] / shares[name] for name in names}
        total = sum(renewed.values()) / len(names)
        renewed = {name: value / total for name, value in renewed.items()}
        moved = max(abs(log(renewed[name] / strength[name])) for name in names)
        strength = renewed
        if moved < _CLOSE:
            break
    middle = sum(log(value) for value in strength.values()) / len(names)
    return {name: log(value) - middle for name, value in strength.items()}


def _check_connected(names: list[str], games: Mapping[tuple[str, str], float]) -> None:
    reached = set(names[:1])
    while more := {b for pair in games for a, b in (pair, pair[::-1]) if a in reached} - reached:
        reached |= more
    if len(reached) < len(names):
        raise ValueError(f"{', '.join(sorted(set(names) - reached))} was never compared with {names[0]}")
