"""Job kinds: questions and translations, role-plays (paper, section 3), societies, and those of other packages."""

from __future__ import annotations

import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from dataclasses import replace
from functools import cached_property, partial, reduce
from pathlib import Path
from time import perf_counter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

from bactrian.errors import BadReply, InputError, ModelError
from bactrian.files.plugins import load_plugin
from bactrian.models.model import Request, derive_sampling, get_traits
from bactrian.models.open import find_traits
from bactrian.protocol.markers import DONE, read_instruction, read_solution
from bactrian.protocol.pack import Pack, load_pack
from bactrian.recipes.parameters import apply_parameters
from bactrian.recipes.schema import (
    JOBS,
    Answer,
    Axis,
    Recipe,
    RolePlay,
    SocietyJob,
    ToolsSpec,
    Translate,
    to_critic_settings,
)
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.run import Progress
from bactrian.records.session import SOURCE, Ending, Provenance, Role, Session, Task
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import CriticSettings, Message, Sampling, Toolkit, Turn, Usage
from bactrian.roleplay.agent import Agent
from bactrian.roleplay.alone import AnsweredInWords, ThoughtsFirst, make_first_turn
from bactrian.roleplay.chosen_endings import read_endings
from bactrian.roleplay.endings import EndpointRefused
from bactrian.roleplay.role_play import run_role_play
from bactrian.roleplay.setup import FULL_PACKS, RolePlaySetup, new_session
from bactrian.roleplay.start import OpenSession, end_as_failed, run_scene
from bactrian.roleplay.tools import DEFAULT_LIMITS
from bactrian.roleplay.turns import Scene
from bactrian.runs import jobs
from bactrian.runs.plan import Plan, find_task
from bactrian.runs.scheduler import Job
from bactrian.store import RunStore, open_store

if TYPE_CHECKING:
    from bactrian.recipes.society_file import Society, SocietyPrompts
    from bactrian.roleplay.embodied import Body

# The built-in model's window contains the question, or the original, too.
_SMALL_LONGEST = 600


def make_provenance(
    plan: Plan, context: jobs.JobContext, spec: Answer | Translate, agent: str, number: int, *prompts: str
) -> Provenance:
    """Return the provenance of the session of job ``number``, all of whose answers ``agent`` gives."""
    model = context.models["assistant"]
    longest: int | None = spec.max_tokens  # None for the samples of an evaluation
    if get_traits(model).small:
        longest = min(longest or _SMALL_LONGEST, _SMALL_LONGEST)
    usual = Sampling(spec.temperature, max_tokens=longest, seed=context.seeds.find_job(number))
    return Provenance(
        prompts=f"recipe {plan.recipe.name}",
        prompts_hash=hashlib.sha256("\0".join(prompts).encode()).hexdigest(),
        protocol="free",
        models={agent: model.name},
        sampling={agent: apply_parameters(usual, plan.parameters.get(agent, ()))},
    )


_QUESTION_TOKENS = 180  # with the system prompt
_ANSWER_TOKENS = 500


class AnswerJobs(jobs.JobKind[Answer]):
    """Runs jobs of one question and its answer."""

    spec = Answer
    agents = jobs.AGENTS

    async def estimate(self) -> jobs.JobCost:
        """Estimate one call per session, with a range from a third of the assumed tokens to three times as many."""
        question, answer = _QUESTION_TOKENS, min(self.job.max_tokens or _ANSWER_TOKENS, _ANSWER_TOKENS)
        assumed = f"{question} tokens a question and {answer} an answer"
        return jobs.JobCost(
            jobs.SessionCost.guess(1, question, answer, assumed), ("assistant",), free_turns=1
        )

    async def open(self, context: jobs.JobContext) -> AnswerPlayer:
        """Return the player of the questions."""
        return AnswerPlayer(self.plan, self.job, context)


