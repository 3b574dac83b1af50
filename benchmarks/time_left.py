"""``python -m benchmarks.time_left``: how far the estimated time left is from the true one, in simulated runs.

Sessions take turns whose number and seconds are drawn; a virtual clock plays them ``window`` at once. The estimate
is that of ``bactrian status``. Prints for each kind of run the median ratio of estimate and truth, with the lowest and
the highest of ten seeds, after shares of the run's time.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from random import Random

from bactrian.records.turn import Usage
from bactrian.runs.cost import Estimate, Outlook, SessionPrior, TurnSeconds
from bactrian.stats.streaming import STEADY, Trend

SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
SEEDS = 10
CLOSE = 0.25
_PRIOR = SessionPrior(Estimate(20, 4, 40), Estimate(1, 1, 1), Estimate(1, 1, 1))


def _draw_geometric(draw: Random) -> int:
    turns = 4
    while turns < 40 and draw.random() > 1 / 12:
        turns += 2
    return turns


LENGTHS: Mapping[str, Callable[[Random], int]] = {
    "always 20": lambda _: 20,
    "geometric": _draw_geometric,
    "6 or 40": lambda draw: 6 if draw.random() < 0.6 else 40,
    "uniform": lambda draw: draw.randrange(4, 41, 2),
    "about 14": lambda draw: min(40, max(4, 2 * round(draw.gauss(14, 3)))),
}
SECONDS: Mapping[str, Callable[[int, Random], float]] = {
    "constant": lambda _turn, _draw: 1.0,
    "exponential": lambda _, draw: draw.expovariate(1),
    "lognormal": lambda _, draw: draw.lognormvariate(0, 0.8),
    "growing": lambda turn, draw: (1 + 0.1 * turn) * draw.lognormvariate(0, 0.3),
    "steep": lambda turn, draw: (0.3 + 0.15 * turn) * draw.lognormvariate(0, 0.5),
    "quadratic": lambda turn, draw: (1 + 0.005 * turn * turn) * draw.lognormvariate(0, 0.3),
}
RUNS = (
    ("always 20", "constant", 8, 200),
    ("geometric", "exponential", 8, 200),
    ("6 or 40", "lognormal", 16, 400),
    ("uniform", "growing", 8, 200),
    ("geometric", "steep", 32, 400),
    ("6 or 40", "growing", 16, 200),
    ("about 14", "growing", 64, 640),
    ("always 20", "steep", 16, 160),
    ("uniform", "quadratic", 16, 300),
    ("geometric", "growing", 100, 400),
    ("6 or 40", "steep", 32, 150),
)
"""Turns of a session, seconds of a turn, sessions at once, sessions."""


@dataclass(frozen=True, slots=True, order=True)
class Said:
    """A turn of a session, at its time; the session has ended if it is the last one."""

    time: float
    session: int
    turn: int
    seconds: float


def simulate(lengths: str, seconds: str, window: int, sessions: int, seed: int) -> list[float]:
    """Ratios of the estimated and the true time left, after each of :data:`SHARES`."""
    draw = Random(seed)
    turns = [LENGTHS[lengths](draw) for _ in range(sessions)]
    took = [[SECONDS[seconds](turn, draw) for turn in range(1, count + 1)] for count in turns]
    said = _play(took, window)
    end = said[-1].time
    outlook, trend = Outlook(_PRIOR), Trend()
    begun = min(window, sessions)
    for _ in range(begun):
        outlook.begin(0)
    ratios: list[float] = []
    for event in said:
        while len(ratios) < len(SHARES) and event.time >= SHARES[len(ratios)] * end:
            growth = max(0.0, trend.estimate_growth(0.0, STEADY))
            pace = TurnSeconds((trend.total - growth * trend.positions) / max(1, trend.count), growth)
            left = outlook.estimate_seconds(sessions - begun, window, pace) or 0.0
            ratios.append(left / (end - SHARES[len(ratios)] * end))
        outlook.speak(event.turn, Usage(), event.seconds)
        trend.add(event.turn, event.seconds)
        if event.turn == turns[event.session]:
            outlook.end(event.turn, ended=True)
            if begun < sessions:
                outlook.begin(0)
                begun += 1
    return ratios


def _play(took: list[list[float]], window: int) -> list[Said]:
    """Play the sessions, and return their turns in the order of time."""
    waiting = [Said(seconds[0], number, 1, seconds[0]) for number, seconds in enumerate(took[:window])]
    heapify(waiting)
    following = len(waiting)
    said: list[Said] = []
    while waiting:
        now = waiting[0]
        said.append(now)
        rest = took[now.session]
        if now.turn < len(rest):
            seconds = rest[now.turn]
            heapreplace(waiting, Said(now.time + seconds, now.session, now.turn + 1, seconds))
        elif following < len(took):
            seconds = took[following][0]
            heapreplace(waiting, Said(now.time + seconds, following, 1, seconds))
            following += 1
        else:
            heappop(waiting)
    return said


def main() -> None:
    """Print the table."""
    titles = [f"{share:.0%} done" for share in SHARES]
    print(
        f"| turns | seconds of a turn | at once | of | {' | '.join(titles)} |\n|{'---|' * (4 + len(titles))}"
    )
    every: list[list[float]] = []
    for run in RUNS:
        ratios = [simulate(*run, seed) for seed in range(SEEDS)]
        every += ratios
        cells = [
            f"{statistics.median(of):.2f} ({min(of):.2f}–{max(of):.2f})" for of in zip(*ratios, strict=True)
        ]
        print(f"| {' | '.join(map(str, run))} | {' | '.join(cells)} |")
    close = [sum(abs(ratio - 1) <= CLOSE for ratio in of) / len(of) for of in zip(*every, strict=True)]
    print(f"| **within 25 %** | | | | {' | '.join(f'{share:.0%}' for share in close)} |")


if __name__ == "__main__":
    main()
