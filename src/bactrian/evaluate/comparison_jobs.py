"""The jobs of a comparison: the solutions of a task, a judge's scores in both orders, and the recipes of both."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from time import perf_counter
from typing import Annotated, Any, ClassVar, cast

from pydantic import Field

from bactrian.errors import BadReply, EmptyReply, Filtered, InputError
from bactrian.evaluate import verdicts
from bactrian.models.model import Model, Request, ResponseFormat, derive_sampling, get_traits
from bactrian.models.open import find_traits
from bactrian.protocol.fences import read_body
from bactrian.protocol.pack import load_engine_prompts, render_prompt
from bactrian.recipes.parameters import apply_parameters
from bactrian.recipes.schema import Filled, JobSpec, Recipe, build_recipe
from bactrian.records.session import Ending, Provenance, Role, Session, Task
from bactrian.records.text import Text, clean_text, to_line, write_count
from bactrian.records.turn import Message, Sampling, Turn, Usage
from bactrian.runs import jobs
from bactrian.runs.kinds import QuestionPlayer
from bactrian.runs.plan import Plan
from bactrian.runs.scheduler import Job
from bactrian.store import RunStore, open_store


@dataclass(frozen=True, slots=True)
class Step:
    """One question of a session."""

    agent: str  # The agent that answers: the speaker of the turn
    model: Model
    system: str
    question: str
    form: ResponseFormat | None = None  # The format of the answer; None for free text
    index: int = 0  # Position among the agent's answers in the session, from 0, for a replayed model
    # Returns False for an answer that cannot be read; None if every answer is one.
    is_readable: Callable[[str], bool] | None = None
    again: str = ""  # What is said to a model whose answer cannot be read


async def ask_steps(session: Session, steps: Sequence[Step]) -> AsyncGenerator[Turn]:
    """Yield the answers to the questions that the session has no turn for yet; the first question is turn 1.

    An answer that cannot be read is asked for once more; then what came, malformed or filtered too, is a turn.
    """
    for number, step in enumerate(steps[len(session.turns) :], start=len(session.turns) + 1):
        make_turn = partial(
            Turn, number=number, speaker=step.agent, role=session.provenance.cast[step.agent].name, said=None
        )
        begun, usage = perf_counter(), Usage()
        request = Request(
            messages=(Message("system", Text(step.system)), Message("user", Text(step.question))),
            sampling=derive_sampling(session.provenance.sampling[step.agent], step.agent, number),
            response_format=step.form,
            session=session.id,
            agent=step.agent,
            call_index=number - 1,
            replay_index=step.index,
        )
        try:
            reply = await step.model.reply(request)
            usage += reply.usage
            if step.is_readable is not None and not step.is_readable(reply.text):
                reply = await step.model.reply(_ask_again(request, reply.text, step))
                usage += reply.usage
            if not reply.text.strip():
                raise EmptyReply("The answer is empty.", where=step.model.name)
            turn = make_turn(
                text=reply.text,
                usage=usage,
                seconds=perf_counter() - begun,
                first_token=reply.first_token,
                model=reply.model,
                finish=reply.finish,
                lossy=reply.choices[0].lossy,
                fingerprint=reply.fingerprint,
                thought=reply.choices[0].thought,
            )
        except (BadReply, Filtered) as error:
            if step.is_readable is None or error.endpoint_wide:
                raise
            text = clean_text(error.sample.decode("utf-8", "replace")).strip() or f"({error.what})"
            turn = make_turn(
                text=Text(text),
                usage=usage + Usage(*error.spent),
                seconds=0.0,
                first_token=None,
                model=step.model.name,
                finish="other",
            )
        yield turn


def _ask_again(request: Request, reply: str, step: Step) -> Request:
    """Return the second request to a model whose reply cannot be read."""
    said = (Message("assistant", Text(reply)), Message("user", Text(step.again))) if reply.strip() else ()
    sampling = derive_sampling(request.sampling, step.agent, request.call_index + 1, 1)
    return replace(request, messages=(*request.messages, *said), sampling=sampling)


def _make_session(
    job: Job,
    task: Task,
    cast: Mapping[str, Role],
    models: Mapping[str, Model],
    sampling: Mapping[str, Sampling],
    *,
    source: Session | None,
    values: Mapping[str, str],
    protocol: str = "free",
) -> Session:
    """Return the session of a job, whose mark is that of ``source``."""
    roles, pack = list(cast.values()), load_engine_prompts().hash
    return Session(
        id=job.id,
        assistant=roles[0],
        user=roles[-1],
        task=task,
        provenance=Provenance(
            prompts="evaluation",
            prompts_hash=pack,
            protocol=protocol,
            models={agent: models[agent].name for agent in cast},
            sampling=sampling,
            cast=cast,
            engine_hash=pack,
        ),
        values={**values, **job.values},
        mark=None if source is None else source.mark,
    )


# The solutions of one task, which are compared with each other.


# How a solution comes about. `extraction` and `against`: extracted from the conversation, or from that of
# another run on the same task. `single_shot` and `chain_of_thought`: one answer, plain or thought out step by
# step. Any other name is that of a model that answers questions, such as `first`, `second` or the name of a
# stage.
Way = str
TITLES: Mapping[Way, str] = {
    "extraction": "Role-play",
    "against": "Other role-play",
    "single_shot": "Single answer",
    "chain_of_thought": "Zero-shot chain of thought",
    "first": "First model",
    "second": "Second model",
}
EXTRACTED: tuple[Way, ...] = ("extraction", "against")  # Those that an extractor writes from a conversation
_SOLUTION_TOKENS, _ANSWERED_TOKENS = 900, 500  # Assumed of an extracted solution, and of an answer
# Tokens of a reply of the built-in model, and of others in this process, which would go on to the end of their window.
_SMALL_LONGEST, _IN_PROCESS_LONGEST = 400, 2048
_TEMPERATURE = 0.2


class Solutions(JobSpec):
    """Each job is a task or question with its solutions, one for each way."""

    key: ClassVar[str] = "solutions"

    ways: Annotated[tuple[Way, ...], Field(min_length=1)]
    """How the solutions come about."""
    titles: dict[Way, str] | None = None
    """What reports call them. Default: names of their own."""
    weights: dict[Way, str] | None = None
    """Hashes of the weights of local models, by way."""
    source: str = ""
    """Run of the conversations, from the run's folder; empty for questions."""
    against: str = ""
    """Another run on the same tasks."""
    seed: int = 0
    """Seed by which the tasks were drawn."""
    drawn: int | None = None
    """Tasks to draw; None if they were named."""
    question_set: str = ""
    """Name of the set of questions."""
    task_label: Filled = "task"
    max_tokens: Annotated[int | None, Field(gt=0, strict=True)] = None
    """Longest solution. Default: as long as the model likes."""
    lengths: dict[Way, int] | None = None
    """The same by way, instead."""

    def name(self, way: Way) -> str:
        """Return what a report calls ``way``."""
        return (self.titles or TITLES).get(way, way)


