"""``python -m benchmarks.behaviours``: how right the detectors are, on labelled cases, and how fast."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from random import Random
from typing import get_args

from rich.console import Console
from rich.table import Table

from bactrian.analyze.behaviours.catalogue import find
from bactrian.records.finding import Behaviour
from bactrian.records.share import Share
from benchmarks.labelled import Case, Split, read_cases

LABELLED: tuple[Behaviour, ...] = ("role_flip", "repeats_instruction", "flake_reply", "infinite_loop")
"""The behaviours with a labelled set: the four of the paper."""
RESAMPLES = 2000


def judged(behaviour: Behaviour, cases: Sequence[Case]) -> list[tuple[bool, bool]]:
    """For each case, what a person said and what the detector says."""
    return [
        (case.label, any(found.turn == case.turn for found in find(case.session, [behaviour])))
        for case in cases
    ]


def f1(pairs: Sequence[tuple[bool, bool]]) -> float:
    """The harmonic mean of precision and recall."""
    right = sum(label and said for label, said in pairs)
    wrong = sum(label is not said for label, said in pairs)
    return 2 * right / (2 * right + wrong) if right else 0.0


def bootstrap(pairs: Sequence[tuple[bool, bool]], seed: int = 1) -> tuple[float, float]:
    """The 95 % interval of :func:`f1`, by drawing the cases anew."""
    draw = Random(seed)
    scores = sorted(f1(draw.choices(pairs, k=len(pairs))) for _ in range(RESAMPLES))
    return scores[round(0.025 * RESAMPLES)], scores[round(0.975 * RESAMPLES) - 1]


def main() -> None:
    """Print the table; with ``tune``, also the cases of that half that are judged wrongly."""
    table = Table("behaviour", "half", "cases (+/-)", "precision", "recall", "F1")
    for behaviour in LABELLED:
        for half in get_args(Split):
            cases = [case for case in read_cases(behaviour) if case.split == half]
            pairs = judged(behaviour, cases)
            table.add_row(behaviour, half, *_figures(pairs))
            if half in sys.argv[1:]:
                for case, (label, said) in zip(cases, pairs, strict=True):
                    if label is not said:
                        print(f"{case.id} {'missed' if label else 'false alarm'}: {case.note}")
    Console().print(table)


def _figures(pairs: Sequence[tuple[bool, bool]]) -> list[str]:
    right = sum(label and said for label, said in pairs)
    found = sum(said for _, said in pairs)
    there = sum(label for label, _ in pairs)
    return [
        f"{there}/{len(pairs) - there}",
        _share(Share(right, found).rate, Share(right, found).interval),
        _share(Share(right, there).rate, Share(right, there).interval),
        _share(f1(pairs), bootstrap(pairs)),
    ]


def _share(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.2f} ({interval[0]:.2f}–{interval[1]:.2f})"


if __name__ == "__main__":
    main()
