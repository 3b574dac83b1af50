"""Who won, in one sentence."""

from __future__ import annotations

from bactrian.evaluate.agents.comparison import PairComparison


def write_winner(one: PairComparison, first: str, second: str) -> str:
    """Return which of two ways is better by the judge's verdicts, or that there is no winner yet.

    A way wins if the 95 % interval of its win rate, in which a draw is half a win, leaves out one half.
    """
    rate = one.shares["win_rate"]
    if rate.value is None:
        return "No winner: no verdict can be read."
    low, high = (rate.value, rate.value) if rate.low is None or rate.high is None else (rate.low, rate.high)
    best, value, ends = first, rate.value, (low, high)
    if rate.value < 0.5:
        best, value, ends = second, 1 - rate.value, (1 - high, 1 - low)
    win_rate = f"a win rate of {value:.0%} (95 % interval {ends[0]:.0%} to {ends[1]:.0%})"
    if rate.low is not None and ends[0] > 0.5:
        return f"{best} wins, with {win_rate}."
    if value == 0.5:
        return f"No winner: both have {win_rate}."
    needed = f" About {one.tasks_needed:,} tasks would show it." if one.tasks_needed else ""
    return f"No winner yet: {best} has {win_rate}, which may be chance.{needed}"
