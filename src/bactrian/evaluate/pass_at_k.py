"""The unbiased estimator of pass@k (Chen et al. 2021, section 2.1), with intervals over problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from bactrian.stats.bootstrap import resample
from bactrian.stats.proportion import Proportion


@dataclass(frozen=True, slots=True)
class PassAtK:
    """The mean over problems of the chance that one of ``k`` samples passes."""

    k: int
    value: float
    low: float
    high: float
    problems: int


def estimate_pass(samples: int, passed: int, k: int) -> float:
    """Return the chance that at least one of ``k`` samples, drawn from ``samples`` of which ``passed`` pass, passes.

    Raises:
        ValueError: there are fewer than ``k`` samples.
    """
    if not 0 <= passed <= samples or not 1 <= k <= samples:
        raise ValueError(f"pass@{k} cannot be estimated from {samples} samples of which {passed} pass")
    if samples - passed < k:
        return 1.0
    return 1.0 - prod(1.0 - k / number for number in range(samples - passed + 1, samples + 1))


def summarize_pass(counts: Sequence[tuple[int, int]], k: int) -> PassAtK | None:
    """Return pass@k of problems, each with its numbers of samples and of passing ones.

    The 95 % interval is a percentile bootstrap over problems. Where all problems have the same value, resampling says
    nothing, and the interval is Wilson's. None if a problem has fewer than ``k`` samples, or there is none.
    """
    if not counts or any(samples < k for samples, _ in counts):
        return None
    values = [estimate_pass(samples, passed, k) for samples, passed in counts]
    mean = sum(values) / len(values)
    interval = resample([(value, 1.0) for value in values], ("value", "one")).interval("value", "one")
    if interval is None or min(values) == max(values):
        interval = Proportion(round(mean * len(values)), len(values)).interval
    return PassAtK(k, mean, *interval, len(values))