class AnswerPlayer:
    """Asks a model one question. The question is the session's first turn, the answer its second."""

    def __init__(self, plan: Plan, spec: Answer, context: jobs.JobContext) -> None:
        self._plan = plan
        self._spec = spec
        self._context = context
        self._fill = jobs.make_filler(plan)

    def _session(self, job: Job) -> Session:
        """Return the session of ``job``, whose task is the question."""
        plan, spec = self._plan, self._spec
        return Session(
            id=job.id,
            assistant=Role(spec.role),
            user=Role("User"),
            task=Task(clean_text(self._fill("question", job.values))),
            provenance=make_provenance(
                plan, self._context, spec, "assistant", job.number, spec.system, spec.question
            ),
            values=job.values,
            mark=plan.mark,
        )

    async def play(self, job: Job, store: RunStore) -> AsyncGenerator[Event]:
        """Store the question, ask the model, and store the answer."""
        session = await store.begin(self._session(job))
        if not session.turns:
            # Its cost is counted with the axis's list, of which the question is an item.
            session = replace(session, turns=(make_first_turn(session.task.original),))
            await store.add_turn(session.id, session.turns[0])
        agent = Agent(
            speaker="assistant",
            role=session.assistant,
            system=Text(self._fill("system", session.values).strip()),
            model=self._context.models["assistant"],
            sampling=session.provenance.sampling["assistant"],
        )
        rules = (EndpointRefused(), AnsweredInWords())
        scene = Scene(session, {"assistant": agent}, ThoughtsFirst(), rules)
        async with aclosing(run_scene(scene, store)) as events:
            async for event in events:
                yield event


class QuestionPlayer(ABC):
    """Plays sessions whose turns are answers to separate questions, as a translation and a verdict are."""

    @abstractmethod
    async def begin(self, job: Job, store: RunStore) -> tuple[Session, AsyncGenerator[Turn], Ending]:
        """Return the session of ``job`` as it is stored, the turns that it does not have yet, and its ending."""

    async def play(self, job: Job, store: RunStore) -> AsyncGenerator[Event]:
        """Store the turns that are missing one after another, then the ending.

        A model failure ends the session as ``failed``; an endpoint fault leaves it open.
        """
        session, turns, ending = await self.begin(job, store)
        yield Started(session)
        used = session.usage
        try:
            async with aclosing(turns):
                async for turn in turns:
                    used += turn.usage
                    await store.add_turn(session.id, turn)
                    yield Spoke(turn)
        except ModelError as error:
            # What was used is the preparation of a session without turns: its own turns would count twice.
            yield await end_as_failed(replace(session, preparation=used, turns=()), error, store)
            return
        await store.end(session.id, ending, used)
        yield Ended(ending)


# Runs jobs that translate a conversation of another run (the paper's translated AI Society).


_BOLD = r"(?:\*\*|__)"
_KEPT = re.compile(
    rf"(```.*?(?:```|\Z)|~~~.*?(?:~~~|\Z)"
    rf"|(?:^[ \t>#]*)?(?:{_BOLD}|\b)(?:Instruction|Solution|Input){_BOLD}?:{_BOLD}?"
    rf"(?:[ \t]*(?:None|N/A)\.?[ \t]*$)?"
    rf"|{_BOLD}?Next request\.?{_BOLD}?|{DONE})",
    re.MULTILINE | re.DOTALL,
)
"""Matches text that is not translated: the protocol's markers and fenced code."""
_TRANSLATED = 1.5
"""Tokens of a translation for each one of the original, as most languages need more of them than English."""


def list_pieces(turn: Turn) -> list[tuple[int, str]]:
    """Return the pieces of a turn that are translated, each with its position among all."""
    pieces = enumerate(_KEPT.split(turn.text))
    return [(number, piece) for number, piece in pieces if number % 2 == 0 and any(map(str.isalpha, piece))]


def find_source(spec: Translate) -> Path:
    """Return the path of the run to translate. Raises InputError if it is not given."""
    if not spec.source:
        raise InputError(
            "There is no run to translate.", option="translate.source", next="Name it: translate.source=RUN"
        )
    return Path(spec.source).expanduser()


