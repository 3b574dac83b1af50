"""Scores solutions of programming problems: asks for samples, and estimates pass@k with intervals."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from typing import Annotated, Any, ClassVar

from pydantic import Field

from bactrian.evaluate.code_judge import KINDS, Verdict
from bactrian.evaluate.problems import Problem, SolutionSet
from bactrian.models.open import find_traits
from bactrian.protocol.pack import render_prompt
from bactrian.recipes.schema import Answer, Recipe, build_recipe
from bactrian.records.session import Session
from bactrian.runs.jobs import JobContext, JobCost
from bactrian.runs.kinds import AnswerJobs, AnswerPlayer
from bactrian.runs.scheduler import Job
from bactrian.stats.clusters import estimate_ratio

# The unbiased estimator of pass@k (Chen et al. 2021, section 2.1), with intervals over problems.


@dataclass(frozen=True, slots=True)
class PassAtK:
    """The mean over problems of the chance that one of ``k`` samples passes."""

    k: int
    value: float
    low: float | None  # None if there are too few problems for an interval
    high: float | None
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

    The 95 % interval is over problems. None if a problem has fewer than ``k`` samples, or there is none.
    """
    if not counts or any(samples < k for samples, _ in counts):
        return None
    of = estimate_ratio(((estimate_pass(*count, k), 1.0) for count in counts), "share", name="problem")
    return PassAtK(k, of.value or 0.0, of.low, of.high, of.clusters)


@dataclass(frozen=True, slots=True)
class Score:
    """The verdicts on a set of solutions, and their statistics."""

    problems: int
    samples: int
    missing: int
    kinds: dict[str, int]
    passes: tuple[PassAtK, ...]
    by_temperature: dict[str, tuple[PassAtK, ...]]
    left_out: tuple[int, ...]  # Values of k that need more samples of each problem than there are
    whole: int  # Problems of the set, of which those above are a part
    tiers: tuple[str, ...]  # The sandboxes that ran the samples
    cut: int = 0  # Replies that ended at their longest length

    def to_json(self) -> dict[str, Any]:
        """Return the score as JSON content."""

        def write(passes: Sequence[dict[str, Any]]) -> dict[str, Any]:
            return {str(figure.pop("k")): figure for figure in passes}

        content = asdict(self)
        return {
            "problems": content.pop("problems"),
            "of": content.pop("whole"),
            "pass_at": write(content.pop("passes")),
            "by_temperature": {name: write(of) for name, of in content.pop("by_temperature").items()},
            **content,
        }


_USUAL_KS = (1, 10, 100)


def compute_score(
    samples: SolutionSet, verdicts: Sequence[Verdict], ks: Sequence[int] | None, whole: int
) -> Score:
    """Return the score of ``samples``, whose verdicts come in the same order, of a set of ``whole`` problems.

    Without ``ks``, they are 1, 10 and 100 as far as there are samples.
    """
    kinds = Counter(verdict.kind for verdict in verdicts)
    groups: defaultdict[str, dict[str, list[bool]]] = defaultdict(dict)
    for solution, verdict in zip(samples.solutions, verdicts, strict=True):
        for name in dict.fromkeys(("", solution.temperature)):
            groups[name].setdefault(solution.problem.id, []).append(verdict.passed)

    def summarize(name: str) -> tuple[PassAtK, ...]:
        counts = [(len(passed), sum(passed)) for passed in groups[name].values()]
        return tuple(figure for k in ks or _USUAL_KS if (figure := summarize_pass(counts, k)) is not None)

    temperatures = sorted((name for name in groups if name), key=float)
    passes = summarize("")
    return Score(
        problems=len(groups[""]),
        samples=len(verdicts),
        missing=samples.missing,
        kinds={kind: kinds[kind] for kind in KINDS if kinds[kind]},
        passes=passes,
        by_temperature={name: summarize(name) for name in temperatures} if len(temperatures) > 1 else {},
        left_out=tuple(k for k in ks or () if k not in {figure.k for figure in passes}),
        whole=whole,
        tiers=tuple(sorted({verdict.tier for verdict in verdicts} - {""})),
        cut=samples.cut,
    )


# Runs jobs that ask a model for one solution of a programming problem.


class Completion(Answer):
    """Each job is one solution of a problem. The axes are problem, temperature and sample."""

    key: ClassVar[str] = "completion"

    max_tokens: Annotated[int | None, Field(gt=0, strict=True)] = None  # type: ignore[assignment]


class CompletionJobs(AnswerJobs):
    """Runs jobs that ask for one solution."""

    spec = Completion

    async def estimate(self) -> JobCost:
        """Estimate one call per session. Twelve programs of the built-in model had half of their 256 tokens each."""
        cost = await super().estimate()
        if not find_traits(self.plan.models["assistant"]).small:
            return cost
        return replace(cost, session=replace(cost.session, completion=cost.session.completion.times(0.5)))

    async def open(self, context: JobContext) -> AnswerPlayer:
        """Return the player of the problems."""
        return CompletionPlayer(self.plan, self.job, context)


class CompletionPlayer(AnswerPlayer):
    """Asks for one solution, at the temperature of its job."""

    def _session(self, job: Job) -> Session:
        session = super()._session(job)
        sampling = session.provenance.sampling["assistant"]
        asked = {"assistant": replace(sampling, temperature=float(job.values["temperature"]))}
        return replace(session, provenance=replace(session.provenance, sampling=asked))


def build_sample_recipe(
    name: str,
    problems: Sequence[Problem],
    temperatures: Sequence[float],
    samples: int,
    max_tokens: int | None = None,
) -> Recipe:
    """Return the recipe that asks for ``samples`` solutions of each problem at each temperature."""
    completes = all(problem.completes for problem in problems)
    template = "completion_question" if completes else "solution_question"
    axes = {
        "problem": [problem.prompt for problem in problems],
        "temperature": [f"{temperature:g}" for temperature in temperatures],
        "sample": [str(number) for number in range(1, samples + 1)],
    }
    job = {
        "role": "Programmer",
        "system": render_prompt("completion_system"),
        "question": render_prompt(template, problem="{{ problem }}").strip(),
        "max_tokens": max_tokens,
    }
    return build_recipe(name, axes, {Completion.key: job}, name)
