"""Runs jobs that write the solutions of one task which are compared with each other."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field

from bactrian.errors import InputError
from bactrian.evaluate.agents.asking import Step, ask_steps
from bactrian.generate.jobs.base import JobContext, JobCost, JobKind, ModelChoice
from bactrian.generate.plan import Plan
from bactrian.generate.scheduler import Job
from bactrian.generate.session_cost import Estimate, SessionCost
from bactrian.language.body import read_body
from bactrian.models.traits import get_traits
from bactrian.play.run_session import begin_session
from bactrian.prompts.engine import load_engine_prompts, render_prompt
from bactrian.recipes.axis import Filled
from bactrian.recipes.parameters import apply_parameters
from bactrian.recipes.schema import JobSpec, Recipe
from bactrian.records.events import Event
from bactrian.records.sampling import Sampling
from bactrian.records.session import Provenance, Role, Session, Task
from bactrian.records.text import clean_text
from bactrian.records.usage import Usage
from bactrian.store import RunReader, Store, open_store

Way = str
"""How a solution comes about. ``extraction`` and ``against``: extracted from the conversation, or from that of another
run on the same task. ``single_shot`` and ``chain_of_thought``: one answer, plain or thought out step by step. Any other
name is that of a model that answers questions, such as ``first``, ``second`` or the name of a stage."""
TITLES: Mapping[Way, str] = {
    "extraction": "Role-play",
    "against": "Other role-play",
    "single_shot": "Single answer",
    "chain_of_thought": "Zero-shot chain of thought",
    "first": "First model",
    "second": "Second model",
}
_TOKENS: Mapping[Way, tuple[int, int]] = {"extraction": (6500, 900), "against": (6500, 900)}
"""Assumed tokens of prompt and completion; other ways have those of a single answer."""
_USUAL_TOKENS = (150, 500)
_SMALL_LONGEST = 400
_TEMPERATURE = 0.2


class Solutions(JobSpec):
    """Each job is a task or question with its solutions, one for each way."""

    key: ClassVar[str] = "solutions"

    ways: Annotated[tuple[Way, ...], Field(min_length=1, description="How the solutions come about.")]
    titles: Annotated[
        dict[Way, str] | None, Field(description="What reports call them. Default: names of their own.")
    ] = None
    weights: Annotated[
        dict[Way, str] | None, Field(description="Hashes of the weights of local models, by way.")
    ] = None
    source: Annotated[str, Field(description="Run of the conversations; empty for questions.")] = ""
    against: Annotated[str, Field(description="Another run on the same tasks.")] = ""
    seed: Annotated[int, Field(description="Seed by which the tasks were drawn.")] = 0
    drawn: Annotated[int | None, Field(description="Tasks to draw; None if they were named.")] = None
    question_set: Annotated[str, Field(description="Name of the set of questions.")] = ""
    task_label: Filled = "task"
    max_tokens: Annotated[int, Field(gt=0, strict=True)] = 2048

    def name(self, way: Way) -> str:
        """Return what a report calls ``way``."""
        return (self.titles or TITLES).get(way, way)


class SolutionJobs(JobKind[Solutions]):
    """Runs jobs that write solutions."""

    spec = Solutions

    @classmethod
    def name_models(cls, recipe: Recipe, choice: ModelChoice) -> dict[str, str]:
        """Return the model of each way."""
        return {way: choice.find(way) for way in cast("Solutions", recipe.job).ways}

    def list_inputs(self) -> Sequence[Path]:
        """Return the runs of the conversations."""
        return tuple(Path(run) for run in (self.job.source, self.job.against) if run)

    async def estimate(self) -> JobCost:
        """Estimate one call for each way, with a range from a third of the assumed tokens to three times as many."""
        sizes = [_TOKENS.get(way, _USUAL_TOKENS) for way in self.job.ways]
        prompt, completion = (sum(size) for size in zip(*sizes, strict=True))
        calls = len(sizes)
        cost = SessionCost(
            Estimate(calls, calls, calls),
            Estimate(prompt, prompt / 3, prompt * 3),
            Estimate(completion, completion / 3, completion * 3),
            Estimate(0, 0, 0),
            f"Nothing of this run has ended yet. Assumed: {prompt:,} prompt tokens and {completion:,} of answers for a "
            f"{self.job.task_label} with {calls} solutions; the range is a third to three times that.",
        )
        return JobCost(cost, self.job.ways)

    async def open(self, context: JobContext) -> SolutionPlayer:
        """Return the player of the tasks."""
        runs = {
            way: await context.stack.enter_async_context(open_store(Path(run), read_only=True))
            for way, run in (("extraction", self.job.source), ("against", self.job.against))
            if run
        }
        return SolutionPlayer(self.plan, self.job, context, runs)


class SolutionPlayer:
    """Writes the solutions of a task one after another."""

    def __init__(
        self, plan: Plan, spec: Solutions, context: JobContext, runs: Mapping[str, RunReader]
    ) -> None:
        self._plan = plan
        self._spec = spec
        self._context = context
        self._runs = runs

    async def play(self, job: Job, store: Store) -> AsyncGenerator[Event]:
        """Ask for the solutions that are missing."""
        item = job.values["task"]
        conversations = {way: await _find_conversation(run, item) for way, run in self._runs.items()}
        session = self._make_session(job, next(iter(conversations.values()), None))
        session = await begin_session(session, store)
        task = session.task.text
        steps = [self._make_step(way, task, conversations.get(way)) for way in self._spec.ways]
        async with aclosing(ask_steps(session, steps, store)) as events:
            async for event in events:
                yield event

    def _make_session(self, job: Job, conversation: Session | None) -> Session:
        spec, seed = self._spec, self._context.seeds.find_job(job.number)
        cast = {way: Role(spec.name(way)) for way in spec.ways}
        if conversation is None:
            task, values = Task(clean_text(job.values["task"])), dict[str, str]()
        else:
            task = Task(conversation.task.original, conversation.task.specified)
            values = {"assistant_role": conversation.assistant.name, "user_role": conversation.user.name}
        return Session(
            id=job.id,
            assistant=cast[spec.ways[0]],
            user=cast[spec.ways[-1]],
            task=task,
            provenance=Provenance(
                prompts="evaluation",
                prompts_hash=load_engine_prompts().hash,
                protocol="free",
                models={way: self._context.models[way].name for way in spec.ways},
                sampling={way: self._sample(way, seed) for way in spec.ways},
                cast=cast,
                engine_hash=load_engine_prompts().hash,
            ),
            preparation=Usage(),
            values={**values, **job.values},
            mark=None if conversation is None else conversation.mark,
        )

    def _sample(self, way: Way, seed: int | None) -> Sampling:
        small = get_traits(self._context.models[way]).small
        longest = min(self._spec.max_tokens, _SMALL_LONGEST) if small else self._spec.max_tokens
        usual = Sampling(_TEMPERATURE, max_tokens=longest, seed=seed)
        return apply_parameters(usual, self._plan.parameters.get(way, ()))

    def _make_step(self, way: Way, task: str, conversation: Session | None) -> Step:
        model = self._context.models[way]
        system = render_prompt("single_shot_system")
        match way:
            case "extraction" | "against":
                assert conversation is not None
                return Step(way, model, *write_extraction(conversation, small=get_traits(model).small))
            case "single_shot":
                return Step(way, model, system, render_prompt("single_shot_question", task=task))
            case "chain_of_thought":
                return Step(way, model, system, render_prompt("chain_of_thought_question", task=task))
            case _:
                return Step(way, model, system, task)


async def _find_conversation(run: RunReader, session_id: str) -> Session:
    found = await run.session(session_id)
    if found is None:
        raise InputError(f"Session {session_id} is not there.", where=str(run.path))
    return found


def write_extraction(conversation: Session, *, small: bool = False) -> tuple[str, str]:
    """Return the system prompt and the question that ask for the solution of ``conversation``.

    Turns are shown without the markers of the protocol. The built-in model is shown the assistant's turns only.
    """
    shown = [
        (turn.role, read_body(turn))
        for turn in conversation.turns
        if not small or turn.speaker == "assistant"
    ]
    texts = [
        text if small else render_prompt("extraction_turn", speaker=role, text=text)
        for role, text in shown
        if text
    ]
    values: dict[str, Any] = {"task": conversation.task.text, "conversation": "\n\n".join(texts)}
    if small:
        question = render_prompt("extraction_question_small", **values)
        return render_prompt("extraction_system_small"), question.strip()
    return render_prompt("extraction_system").strip(), render_prompt("extraction_question", **values).strip()