class TranslateJobs(jobs.JobKind[Translate]):
    """Runs jobs that translate one conversation into one language."""

    spec = Translate
    agents = jobs.AGENTS

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        """Check that a run to translate is given."""
        find_source(cast("Translate", recipe.job))

    def list_inputs(self) -> Sequence[Path]:
        """Return the run to translate."""
        return (find_source(self.job),)

    async def read_grid(self) -> jobs.Grid:
        """Return the grid of languages and sessions to translate."""
        sessions = tuple(session.id for session in await self._list_originals())
        if not sessions:
            raise InputError(
                "The run has no session that has ended.",
                where=str(find_source(self.job)),
                next="Finish it first.",
            )
        languages = self.plan.recipe.axes[0].items or ()
        pairs = ((language, session) for language in languages for session in sessions)
        numbers = {name_translation(*pair): number for number, pair in enumerate(pairs)}
        source = Axis.model_construct(name="source", count=len(sessions), given=sessions)
        return jobs.Grid((*self.plan.recipe.axes, source), numbers.get)

    async def estimate(self) -> jobs.JobCost:
        """Count the pieces of the originals that are translated, each a call with the translator's prompt."""
        originals = jobs.choose_counted(await self._list_originals())
        system = jobs.make_filler(self.plan)(
            "system", dict.fromkeys(("language", "language_name"), "language")
        )
        calls = prompt = written = 0
        async with open_store(find_source(self.job), read_only=True) as store:
            for original in originals:
                session = await store.session(original.id)
                pieces = (
                    [piece for turn in session.turns for _, piece in list_pieces(turn)] if session else []
                )
                calls += len(pieces)
                prompt += sum(jobs.count_prompt(system, piece) for piece in pieces)
                written += sum(len(piece.encode()) for piece in pieces) // 4
        calls, prompt, written = (total / len(originals) for total in (calls, prompt, written))
        of = f"{calls:.0f} pieces of a conversation"
        return jobs.JobCost(jobs.SessionCost.count(calls, prompt, _TRANSLATED * written, of), ("assistant",))

    async def open(self, context: jobs.JobContext) -> TranslatePlayer:
        """Open the run to translate, and return the player that translates it."""
        source = await context.stack.enter_async_context(open_store(find_source(self.job), read_only=True))
        return TranslatePlayer(self.plan, self.job, context, source)

    async def _list_originals(self) -> list[Progress]:
        """Return the finished sessions that have turns, in stored order."""
        async with open_store(find_source(self.job), read_only=True) as store:
            states = [session async for session in store.progress() if session.turns]
        return [session for session in states if session.ending not in (None, "failed")]


def name_translation(language: str, session: str) -> str:
    """Return the id of the translation of a session."""
    return f"{language}_{session}"


class TranslatePlayer(QuestionPlayer):
    """Translates sessions turn by turn. Markers, code and the done token stay unchanged."""

    def __init__(self, plan: Plan, spec: Translate, context: jobs.JobContext, source: RunStore) -> None:
        self._plan = plan
        self._spec = spec
        self._context = context
        self._source = source
        self._fill = jobs.make_filler(plan)

    async def begin(self, job: Job, store: RunStore) -> tuple[Session, AsyncGenerator[Turn], Ending]:
        """Return the session with the original's roles and task, the turns that it lacks, and its ending."""
        original = await self._source.session(job.values["source"])
        if original is None:
            raise InputError(
                f"Session {job.values['source']} is no longer there.",
                where=str(self._source.path),
                next="Give the run as it was when the translation began.",
            )
        spec, language = self._spec, job.values["language"]
        provenance = make_provenance(self._plan, self._context, spec, "translator", job.number, spec.system)
        translation = replace(
            original,
            id=name_translation(language, original.id),
            provenance=replace(
                provenance,
                language=spec.languages.get(language, language),
                extra={key: value for key, value in original.provenance.extra.items() if key == SOURCE},
            ),
            turns=(),
            ending=None,
            preparation=Usage(),
            values={**original.values, **job.values},
        )
        session = await store.begin(translation)
        last = original.turns[-1]
        ending = original.ending or Ending("translated", last.number, last.speaker, "")
        return session, self._translate(original, session), ending

    async def _translate(self, original: Session, session: Session) -> AsyncGenerator[Turn]:
        for turn in original.turns[len(session.turns) :]:
            yield await self._translate_turn(turn, session)

    async def _translate_turn(self, turn: Turn, session: Session) -> Turn:
        begun = perf_counter()
        model = self._context.models["assistant"]
        values = {"language": session.values["language"], "language_name": session.provenance.language or ""}
        system = Message("system", Text(self._fill("system", values).strip()))
        pieces = _KEPT.split(turn.text)
        usage = Usage()
        name, fingerprint = turn.model, None
        for number, piece in list_pieces(turn):
            request = Request(
                messages=(system, Message("user", Text(piece.strip()))),
                sampling=derive_sampling(
                    session.provenance.sampling["translator"], "translator", turn.number, number
                ),
                session=session.id,
                agent="translator",
                call_index=turn.number * 100 + number,
            )
            reply = await model.reply(request)
            usage += reply.usage
            name, fingerprint = reply.model or name, reply.fingerprint
            if not reply.text.strip():
                raise BadReply(f"The translation of turn {turn.number} is empty.", where=model.name)
            before = piece[: len(piece) - len(piece.lstrip())]
            pieces[number] = before + reply.text.strip() + piece[len(piece.rstrip()) :]
        text = clean_text("".join(pieces))
        return replace(
            turn,
            text=Text(text),
            said=(read_instruction if turn.speaker == "user" else read_solution)(text),
            usage=usage,
            seconds=perf_counter() - begun,
            first_token=None,
            model=name,
            fingerprint=fingerprint,
        )


