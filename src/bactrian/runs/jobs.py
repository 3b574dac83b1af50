"""Defines job kinds (recipe table, agents, grid, work, cost), and which stored session belongs to which job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Generic, TypeVar, cast

from bactrian.files.template import compile_template
from bactrian.models.budget import Price, estimate_request
from bactrian.models.model import Model, Request, RunSeeds
from bactrian.protocol.pack import load_pack
from bactrian.recipes.load import AXIS, expand_row
from bactrian.recipes.schema import Axis, CriticSpec, JobSpec, Recipe, ToolsSpec
from bactrian.records.run import Progress
from bactrian.records.text import Text
from bactrian.records.turn import Message, Usage, read_search
from bactrian.roleplay.setup import FULL_PACKS, MAX_MESSAGES, SMALL_MAX_MESSAGES
from bactrian.roleplay.tools import Toolbox
from bactrian.runs.cost import Estimate
from bactrian.runs.plan import Plan
from bactrian.runs.runner import JobPlayer
from bactrian.runs.scheduler import Job, find_number, find_positions, write_positions
from bactrian.store import RunStore

SpecT = TypeVar("SpecT", bound=JobSpec)
_T = TypeVar("_T")


AGENTS = ("task_specifier", "task_planner", "user", "assistant")
"""The agents whose models are frozen in a run. The format has always named all four, including unused ones."""
LOCAL = "local"
"""The default model of all agents."""


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The models that a user names."""

    default: str
    by_agent: Mapping[str, str] = field(default_factory=dict[str, str])
    """For agents with a model of their own."""
    from_file: frozenset[str] = frozenset()
    """Names that the recipe gives and not the user."""

    @property
    def trusted(self) -> frozenset[str]:
        """Names that the user gives."""
        return frozenset((self.default, *self.by_agent.values())) - self.from_file

    def find(self, agent: str) -> str:
        """Return the model of ``agent``."""
        return self.by_agent.get(agent, self.default)


@dataclass(frozen=True, slots=True)
class JobContext:
    """The resources of an open run, for its jobs."""

    models: Mapping[str, Model]
    """By agent."""
    tools: Mapping[str, Toolbox]
    """By agent."""
    seeds: RunSeeds
    """Seeds of the requests of the run."""
    stack: AsyncExitStack
    """Closes the resources that a job kind opens, when the run ends."""
    has_tasks: bool = False
    """True if the run stores specified tasks that its jobs take over from another run."""


@dataclass(frozen=True, slots=True)
class Grid:
    """All axes of a run, and the mapping from sessions to job numbers."""

    axes: tuple[Axis, ...]
    find_number: Callable[[str], int | None]
    """Returns the number of a job by the id of its last session, or None if not found."""

    @classmethod
    def of(cls, axes: tuple[Axis, ...]) -> Grid:
        """Return a grid in which a session's id is the position of its job on each axis."""
        return cls(axes, partial(find_number, axes=axes))


@dataclass(frozen=True, slots=True)
class ListStyle:
    """The style of the questions for the lists of a recipe."""

    preamble: str = ""
    """Put before each question."""
    enforced: bool = False
    """True to constrain the reply to the format of a list."""


@dataclass(frozen=True, slots=True)
class SessionShape:
    """How large one session is, in messages and tokens."""

    messages: float
    system: float
    """Tokens of a system prompt with its opening request; of assumed shapes, only those of the task and the request."""
    instruction: float
    solution: float

    def usage(self) -> Usage:
        """Return the tokens of the whole session, and how many of them a prefix cache can serve.

        Each call sends the whole conversation again, so that prompts grow with the square of its length; all of a
        prompt but the newest message was in the same agent's prompt before.
        """
        round_ = self.instruction + self.solution
        rounds = self.messages / 2
        prompt = (
            self.messages * self.system + self.instruction * rounds + round_ * rounds * max(rounds - 1, 0)
        )
        # New to each agent are its own reply and the other's, and neither sees the last reply of its own again.
        fresh = 2 * self.system + self.instruction + 2 * round_ * max(rounds - 1, 0)
        return Usage(round(prompt), round(round_ * rounds), round(max(prompt - fresh, 0)))


