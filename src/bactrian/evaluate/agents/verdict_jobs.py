"""Runs jobs in which a judge scores the two solutions of one task, in both orders."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field

from bactrian.errors import InputError
from bactrian.evaluate.agents.asking import Step, ask_steps
from bactrian.evaluate.agents.scores import ScoreRequest, Style
from bactrian.generate.jobs.base import JobContext, JobCost, JobKind
from bactrian.generate.plan import Plan
from bactrian.generate.scheduler import Job
from bactrian.generate.session_cost import Estimate, SessionCost
from bactrian.language.body import strip_markers
from bactrian.models.traits import get_traits
from bactrian.play.run_session import begin_session
from bactrian.prompts.engine import load_engine_prompts, render_prompt
from bactrian.recipes.axis import Filled
from bactrian.recipes.parameters import apply_parameters
from bactrian.recipes.schema import JobSpec
from bactrian.records.events import Event
from bactrian.records.sampling import Sampling
from bactrian.records.session import Provenance, Role, Session
from bactrian.store import RunReader, Store, open_store

JUDGE = "judge"
SMALL_LONGEST = 2400
"""Characters of a solution that the built-in model is shown: two of them and its answer fill its window."""
_PROMPT_TOKENS, _ANSWER_TOKENS = 1700, 150
"""Assumed tokens of one judgement."""


class Verdicts(JobSpec):
    """Each job is a judge's comparison of two solutions of a task."""

    key: ClassVar[str] = "verdicts"

    source: Annotated[Filled, Field(description="Run of the solutions.")]
    style: Annotated[Style, Field(description="How the judge is asked.")] = "general"
    repeats: Annotated[int, Field(gt=0, strict=True, description="Judgements in each order.")] = 1
    max_tokens: Annotated[int, Field(gt=0, strict=True)] = 1024
    longest: Annotated[int | None, Field(description="Characters of a solution that are shown.")] = None


class VerdictJobs(JobKind[Verdicts]):
    """Runs jobs of a judge. The axes are the pair of solutions and the task."""

    spec = Verdicts
    agents = (JUDGE,)

    def list_inputs(self) -> Sequence[Path]:
        """Return the run of the solutions."""
        return (Path(self.job.source),)

    async def estimate(self) -> JobCost:
        """Estimate two calls for each repetition, from a third of the assumed tokens to three times as many."""
        calls = 2 * self.job.repeats
        prompt, answer = calls * _PROMPT_TOKENS, calls * _ANSWER_TOKENS
        cost = SessionCost(
            Estimate(calls, calls, calls),
            Estimate(prompt, prompt / 3, prompt * 3),
            Estimate(answer, answer / 3, answer * 3),
            Estimate(0, 0, 0),
            f"Nothing of this run has ended yet. Assumed: {calls} judgements of a pair, each with {_PROMPT_TOKENS:,} "
            f"prompt tokens and {_ANSWER_TOKENS} of answer; the range is a third to three times that.",
        )
        return JobCost(cost, (JUDGE,))

    async def open(self, context: JobContext) -> VerdictPlayer:
        """Return the player of the comparisons."""
        source = await context.stack.enter_async_context(open_store(Path(self.job.source), read_only=True))
        return VerdictPlayer(self.plan, self.job, context, source)


class VerdictPlayer:
    """Asks the judge about a pair: an odd turn shows the first solution first, an even one the second."""

    def __init__(self, plan: Plan, spec: Verdicts, context: JobContext, source: RunReader) -> None:
        self._spec = spec
        self._model = context.models[JUDGE]
        self._seeds = context.seeds
        self._source = source
        self._request = ScoreRequest.of_model(spec.style, self._model)
        self._parameters = plan.parameters.get(JUDGE, ())
        small = get_traits(self._model).small
        self._longest = spec.longest or (SMALL_LONGEST if small else None)
        self._max_tokens = min(spec.max_tokens, 200) if small else spec.max_tokens

    async def play(self, job: Job, store: Store) -> AsyncGenerator[Event]:
        """Ask for the judgements that are missing. A reply that cannot be read is kept."""
        solved = await self._source.session(job.values["task"])
        if solved is None:
            raise InputError(f"Solution {job.values['task']} is missing.", where=str(self._source.path))
        pair = split_pair(job.values["pair"])
        texts = read_solutions(solved)
        if not texts.keys() >= set(pair):
            raise InputError(f"A solution of task {solved.id} is missing.", where=str(self._source.path))
        one, other = (shorten_solution(texts[way], self._longest) for way in pair)
        session = await begin_session(self._make_session(job, solved), store)
        system = render_prompt("compare_system")
        steps = [
            Step(
                JUDGE,
                self._model,
                system,
                self._request.write(solved.task.text, *((one, other) if number % 2 == 0 else (other, one))),
                self._request.form,
                number,
            )
            for number in range(2 * self._spec.repeats)
        ]
        async with aclosing(ask_steps(session, steps, store, keeps_unreadable=True)) as events:
            async for event in events:
                yield event

    def _make_session(self, job: Job, solved: Session) -> Session:
        role = Role("Judge")
        usual = Sampling(0.0, max_tokens=self._max_tokens, seed=self._seeds.find_job(job.number))
        return Session(
            id=job.id,
            assistant=role,
            user=role,
            task=solved.task,
            provenance=Provenance(
                prompts="evaluation",
                prompts_hash=load_engine_prompts().hash,
                protocol="free" if self._request.form is None else "enforced",
                models={JUDGE: self._model.name},
                sampling={JUDGE: apply_parameters(usual, self._parameters)},
                cast={JUDGE: role},
                engine_hash=load_engine_prompts().hash,
            ),
            values={**solved.values, **job.values},
            mark=solved.mark,
        )


def split_pair(pair: str) -> tuple[str, str]:
    """Return the two ways of an item of the axis ``pair``."""
    first, _, second = pair.partition(" | ")
    return first, second


def join_pair(first: str, second: str) -> str:
    """Return two ways as an item of the axis ``pair``."""
    return f"{first} | {second}"


def read_solutions(session: Session) -> dict[str, str]:
    """Return the solutions of a task by way, without the words of the protocol, which would tell whose they are."""
    return {turn.speaker: strip_markers(turn.text) for turn in session.turns}


def shorten_solution(text: str, longest: int | None) -> str:
    """Return at most ``longest`` characters of a solution, with a note instead of the rest."""
    if longest is None or len(text) <= longest:
        return text
    return f"{text[:longest]}\n{render_prompt('compare_cut')}"
