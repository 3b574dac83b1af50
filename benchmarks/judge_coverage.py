"""How often the 95 % intervals of ``bactrian evaluate agents`` hold the truth: ``python -m benchmarks.judge_coverage``.

Each study has 100 tasks with effects of their own and a judge that leans to the first seat. The truth is the mean of
200,000 tasks of the same world.
"""

from __future__ import annotations

import sys
from collections import Counter
from math import exp
from random import Random

from bactrian.evaluate.agents.comparison import compare_pair
from bactrian.evaluate.agents.judged import JudgedTask, Judgement

STUDIES, TASKS, RESAMPLES = 1000, 100, 300
WORLDS = {"coin": (0.0, 0.0, 0.0), "quality": (0.5, 1.2, 0.0), "first seat": (0.3, 1.2, 0.8)}
"""Mean effect of the first solution, its standard deviation over tasks, and the leaning to the first seat."""


def judge_task(number: int, world: tuple[float, float, float], draw: Random) -> JudgedTask:
    """Return a task with one judgement in each order."""
    mean, spread, seat = world
    effect = draw.gauss(mean, spread)
    judgements: list[Judgement] = []
    for swapped in (False, True):
        wins = draw.random() < 1 / (1 + exp(-(effect + (-seat if swapped else seat))))
        judgements.append(Judgement(swapped, (9.0, 2.0) if wins else (2.0, 9.0)))
    return JudgedTask(str(number), str(number), tuple(judgements), (5, 5))


def main(studies: int) -> None:
    """Print the coverage of each share in each world."""
    for name, world in WORLDS.items():
        draw = Random(1)
        whole = Counter(judge_task(n, world, draw).outcome for n in range(200_000))
        truth = {outcome: count / 200_000 for outcome, count in whole.items()}
        covered: Counter[str] = Counter()
        for _ in range(studies):
            tasks = [judge_task(n, world, draw) for n in range(TASKS)]
            found = compare_pair(("one", "other"), "judge", tasks, resamples=RESAMPLES)
            for outcome in ("win", "draw", "loss"):
                share = found.shares[outcome]
                assert share.low is not None
                assert share.high is not None
                covered[outcome] += share.low <= truth[outcome] <= share.high
        shown = ", ".join(
            f"{outcome} {count / studies:.1%} (truth {truth[outcome]:.1%})"  # type: ignore[index]
            for outcome, count in covered.items()
        )
        print(f"{name:<12}{studies} studies: {shown}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STUDIES)
