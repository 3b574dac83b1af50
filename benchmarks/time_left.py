"""``python -m benchmarks.time_left``: how far the estimated time left is from the true one, in simulated runs.

Sessions take turns whose number and seconds are drawn; a virtual clock plays them ``window`` at once. The estimate
is that of ``bactrian status``. Prints for each kind of run the median ratio of estimate and truth, with the lowest and
the highest of ten seeds, after shares of the run's time. Then, how many are close: with what the estimate knows, after
a pilot, and if it knew the seconds of turns or the lengths of conversations. The latter are means of 20,000 others.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from heapq import heapify, heappop, heapreplace
from random import Random

from bactrian.records.turn import Usage
from bactrian.runs.cost import Estimate, Outlook, SessionPrior, TurnSeconds
from bactrian.stats.streaming import STEADY, SurvivalCurve, Trend

SHARES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
SEEDS = 10
CLOSE = 0.25
PILOT = 10
"""Conversations of the run that an earlier command has played."""
OTHERS = 20_000
"""Conversations from which the true distributions are known."""
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


class KnownLengths(Outlook):
    """An outlook that knows the true distribution of lengths."""

    known: SurvivalCurve

    def find_lengths(self) -> SurvivalCurve:
        """Return the true distribution."""
        return self.known


@dataclass(frozen=True, slots=True)
class KnownSeconds(TurnSeconds):
    """The true mean seconds of turns, by their number."""

    means: tuple[float, ...] = ()

    def find(self, turn: int) -> float:
        """Return the mean seconds of the turn with this number."""
        return self.means[turn - 1]


@cache
def know_lengths(lengths: str) -> SurvivalCurve:
    """Return the true distribution of lengths."""
    draw = Random(-1)
    every = [LENGTHS[lengths](draw) for _ in range(OTHERS)]
    return SurvivalCurve(
        tuple(sum(turns > length for turns in every) / OTHERS for length in range(max(every) + 1))
    )


@cache
def know_seconds(seconds: str) -> KnownSeconds:
    """Return the true mean seconds of turns."""
    draw = Random(-1)
    few = range(OTHERS // 20)
    means = [statistics.fmean(SECONDS[seconds](turn, draw) for _ in few) for turn in range(1, 62)]
    return KnownSeconds(0.0, 0.0, tuple(means))


def simulate(
    lengths: str, seconds: str, window: int, sessions: int, seed: int, *, pilot: int = 0, known: str = ""
) -> list[float]:
    """Ratios of the estimated and the true time left, after each of :data:`SHARES`.

    ``known`` is what the estimate is told: ``lengths``, ``seconds`` or nothing.
    """
    draw = Random(seed)
    turns = [LENGTHS[lengths](draw) for _ in range(sessions)]
    took = [[SECONDS[seconds](turn, draw) for turn in range(1, count + 1)] for count in turns]
    said = _play(took, window)
    end = said[-1].time
    outlook, trend = KnownLengths(_PRIOR) if known == "lengths" else Outlook(_PRIOR), Trend()
    if isinstance(outlook, KnownLengths):
        outlook.known = know_lengths(lengths)
    before = Random(f"{seed} before")
    for _ in range(pilot):
        outlook.learn(LENGTHS[lengths](before), Usage())
    begun = min(window, sessions)
    for _ in range(begun):
        outlook.begin(0)
    ratios: list[float] = []
    for event in said:
        while len(ratios) < len(SHARES) and event.time >= SHARES[len(ratios)] * end:
            growth = max(0.0, trend.estimate_growth(0.0, STEADY))
            pace = TurnSeconds((trend.total - growth * trend.positions) / max(1, trend.count), growth)
            if known == "seconds":
                pace = know_seconds(seconds)
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
    _print_share("within 25 %", every)
    _print_share("from half to twice", every, 0.5, 2)
    _print_share(f"within 25 %, after a pilot of {PILOT}", _simulate_all(pilot=PILOT))
    _print_share("within 25 %, if the seconds of turns were known", _simulate_all(known="seconds"))
    _print_share("within 25 %, if the lengths were known", _simulate_all(known="lengths"))


def _simulate_all(*, pilot: int = 0, known: str = "") -> list[list[float]]:
    return [simulate(*run, seed, pilot=pilot, known=known) for run in RUNS for seed in range(SEEDS)]


def _print_share(
    name: str, every: list[list[float]], low: float = 1 - CLOSE, high: float = 1 + CLOSE
) -> None:
    """Print how many ratios are between ``low`` and ``high``."""
    close = [sum(low <= ratio <= high for ratio in of) / len(of) for of in zip(*every, strict=True)]
    print(f"| **{name}** | | | | {' | '.join(f'{share:.0%}' for share in close)} |")


if __name__ == "__main__":
    main()