class SolutionJobs(jobs.JobKind[Solutions]):
    """Runs jobs that write solutions."""

    spec = Solutions

    @classmethod
    def name_models(cls, recipe: Recipe, choice: jobs.ModelChoice) -> dict[str, str]:
        """Return the model of each way."""
        return {way: choice.find(way) for way in cast("Solutions", recipe.job).ways}

    def list_inputs(self) -> Sequence[Path]:
        """Return the runs of the conversations."""
        return tuple(_find_input(self.plan.recipe, run) for run in (self.job.source, self.job.against) if run)

    def identify(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the content with the hashes of weights instead of their paths, and with whole paths of runs."""
        weights: Mapping[str, str] = content["recipe"].get(Solutions.key, {}).get("weights") or {}
        # The lister has the name of a way's model, too.
        hashes = {str(content["models"][way]): digest for way, digest in weights.items()}
        models = {agent: hashes.get(str(name), str(name)) for agent, name in content["models"].items()}
        return {**_find_inputs(self.plan.recipe, content, Solutions.key), "models": models}

    async def estimate(self) -> jobs.JobCost:
        """Count the prompts, which are on disk; replies are assumed, and at most three times as long."""
        ways, tasks = self.job.ways, jobs.choose_counted(self.plan.recipe.axes[0].items or ())
        prompt = completion = 0
        async with AsyncExitStack() as stack:
            runs = await open_conversations(self.plan.recipe, stack)
            for item in tasks:
                conversations = {way: await _find_session(run, item) for way, run in runs.items()}
                text = next((said.task.text for said in conversations.values()), item)
                for way in ways:
                    conversation, small = conversations.get(way), find_traits(self.plan.models[way]).small
                    if way in EXTRACTED and conversation is None:  # not played yet
                        prompt += round(jobs.guess_role_plays(None, small=small).completion.value)
                        completion += min(_SOLUTION_TOKENS, self._find_longest(way))
                        continue
                    prompt += jobs.count_prompt(*write_question(way, text, conversation, small=small))
                    replies = () if conversation is None else conversation.turns
                    said = sum(len(turn.text) for turn in replies if turn.speaker == "assistant") // 4
                    written = min(_SOLUTION_TOKENS, said) if replies else _ANSWERED_TOKENS
                    completion += min(written, self._find_longest(way))
        calls, count = len(ways), max(1, len(tasks))
        of = f"a {self.job.task_label} with {write_count(calls, 'solution')}"
        return jobs.JobCost(jobs.SessionCost.count(calls, prompt / count, completion / count, of), ways)

    def _find_longest(self, way: Way) -> int:
        """Return the most tokens of a solution, as far as one is set."""
        longest = (self.job.lengths or {}).get(way) or self.job.max_tokens or _SOLUTION_TOKENS
        return min(longest, _SMALL_LONGEST) if find_traits(self.plan.models[way]).small else longest

    async def open(self, context: jobs.JobContext) -> SolutionPlayer:
        """Return the player of the tasks."""
        runs = await open_conversations(self.plan.recipe, context.stack)
        return SolutionPlayer(self.plan, self.job, context, runs)


def name_input(source: Path, folder: Path) -> str:
    """Return the path of a run by which the plan of a run in ``folder`` names it.

    It is relative for a run in this folder or up to two above, so that all can be moved together.
    """
    source, folder = source.resolve(), folder.resolve()
    near = source.parent in (folder, *folder.parents[:2])
    return Path(os.path.relpath(source, folder)).as_posix() if near else str(source)


def _find_input(recipe: Recipe, name: str) -> Path:
    return Path(recipe.folder, name).resolve()


def _find_inputs(recipe: Recipe, content: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the content of a run with the whole paths of the runs that it reads."""
    job = content["recipe"].get(key, {})
    found = {name: str(_find_input(recipe, job[name])) for name in ("source", "against") if job.get(name)}
    return {**content, "recipe": {**content["recipe"], key: {**job, **found}}}


async def open_conversations(recipe: Recipe, stack: AsyncExitStack) -> dict[Way, RunStore]:
    """Open the runs whose conversations are extracted, by way."""
    spec = cast("Solutions", recipe.job)
    return {
        way: await stack.enter_async_context(open_store(_find_input(recipe, run), read_only=True))
        for way, run in (("extraction", spec.source), ("against", spec.against))
        if run
    }


class SolutionPlayer(QuestionPlayer):
    """Writes the solutions of a task one after another."""

    def __init__(
        self, plan: Plan, spec: Solutions, context: jobs.JobContext, runs: Mapping[str, RunStore]
    ) -> None:
        self._plan = plan
        self._spec = spec
        self._context = context
        self._runs = runs

    async def begin(self, job: Job, store: RunStore) -> tuple[Session, AsyncGenerator[Turn], Ending]:
        """Return the session, the solutions that are missing, and the ending."""
        item, spec, seed = job.values["task"], self._spec, self._context.seeds.find_job(job.number)
        conversations = {way: await _find_session(run, item) for way, run in self._runs.items()}
        conversation = next(iter(conversations.values()), None)
        if conversation is None:
            task, values = Task(clean_text(item)), dict[str, str]()
        else:
            task = Task(conversation.task.original, conversation.task.specified)
            values = {"assistant_role": conversation.assistant.name, "user_role": conversation.user.name}
        models = self._context.models
        sampling: dict[str, Sampling] = {}
        for way in spec.ways:
            longest = (spec.lengths or {}).get(way) or limit_reply(
                models[way], spec.max_tokens, _SMALL_LONGEST
            )
            usual = Sampling(_TEMPERATURE)
            origin = None if conversation is None else conversations.get(way, conversation).provenance
            if origin is not None and origin.models.get("assistant") == models[way].name:
                # The model that wrote the conversation is asked as it was there.
                usual = replace(origin.sampling.get("assistant", usual), stop=())
            usual = replace(usual, max_tokens=longest, seed=seed)
            sampling[way] = apply_parameters(usual, self._plan.parameters.get(way, ()))
        cast = {way: Role(spec.name(way)) for way in spec.ways}
        session = _make_session(job, task, cast, models, sampling, source=conversation, values=values)
        session = await store.begin(session)
        steps = [self._make_step(way, session.task.text, conversations.get(way)) for way in spec.ways]
        return session, ask_steps(session, steps), Ending("answered", len(steps), steps[-1].agent, "")

    def _make_step(self, way: Way, task: str, conversation: Session | None) -> Step:
        model = self._context.models[way]
        return Step(way, model, *write_question(way, task, conversation, small=get_traits(model).small))


def write_question(way: Way, task: str, conversation: Session | None, *, small: bool) -> tuple[str, str]:
    """Return the system prompt and the question of one solution of ``task``."""
    system = render_prompt("single_shot_system")
    match way:
        case "extraction" | "against":
            assert conversation is not None
            return write_extraction(conversation, small=small)
        case "single_shot":
            return system, render_prompt("single_shot_question", task=task)
        case "chain_of_thought":
            return system, render_prompt("chain_of_thought_question", task=task)
        case _:
            return system, task


def limit_reply(model: Model, longest: int | None, small: int) -> int | None:
    """Return the most tokens of a reply: ``small`` for the built-in model, and no limit where nobody wants one."""
    traits = get_traits(model)
    if traits.small:
        return min(longest or small, small)
    return longest or (_IN_PROCESS_LONGEST if traits.in_process else None)


async def _find_session(run: RunStore, session_id: str) -> Session:
    session = await run.session(session_id)
    if session is None:
        raise InputError(
            f"Session {session_id} is not there.",
            where=str(run.path),
            next="Give a run that has it, or other ids.",
        )
    return session


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
    roles = {"user_role": conversation.user.name, "assistant_role": conversation.assistant.name}
    question = render_prompt("extraction_question", **values, **roles)
    return render_prompt("extraction_system").strip(), question.strip()


# The scores of a judge for the two solutions of one task, in both orders.


JUDGE = "judge"
# Assumed tokens of the prompt and the answer of one judgement; prompts only before the solutions exist. Those of the
# built-in model are the means of 56 judgements.
_JUDGEMENT, _SMALL_JUDGEMENT = (1700, 150), (500, 80)
_SMALL_VERDICT = 200  # Tokens of a judgement of the built-in model


class Verdicts(JobSpec):
    """Each job is a judge's comparison of two solutions of a task."""

    key: ClassVar[str] = "verdicts"

    source: Filled
    """Run of the solutions, from the run's folder."""
    style: verdicts.Style = "general"
    """How the judge is asked."""
    repeats: Annotated[int, Field(gt=0, strict=True)] = 1
    """Judgements in each order."""
    max_tokens: Annotated[int | None, Field(gt=0, strict=True)] = None
    """Longest reply. Default: as long as the judge likes."""
    cut: bool | None = None
    """Judge the pairs with a solution that is cut, and no others."""
    longest: int | None = None
    """Characters of a solution that are shown."""


class VerdictJobs(jobs.JobKind[Verdicts]):
    """Runs jobs of a judge. The axes are the pair of solutions and the task."""

    spec = Verdicts
    agents = (JUDGE,)

    def list_inputs(self) -> Sequence[Path]:
        """Return the run of the solutions."""
        return (_find_input(self.plan.recipe, self.job.source),)

    def identify(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the content with the whole path of the solutions."""
        return _find_inputs(self.plan.recipe, content, Verdicts.key)

    async def estimate(self) -> jobs.JobCost:
        """Estimate two calls for each repetition: their prompts are counted when the solutions are on disk."""
        calls = 2 * self.job.repeats
        of = f"{calls} judgements of a pair"
        prompt = await self._count_prompts()
        assumed, answer = _SMALL_JUDGEMENT if find_traits(self.plan.models[JUDGE]).small else _JUDGEMENT
        if prompt is not None:
            return jobs.JobCost(jobs.SessionCost.count(calls, calls * prompt, calls * answer, of), (JUDGE,))
        each = f"{assumed:,} prompt tokens and {answer} of answer"
        usual = jobs.SessionCost.guess(calls, calls * assumed, calls * answer, f"{of}, each with {each}")
        return jobs.JobCost(usual, (JUDGE,))

    async def _count_prompts(self) -> float | None:
        """Return the mean tokens of a prompt; None without a solved task."""
        source = _find_input(self.plan.recipe, self.job.source)
        if not await asyncio.to_thread(source.exists):
            return None
        model = self.plan.models[JUDGE]
        longest = self.job.longest or (verdicts.SMALL_LONGEST if find_traits(model).small else None)
        request = verdicts.ScoreRequest.of_traits(self.job.style, find_traits(model))
        system, counts = render_prompt("compare_system"), list[int]()
        async with open_store(source, read_only=True) as store:
            tasks = jobs.choose_counted([solved.id async for solved in store.progress()])
            for task in tasks:
                solved = await _find_session(store, task)
                texts = verdicts.read_solutions(solved)
                for pair in map(verdicts.split_pair, self.plan.recipe.axes[0].items or ()):
                    if texts.keys() >= set(pair):
                        shown = [shorten_solution(texts[way], longest) for way in pair]
                        counts.append(jobs.count_prompt(system, request.write(solved.task.text, *shown)))
        return fmean(counts) if counts else None

    async def open(self, context: jobs.JobContext) -> VerdictPlayer:
        """Return the player of the comparisons."""
        (path,) = self.list_inputs()
        source = await context.stack.enter_async_context(open_store(path, read_only=True))
        return VerdictPlayer(self.plan, self.job, context, source)


class VerdictPlayer(QuestionPlayer):
    """Asks the judge about a pair: an odd turn shows the first solution first, an even one the second.

    A reply that cannot be read twice is kept. A pair of the other kind, whole or cut, ends without a judgement.
    """

    def __init__(self, plan: Plan, spec: Verdicts, context: jobs.JobContext, source: RunStore) -> None:
        self._spec = spec
        self._context = context
        self._source = source
        model = context.models[JUDGE]
        self._request = verdicts.ScoreRequest.of_traits(spec.style, get_traits(model))
        self._parameters = plan.parameters.get(JUDGE, ())
        self._longest = spec.longest or (verdicts.SMALL_LONGEST if get_traits(model).small else None)
        self._max_tokens = limit_reply(model, spec.max_tokens, _SMALL_VERDICT)

    async def begin(self, job: Job, store: RunStore) -> tuple[Session, AsyncGenerator[Turn], Ending]:
        """Return the session, the judgements that are missing, and the ending."""
        solved = await _find_session(self._source, job.values["task"])
        pair = verdicts.split_pair(job.values["pair"])
        texts = verdicts.read_solutions(solved)
        if not texts.keys() >= set(pair):
            raise InputError(
                f"A solution of task {solved.id} is missing.",
                where=str(self._source.path),
                next="Extract the solutions again.",
            )
        shown = [shorten_solution(texts[way], self._longest) for way in pair]
        seed = self._context.seeds.find_job(job.number)
        sampling = apply_parameters(Sampling(0.0, max_tokens=self._max_tokens, seed=seed), self._parameters)
        form, models = self._request.form, self._context.models
        session = _make_session(
            job,
            solved.task,
            {JUDGE: Role("Judge")},
            models,
            {JUDGE: sampling},
            source=solved,
            values=solved.values,
            protocol="free" if form is None else "enforced",
        )
        session = await store.begin(session)
        system = render_prompt("compare_system")
        steps: list[Step] = []
        has_cut = any(verdicts.is_cut(turn) for turn in solved.turns if turn.speaker in pair)
        wanted = 2 * self._spec.repeats if has_cut == bool(self._spec.cut) else 0
        # What could not be read is asked again in both orders.
        for number in range(max(wanted, len(session.turns) + 2 if verdicts.is_unread(session) else wanted)):
            question = self._request.write(solved.task.text, *(shown if number % 2 == 0 else shown[::-1]))
            correction = self._request.write_again()
            steps.append(Step(JUDGE, models[JUDGE], system, question, form, number, _has_scores, correction))
        ending = Ending("answered", len(steps), JUDGE, "" if steps else "not judged")
        return session, _ask_judge(session, steps), ending


async def _ask_judge(session: Session, steps: Sequence[Step]) -> AsyncGenerator[Turn]:
    """Yield the judge's replies; raise BadReply at the end if those in one order cannot be read."""
    turns = [*session.turns]
    async with aclosing(ask_steps(session, steps)) as following:
        async for turn in following:
            turns.append(turn)
            yield turn
    if unread := verdicts.find_unread(turns):
        raise BadReply(f"{verdicts.UNREAD}: {to_line(unread.text)[:200]}")


def _has_scores(text: str) -> bool:
    return verdicts.read_scores(text) is not None


def shorten_solution(text: str, longest: int | None) -> str:
    """Return at most ``longest`` characters of a solution, with a note instead of the rest."""
    if longest is None or len(text) <= longest:
        return text
    return f"{text[:longest]}\n{render_prompt('compare_cut')}"


# The recipes of the two runs.


def build_solution_recipe(tasks: Sequence[str], spec: Solutions, folder: Path | None = None) -> Recipe:
    """Return the recipe that writes the solutions of ``tasks``, session ids or questions, in a run in ``folder``."""
    job = {Solutions.key: spec.model_dump(mode="json")}
    recipe = build_recipe("solutions", {"task": tasks}, job, "Solutions that are compared with each other.")
    return recipe if folder is None else recipe.with_folder(str(folder))


def build_verdict_recipe(
    solutions: Path,
    pairs: Sequence[tuple[Way, Way]],
    tasks: int,
    style: verdicts.Style,
    repeats: int,
    *,
    max_tokens: int | None = None,
    cut: bool = False,
) -> Recipe:
    """Return the recipe in which a judge compares ``pairs`` of solutions of each of so many tasks.

    Its run is beside that of the solutions. Those with a solution that is ``cut`` are compared in a run of their own.
    """
    width = max(3, len(str(tasks)))  # as a run names its sessions
    axes = {
        "pair": [verdicts.join_pair(*pair) for pair in pairs],
        "task": [f"{number:0{width}}" for number in range(1, tasks + 1)],
    }
    spec = {"source": solutions.name, "style": style, "repeats": repeats, "max_tokens": max_tokens}
    job = {Verdicts.key: {**spec, "cut": cut or None}}
    recipe = build_recipe("verdicts", axes, job, "Verdicts of a judge on pairs of solutions.")
    return recipe.with_folder(str(solutions.parent))