# The built-in kinds of conversations: two agents that solve a task together, and societies.


# Societies and embodied agents are loaded by the runs that have them: with the sandbox they take a tenth of the start.

_SPECIFIED = Usage(prompt=140, completion=70)
_PLANNED = Usage(prompt=200, completion=200)


class RolePlayJobs(jobs.JobKind[RolePlay]):
    """Runs jobs of one conversation of two agents."""

    spec = RolePlay
    agents = jobs.AGENTS

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        """Check that a red-team recipe has a preamble, since none is shipped."""
        job = recipe.job
        if recipe.red_team and isinstance(job, RolePlay) and not job.preamble:
            raise InputError(
                "This recipe needs a preamble, and none is shipped.",
                option="role_play.preamble",
                next="Give your own: role_play.preamble=TEXT",
            )

    @property
    def limit(self) -> int:
        """Messages at which a conversation ends at the latest."""
        return self._setup.limit

    def content(self) -> Mapping[str, Any]:
        """Return the name and hash of the prompt pack.

        Raises:
            PromptError: it uses an axis that the recipe lacks.
        """
        self._pack.check_axes(self.plan.axis_names)
        return {"prompts": {"name": self._pack.name, "hash": self._pack.hash}}

    def tools(self) -> Mapping[str, ToolsSpec]:
        """Return the tools of the agent that has tools."""
        tools = self.plan.recipe.tools
        return {} if tools is None else {tools.agent: tools}

    @property
    def embodied(self) -> tuple[str, ...]:
        """The assistant, if it acts."""
        return ("assistant",) if self.job.embodied else ()

    def list_style(self) -> jobs.ListStyle:
        """Return the preamble of the conversations, and enforce the list format if they enforce theirs."""
        return jobs.ListStyle(self.job.preamble, enforced=self.job.protocol == "enforced")

    async def estimate(self) -> jobs.JobCost:
        """Estimate a typical role-play, with the preparation of its task."""
        job, tools = self.job, self.plan.recipe.tools
        return jobs.JobCost(
            jobs.guess_role_plays(job.longest, small=self._setup.small, prompts=job.prompts),
            ("user", "assistant"),
            preparation=(*[_SPECIFIED] * job.specify, *[_PLANNED] * job.plan),
            critic=self.plan.recipe.critic,
            rounds=tools.rounds if tools else DEFAULT_LIMITS.rounds if job.embodied else 0,
            together=self._setup.small,
        )

    async def open(self, context: jobs.JobContext) -> RolePlayPlayer:
        """Return the player of the role-plays."""
        if not self.job.embodied:
            return RolePlayPlayer(self.plan, self._setup, self._pack, context)
        from bactrian.roleplay.embodied import open_body

        actions = context.tools.get("assistant")
        embodiment = partial(open_body, actions, actions.kit if actions is not None else DEFAULT_LIMITS)
        async with embodiment() as body:
            kits = {"assistant": body.kit}
        return RolePlayPlayer(self.plan, self._setup, self._pack, context, kits, embodiment)

    @cached_property
    def _pack(self) -> Pack:
        return load_pack(self.job.prompts or FULL_PACKS[self._setup.small])

    @cached_property
    def _setup(self) -> RolePlaySetup:
        """The settings that all role-plays of the run share."""
        job, critic = self.job, self.plan.recipe.critic
        temperatures = {
            "assistant": job.temperature,
            "user": job.temperature,
            "task_specifier": job.specify_temperature,
        }
        endings, paper = read_endings(job.endings)
        return RolePlaySetup(
            idea="",
            assistant=Role(""),
            user=Role(""),
            models={agent: name for agent, name in self.plan.models.items() if agent != "lister"},
            specify=job.specify,
            word_limit=job.word_limit,
            plan=job.plan,
            protocol=job.protocol,
            paper_endings=paper,
            endings=(*endings, *self.plan.endings),
            max_messages=job.max_messages,
            language=job.language,
            preamble=job.preamble,
            needs_code=job.needs_code,
            critic=critic and to_critic_settings(critic),
            temperatures={agent: value for agent, value in temperatures.items() if value is not None},
            parameters=self.plan.parameters,
        )


