"""``python -m benchmarks.behaviours [HALF]``: how right the detectors are, on labelled cases.

With ``tune``, the cases of that half that are judged wrongly follow. Those of the other half are nobody's to look at.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from random import Random
from typing import get_args

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.records.finding import Behaviour
from bactrian.stats.proportion import Proportion
from benchmarks.labelled import Case, Split, read_cases

LABELLED: tuple[Behaviour, ...] = ("role_flip", "repeats_instruction", "flake_reply", "infinite_loop")
"""The behaviours with a labelled set: the four of the paper."""
HEAD = """\
| behaviour | half | shown / not shown | precision | recall | F1 |
|---|---|---|---|---|---|"""
_RESAMPLES = 2000

Judged = tuple[bool, bool]
"""What a person said of a case, and what the detector says."""


def judged(behaviour: Behaviour, cases: Sequence[Case]) -> list[Judged]:
    """Ask the detector about each case."""
    return [
        (case.label, any(found.turn == case.turn for found in find_behaviours(case.session, [behaviour])))
        for case in cases
    ]


def f1(pairs: Sequence[Judged]) -> float:
    """The harmonic mean of precision and recall."""
    right = sum(label and said for label, said in pairs)
    wrong = sum(label is not said for label, said in pairs)
    return 2 * right / (2 * right + wrong) if right else 0.0


def bootstrap(pairs: Sequence[Judged]) -> tuple[float, float]:
    """The 95 % interval of :func:`f1`, by drawing the cases anew."""
    draw = Random(1)
    scores = sorted(f1(draw.choices(pairs, k=len(pairs))) for _ in range(_RESAMPLES))
    return scores[round(0.025 * _RESAMPLES)], scores[round(0.975 * _RESAMPLES) - 1]


def rows() -> Iterator[str]:
    """The table's rows: one for each behaviour and half."""
    for behaviour in LABELLED:
        cases = read_cases(behaviour)
        for half in get_args(Split):
            pairs = judged(behaviour, [case for case in cases if case.split == half])
            yield f"| `{behaviour}` | {half.replace('_', ' ')} | {' | '.join(_figures(pairs))} |"


def main() -> None:
    """Print the table as Markdown, then the wrongly judged cases of a half that is asked for."""
    print(HEAD, *rows(), sep="\n")
    for behaviour in LABELLED:
        cases = [case for case in read_cases(behaviour) if case.split in sys.argv[1:]]
        for case, (label, said) in zip(cases, judged(behaviour, cases), strict=True):
            if label is not said:
                print(f"{case.id} {'missed' if label else 'false alarm'}: {case.note}")


def _figures(pairs: Sequence[Judged]) -> list[str]:
    right = sum(label and said for label, said in pairs)
    found = sum(said for _, said in pairs)
    there = sum(label for label, _ in pairs)
    precision, recall = Proportion(right, found), Proportion(right, there)
    return [
        f"{there} / {len(pairs) - there}",
        _with_interval(precision.rate, precision.interval),
        _with_interval(recall.rate, recall.interval),
        _with_interval(f1(pairs), bootstrap(pairs)),
    ]


def _with_interval(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.2f} ({interval[0]:.2f}–{interval[1]:.2f})"


if __name__ == "__main__":
    main()