# Means of 88 recorded role-plays of GPT-3.5, GPT-4 and others in CAMEL's format, with four letters to a token, and of
# 11 of the built-in model with the prompts of `bactrian reproduce`: all went to their limit.
PLAY = SessionShape(messages=19, system=56, instruction=50, solution=327)
SMALL_PLAY = SessionShape(messages=8, system=55, instruction=30, solution=161)
_LETTERS = 4.0
"""Of a token."""


_OTHER_TOKENIZER = 1.25
"""How many more tokens than one for four bytes a tokenizer may make of ordinary text."""
_COUNTED = 1000
"""Sessions that are read for a forecast; of more, every n-th."""


def count_prompt(system: str, question: str) -> int:
    """Return the tokens of a question, as a budget counts them before it is sent."""
    messages = (Message("system", Text(system)), Message("user", Text(question)))
    return estimate_request(Request(messages)).prompt


def choose_counted(items: Sequence[_T]) -> Sequence[_T]:
    """Return the items that are read for a forecast: all, or evenly chosen ones of very many."""
    return items[:: max(1, -(-len(items) // _COUNTED))]


@dataclass(frozen=True, slots=True)
class SessionCost:
    """Cost of one session: calls, prompt tokens, completion tokens, cacheable prompt tokens."""

    calls: Estimate
    prompt: Estimate
    completion: Estimate
    cached: Estimate
    basis: str

    @classmethod
    def guess(cls, calls: float, prompt: float, completion: float, assumed: str) -> SessionCost:
        """Return the cost of a session of single questions: from a third of these tokens to three times as many.

        ``assumed`` says of what size the questions and the answers are.
        """
        prompts, completions = (Estimate(tokens, tokens / 3, tokens * 3) for tokens in (prompt, completion))
        basis = f"Nothing has ended yet. Assumed: {assumed}; at most three times that."
        return cls(Estimate(calls, calls, calls), prompts, completions, Estimate(0, 0, 0), basis)

    @classmethod
    def count(cls, calls: float, prompt: float, completion: float, of: str) -> SessionCost:
        """Return the cost of a session of questions that were counted; their answers are assumed.

        ``of`` says what was counted.
        """
        guessed = cls.guess(calls, prompt, completion, "")
        basis = (
            f"Counted on disk: {prompt:,.0f} prompt tokens for {of}. Assumed: {completion:,.0f} tokens of answers, at "
            "most three times as many."
        )
        return replace(guessed, prompt=Estimate(prompt, prompt, prompt * _OTHER_TOKENIZER), basis=basis)

    @property
    def parts(self) -> tuple[Estimate, Estimate, Estimate, Estimate]:
        """All four numbers."""
        return self.calls, self.prompt, self.completion, self.cached

    def times(self, factor: float) -> SessionCost:
        """Return the cost of ``factor`` sessions."""
        return SessionCost(*(part.times(factor) for part in self.parts), basis=self.basis)

    def plus(self, other: SessionCost) -> SessionCost:
        """Return the sum of both, with the basis of the first."""
        sums = (part.plus(*more) for part, more in zip(self.parts, other.parts, strict=True))
        return SessionCost(*sums, basis=self.basis)


def guess_role_plays(max_messages: int | None, *, small: bool, prompts: str | None = None) -> SessionCost:
    """Return the assumed cost of a typical role-play with this program's prompts and common models.

    ``max_messages`` is the recipe's, ``small`` true if only the built-in model speaks. The system prompts are those of
    the pack ``prompts``, or of the usual one.
    """
    longest = float(max_messages or (SMALL_MAX_MESSAGES if small else MAX_MESSAGES))
    shape, templates = SMALL_PLAY if small else PLAY, load_pack(prompts or FULL_PACKS[small]).templates
    system = len(templates["assistant_system"] + templates["user_system"]) / 2 / _LETTERS
    messages = longest if small else min(shape.messages, longest)
    shape = replace(shape, messages=messages, system=shape.system + system)
    fewest = max(1.0, 0.4 * shape.messages)
    low = SessionShape(fewest, shape.system * 0.7, shape.instruction / 2, shape.solution / 2)
    high = SessionShape(longest, shape.system * 1.4, shape.instruction * 2, shape.solution * 2)
    three = (shape, low, high)
    usages = [size.usage() for size in three]
    return SessionCost(
        Estimate(*(size.messages for size in three)),
        Estimate(*(usage.prompt for usage in usages)),
        Estimate(*(usage.completion for usage in usages)),
        Estimate(*(usage.cached for usage in usages)),
        f"Nothing has ended yet. Assumed: {shape.messages:.0f} messages a session, as in recorded role-plays; at most "
        f"{longest:.0f}, with texts twice as long.",
    )


_VERDICT, _SMALL_VERDICT = 120, 40
"""Tokens of a critic's answer, and of the built-in model's, which a grammar holds to a line."""


@dataclass(frozen=True, slots=True)
class JobCost:
    """The expected cost of a job, before the run begins."""

    session: SessionCost
    """Estimated calls and tokens of one session."""
    speakers: tuple[str, ...]
    """The agents that make the calls of a session."""
    preparation: tuple[Usage, ...] = ()
    """Usage of each call before a session's first turn."""
    sessions: int = 1
    """Sessions per job."""
    free_turns: int = 0
    """Turns of a session that need no model call."""
    critic: CriticSpec | None = None
    """Chooses each turn among several proposals."""
    rounds: int = 0
    """Most rounds of tools in a turn of the agent that has them; each is a call."""
    together: bool = False
    """Whether all proposals of a turn certainly come from one call, as the built-in model gives them."""

    @property
    def turns(self) -> Estimate:
        """The turns of one session."""
        return self.session.calls.plus(self.free_turns)

    def apply_critic(self, session: SessionCost, *, guessed: bool) -> SessionCost:
        """Return ``session`` with the cost of tools, and of choosing each turn among several proposals.

        At best an endpoint gives all proposals of a turn in one call, and the critic is content with the first round;
        at worst each proposal is a call of its own and every round is needed. Sessions that have ended show what they
        used, but not in how many calls. Of tools, every second turn has one round, or at worst all.
        """
        if self.rounds:
            calls, *tokens = (part.times(1.5, 1, 1 + self.rounds / 2) for part in session.parts)
            tokens = tokens if guessed else session.parts[1:]
            session = SessionCost(calls, *tokens, basis=session.basis)
        critic = self.critic
        if critic is None:
            return session
        width, depth = read_search(critic.search) if critic.search else (1, 1)
        # Each level of a search after the first continues every line of the beam.
        proposals = critic.proposals * -(-(1 + width * (depth - 1)) // depth)
        factors = 2 if self.together else proposals + 1, 2, critic.rounds * (proposals + 2)
        calls = session.calls.times(*factors)
        if not guessed:
            return replace(session, calls=calls)
        completion = session.completion.times(proposals, proposals, critic.rounds * proposals)
        return SessionCost(
            calls,
            session.prompt.times(*factors),
            completion.plus(*session.calls.times(_SMALL_VERDICT if self.together else _VERDICT)),
            session.cached.times(*factors),
            f"{session.basis} A critic reads {proposals} proposals for each message, up to {critic.rounds} times.",
        )

    def mix_prices(
        self, models: Mapping[str, str], prices: Mapping[str, Price], tier: str = ""
    ) -> Price | None:
        """Return the mean price of the speakers at ``tier``, whose models are ``models``; None if one is unknown."""
        names = map(models.__getitem__, self.speakers)
        known = [prices[name].at(tier) for name in names if name in prices]
        if len(known) < len(self.speakers) or not known:
            return None
        return Price(
            fmean(price.prompt for price in known),
            fmean(price.completion for price in known),
            fmean(price.prompt if price.cached is None else price.cached for price in known),
        )


class JobKind(ABC, Generic[SpecT]):
    """The jobs of a plan, all of one kind.

    Each kind is a subclass, found by the name of its table (``spec.key``). Packages register theirs under the
    entry-point group ``bactrian.jobs``. A new kind defines its ``spec``, :meth:`estimate` and :meth:`open`.
    """

    spec: ClassVar[type[JobSpec]]
    """The kind's table in a recipe."""
    agents: ClassVar[tuple[str, ...]] = ("assistant",)
    """The agents whose models the run freezes, in addition to the critic and the lister."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @property
    def job(self) -> SpecT:
        """The table of this plan's recipe."""
        return cast("SpecT", self.plan.recipe.job)

    @classmethod
    def check(cls, recipe: Recipe) -> None:
        """Check that the recipe has the optional values that a run needs.

        Raises:
            InputError: a value is missing, and the user has to provide it.
        """

    @classmethod
    def name_models(cls, recipe: Recipe, choice: ModelChoice) -> dict[str, str]:
        """Return the model name of each agent except the lister."""
        agents = (*cls.agents, "critic") if recipe.critic else cls.agents
        return {agent: choice.find(agent) for agent in agents}

    @property
    def limit(self) -> int | None:
        """Messages at which a job's last session ends at the latest; None if such a session is never continued."""
        return None

    def content(self) -> Mapping[str, Any]:
        """Return the JSON content that the run freezes in addition to recipe, models and seed.

        Raises:
            InputError: a file that the recipe names cannot be used.
        """
        return {}

    def list_inputs(self) -> Sequence[Path]:
        """Return the files that the jobs read, which must not be the run itself."""
        return ()

    def identify(self, content: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the content of a run without what may change when files move: two runs of one plan have the same."""
        return content

    def tools(self) -> Mapping[str, ToolsSpec]:
        """Return the tools by agent."""
        return {}

    @property
    def embodied(self) -> Sequence[str]:
        """The agents that act in a folder of their own."""
        return ()

    def list_style(self) -> ListStyle:
        """Return the style of the questions for lists."""
        return ListStyle()

    async def read_grid(self) -> Grid:
        """Return the axes of the run: the recipe's, and those that this kind adds.

        Raises:
            InputError: the source of an axis cannot be used.
        """
        return Grid.of(self.plan.recipe.axes)

    @abstractmethod
    async def estimate(self) -> JobCost:
        """Estimate the cost of a job, for a forecast.

        Raises:
            InputError: the input of the jobs cannot be used.
        """

    @abstractmethod
    async def open(self, context: JobContext) -> JobPlayer:
        """Return the player of the jobs.

        Raises:
            InputError: the input of the jobs cannot be used.
        """


Filler = Callable[[str, Mapping[str, str]], str]
"""Returns the text of a template, by its name and the values of a job; an empty text if the recipe lacks it."""


def compile_templates(templates: Mapping[str, str], names: frozenset[str]) -> Filler:
    """Compile the templates of a job once, to be filled with the items of each job."""
    texts = {
        key: compile_template(text, may=names) if "{" in text else text
        for key, text in templates.items()
        if text
    }

    def fill(key: str, values: Mapping[str, str]) -> str:
        template = texts.get(key, "")
        return template if isinstance(template, str) else template.render(values)

    return fill


def make_filler(plan: Plan) -> Filler:
    """Return the templates of the plan's jobs."""
    job = plan.recipe.job
    templates = {key: str(getattr(job, key)) for key in job.templates}
    return compile_templates(templates, plan.axis_names | job.placeholders)


# Assigns sessions and values to jobs. An imported session is never a job, even if its id is that of a job.


_SUFFIX = "-made"
"""Appended to the id of a job's session as long as an imported session has that id."""


@dataclass(frozen=True, slots=True)
class JobIds:
    """The ids of a run's jobs."""

    grid: Grid
    imported: frozenset[str]
    """Ids of the sessions that were imported into the run."""

    def complete(self, job: Job) -> Job:
        """Return ``job`` with the id of its session in the run, and with the values of its row in a table of jobs."""
        values = job.values
        columns = self.grid.axes[0].columns
        if columns and set(values) == {AXIS}:  # A resumed job has the values of its session.
            values = expand_row(values[AXIS], columns)
        return replace(job, id=self._name(job.id), values=values)

    def name_job(self, number: int) -> str:
        """Return the id of the session of the job with this number."""
        axes = self.grid.axes
        return self._name(write_positions(axes, find_positions(number, axes)))

    def _name(self, job_id: str) -> str:
        while job_id in self.imported:
            job_id += _SUFFIX
        return job_id

    async def list_jobs(self, store: RunStore) -> AsyncIterator[tuple[int, Progress]]:
        """Yield every session that belongs to a job, with the number of the job."""
        async for progress in store.progress():
            job_id = progress.id
            while job_id.endswith(_SUFFIX):
                job_id = job_id.removesuffix(_SUFFIX)
            if progress.id in self.imported or self._name(job_id) != progress.id:
                continue
            number = self.grid.find_number(job_id)
            if number is not None:
                yield number, progress


def is_cut_short(session: Progress, limit: int | None) -> bool:
    """Return True if the session stopped at fewer messages than ``limit``, and so continues."""
    reached = session.turns if session.ending == "max_messages" else None
    return limit is not None and reached is not None and reached < limit