class RolePlayPlayer:
    """Plays the role-plays of a run."""

    def __init__(
        self,
        plan: Plan,
        setup: RolePlaySetup,
        pack: Pack,
        context: jobs.JobContext,
        kits: Mapping[str, Toolkit] = MappingProxyType({}),
        embodiment: Callable[[], AbstractAsyncContextManager[Body]] | None = None,
    ) -> None:
        """Prepare the settings. ``embodiment`` opens the body of a session's assistant; ``kits`` contains its tools."""
        self._fill = jobs.make_filler(plan)
        critic = setup.critic
        self._fill_critic = jobs.compile_templates(
            {"role": critic.role, "criteria": critic.criteria} if critic else {}, plan.axis_names
        )
        self._setup = replace(
            setup, tools={**{agent: box.kit for agent, box in context.tools.items()}, **kits}
        )
        self._context = context
        self._embodiment = embodiment
        self._pack = pack
        self._mark = plan.mark
        self._rules = setup.rules()
        self._last: tuple[int | None, CriticSettings | None, Provenance | None] = (None, None, None)
        """Seed, critic and provenance of the newest session."""

    def _session(self, job: Job) -> Session:
        """Return the session of ``job``, before its first turn."""
        fill, values, critic = self._fill, job.values, self._setup.critic
        if critic is not None:
            role, criteria = (self._fill_critic(key, values).strip() for key in ("role", "criteria"))
            critic = replace(critic, role=role, criteria=criteria)
        setup = replace(
            self._setup,
            idea=fill("idea", values),
            assistant=Role(fill("assistant", values), fill("assistant_description", values).strip()),
            user=Role(fill("user", values), fill("user_description", values).strip()),
            seed=self._context.seeds.find_job(job.number),
            critic=critic,
        )
        # Sessions with the same seed and critic share one provenance object, to save memory.
        last = self._last if self._last[:2] == (setup.seed, setup.critic) else (None, None, None)
        session = new_session(setup, self._pack, name=job.id, provenance=last[2])
        self._last = (setup.seed, setup.critic, session.provenance)
        return replace(session, values=values, mark=self._mark)

    async def play(self, job: Job, store: RunStore) -> AsyncGenerator[Event]:
        """Specify the task, then play."""
        session = self._session(job)
        if self._context.has_tasks:
            session = replace(session, task=await find_task(store, job.id, session.task.original))
        session = await store.begin(session)
        async with AsyncExitStack() as stack:
            tools = self._context.tools
            if self._embodiment is not None:
                body = await stack.enter_async_context(self._embodiment())
                body.resume(session, store.path)
                tools = {**tools, "assistant": body}
            opened = OpenSession(session, self._context.models, tools, store)
            events = await run_role_play(
                opened, self._pack, rules=self._rules, word_limit=self._setup.word_limit
            )
            async with aclosing(events):
                async for event in events:
                    yield event


# Jobs of a society: several agents, or several conversations one after another.


class SocietyJobs(jobs.JobKind[SocietyJob]):
    """Runs jobs in which a society works on one task.

    The session of the last stage has the job's id, so that a job is done when that session has ended. The sessions of
    earlier stages are named by the job's id and the stage's name.
    """

    spec = SocietyJob

    @classmethod
    def name_models(cls, recipe: Recipe, choice: jobs.ModelChoice) -> dict[str, str]:
        """Return the models of the society's agents and of the helpers in its stages."""
        from bactrian.recipes.society_file import load_society
        from bactrian.roleplay.society import name_models

        society, _ = load_society(cast("SocietyJob", recipe.job).file)
        return name_models(
            society,
            choice.default,
            task_model=choice.by_agent.get("task_specifier"),
            critic_model=choice.by_agent.get("critic"),
        )

    @property
    def limit(self) -> int | None:
        """Messages at which the last stage ends at the latest; None where neither recipe nor society says it."""
        return self.job.max_messages or self._society[0].stages[-1].max_messages

    def content(self) -> Mapping[str, Any]:
        """Return the society as JSON.

        Raises:
            PromptError: the prompt pack of its role-plays uses an axis that the recipe lacks.
        """
        if self.job.prompts is not None:
            load_pack(self.job.prompts).check_axes(self.plan.axis_names)
        return {"society": self._society[0].model_dump(mode="json", exclude_none=True)}

    def tools(self) -> Mapping[str, ToolsSpec]:
        """Return the tools of the society's agents."""
        return self._society[0].tools

    async def estimate(self) -> jobs.JobCost:
        """Estimate one typical role-play per stage."""
        speakers = tuple(agent for agent in self.plan.models if agent != "lister")
        small = all(find_traits(self.plan.models[agent]).small for agent in speakers)
        stages = self._society[0].stages
        limits = (stage.max_messages or self.job.max_messages for stage in stages)
        costs = [jobs.guess_role_plays(limit, small=small, prompts=self.job.prompts) for limit in limits]
        return jobs.JobCost(
            reduce(jobs.SessionCost.plus, costs).times(1 / len(stages)), speakers, sessions=len(stages)
        )

    async def open(self, context: jobs.JobContext) -> SocietyPlayer:
        """Return the player of the stages."""
        return SocietyPlayer(self.plan, self.job, self._society, context)

    @cached_property
    def _society(self) -> tuple[Society, SocietyPrompts]:
        from bactrian.recipes.society_file import load_society

        return load_society(self.job.file)


