"""A win rate that is controlled for length: what it would be if both answers were equally long.

Judges and people prefer longer answers (Dubois et al. 2024, Length-controlled AlpacaEval). A logistic regression
explains the wins by the difference in length; the controlled rate is its prediction at a difference of zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, sqrt, tanh

_RIDGE = 1 / 2.5**2
"""Precision of the prior on the effect of length, with a standard deviation of 2.5: without it, the fit of a judge that
decides by length alone does not converge."""
_RIDGE_LEVEL = 0.01
_STEPS = 30
_CLOSE = 1e-8


def scale_lengths(differences: Sequence[float]) -> list[float]:
    """Return tanh of each difference divided by the root mean square of all; a difference of zero stays zero."""
    spread = sqrt(sum(one * one for one in differences) / len(differences)) if differences else 0.0
    return [tanh(one / spread) if spread else 0.0 for one in differences]


def fit_length_controlled_rate(wins: Sequence[float], scaled: Sequence[float]) -> float | None:
    """Return the win rate at equal lengths, from 0 to 1.

    Args:
        wins: For each task, 1 for a win of the first answer, 0 for a loss and 0.5 for a draw.
        scaled: For each task, the difference in length, first minus second, by :func:`scale_lengths`.

    Returns:
        None if all outcomes are equal: length and quality cannot be told apart then.
    """
    if len(set(wins)) < 2:
        return None
    if not any(scaled):
        return sum(wins) / len(wins)
    level = effect = 0.0
    for _ in range(_STEPS):
        # Newton's method on the penalized likelihood: gradient and curvature in both parameters.
        down_level, down_effect = -_RIDGE_LEVEL * level, -_RIDGE * effect
        a, b, c = _RIDGE_LEVEL, 0.0, _RIDGE
        for win, length in zip(wins, scaled, strict=True):
            odds = level + effect * length
            rate = 1 / (1 + exp(-odds)) if odds > -700 else 0.0
            weight = rate * (1 - rate)
            down_level += win - rate
            down_effect += (win - rate) * length
            a += weight
            b += weight * length
            c += weight * length * length
        determinant = a * c - b * b
        step_level = (c * down_level - b * down_effect) / determinant
        step_effect = (a * down_effect - b * down_level) / determinant
        size = max(abs(step_level), abs(step_effect))
        damping = 1.0 if size < 2 else 2 / size
        level += damping * step_level
        effect += damping * step_effect
        if size < _CLOSE:
            break
    return 1 / (1 + exp(-level))