class SocietyPlayer:
    """Plays the stages of one job after another."""

    def __init__(
        self, plan: Plan, spec: SocietyJob, society: tuple[Society, SocietyPrompts], context: jobs.JobContext
    ) -> None:
        from bactrian.roleplay.society import ChatOptions, SocietyRun

        self._fill = jobs.make_filler(plan)
        self._models = context.models
        self._seeds = context.seeds
        names = {agent: model.name for agent, model in context.models.items() if agent != "lister"}
        endings, paper = read_endings(spec.endings)
        self._settings = SocietyRun(
            *society,
            task="",
            chat=ChatOptions(names, spec.language, None, spec.max_messages, spec.protocol),
            pack=spec.prompts,
            paper_endings=paper,
            endings=endings,
            mark=plan.mark,
            tools=context.tools,
        )

    async def play(self, job: Job, store: RunStore) -> AsyncGenerator[Event]:
        """Play the stages. Yield only the ending of the last stage, or of a stage that was interrupted."""
        settings = replace(
            self._settings,
            task=self._fill("task", job.values),
            chat=replace(self._settings.chat, seed=self._seeds.find_job(job.number)),
            name=job.id,
            values=job.values,
        )
        from bactrian.roleplay.society import play_society

        session: Session | None = None
        async for event in play_society(settings, self._models, store):
            match event:
                case Started(session):
                    yield event
                case Ended(ending) if ending.final and session is not None and session.id != job.id:
                    pass
                case _:
                    yield event


# Finds job kinds: the built-in ones, and those that installed packages register.

BUILT_IN: tuple[type[jobs.JobKind[Any]], ...] = (RolePlayJobs, AnswerJobs, TranslateJobs, SocietyJobs)


def find_job_kind(recipe: Recipe) -> type[jobs.JobKind[Any]]:
    """Return the kind of the recipe's jobs.

    Raises:
        InputError: the package that registers it is not installed.
    """
    key = recipe.job.key
    for kind in BUILT_IN:
        if kind.spec.key == key:
            return kind
    return cast("type[jobs.JobKind[Any]]", load_plugin(JOBS, key))


def choose_models(recipe: Recipe, default: str | None, by_agent: Mapping[str, str]) -> jobs.ModelChoice:
    """Choose the models of a run. The user's choice takes precedence over the recipe's, and is trusted more.

    ``default`` is the model of all agents, instead of those in the recipe; None if not given.
    """
    models = recipe.models if default is None else None
    by_recipe = models.by_agent() if models else {}
    usual = default or (models.default if models else None)
    named = frozenset(filter(None, (*by_recipe.values(), usual if default is None else None)))
    chosen = {**by_recipe, **by_agent}
    # A small model must not prepare the work of two large ones.
    follows = usual is None and {"user", "assistant"} <= chosen.keys()
    default = chosen["assistant"] if follows else usual or jobs.LOCAL
    return jobs.ModelChoice(default, chosen, named - set(by_agent.values()))


def make_plan(recipe: Recipe, choice: jobs.ModelChoice, seed: int | None = None) -> Plan:
    """Return the plan of a run: the recipe, with the model of each agent that its jobs have.

    Raises:
        InputError: a value is missing that the user has to provide.
    """
    kind = find_job_kind(recipe)
    kind.check(recipe)
    models = {"lister": choice.find("lister"), **kind.name_models(recipe, choice)}
    return Plan(recipe, models, seed, distrusted=frozenset(models.values()) - choice.trusted)
