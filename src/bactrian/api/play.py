"""One conversation from Python: :func:`play` waits for its end, :func:`stream` yields its events."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypedDict, Unpack, cast

from bactrian.api.bridge import run_sync
from bactrian.api.models import ModelChoice, ModelLike, build_model_options, choose_models
from bactrian.errors import BactrianError, BactrianWarning, ContextFull, InputError, ModelError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.models.registry import ModelOptions
from bactrian.play.critic.critic import CRITIC
from bactrian.play.own_endings import EndingLike, read_endings
from bactrian.play.run_session import SessionOrder, play_one
from bactrian.play.setup import WORD_LIMIT, RolePlaySetup
from bactrian.play.tools.toolbox import Runnable
from bactrian.prompts.pack import load_pack
from bactrian.recipes.schema import ToolsSpec
from bactrian.records.candidate import CRITERIA, CriticSettings, Unreadable, read_search
from bactrian.records.ending import Ending
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.session import Role, Session
from bactrian.records.turn import Turn

EXAMPLE = ("Develop a trading bot for the stock market", "Python Programmer", "Stock Trader")
"""The paper's example: idea, assistant role, user role."""
EXAMPLE_SEED = 7
"""With the built-in model, the example is then the conversation in the README."""
AGENTS = ("task_specifier", "task_planner", "user", "assistant")
TOOLS_GROUP = "bactrian.tools"
"""Entry points of other packages: a function, or a list of functions, by name."""

ToolLike = str | Callable[..., object] | Runnable
"""A Python function, ``"FILE.py"`` or ``"FILE.py:NAME,NAME"``, ``"mcp:COMMAND"``, or the name of an entry point."""
ToolsLike = Sequence[ToolLike] | Mapping[str, Sequence[ToolLike]]
"""The tools of the assistant, or those of ``user`` and ``assistant`` by name."""


@dataclass(frozen=True, slots=True)
class Critic:
    """A third agent that chooses each turn among several proposals (paper, section 3.2).

    Example:
        >>> import bactrian as bt
        >>> bt.Critic("Head Gardener", proposals=3).proposals
        3
    """

    role: str
    proposals: int = 3
    """Candidates for each turn."""
    rounds: int = 1
    """Most rounds of proposals for a turn; feedback of the critic begins another."""
    criteria: str = CRITERIA
    """What the critic looks for."""
    search: str | None = None
    """``beam:WIDTHxDEPTH``: lines that are kept alive, and turns that are looked ahead."""
    unreadable: Unreadable = "first"
    """What follows a choice that cannot be read, twice: the first proposal, or failure (``fail``)."""

    def settings(self) -> CriticSettings:
        """The critic as a session records it.

        Raises:
            InputError: a number is below 1, or the search does not fit.
        """
        if min(self.proposals, self.rounds) < 1 or self.proposals > 100:
            raise InputError("A critic has 1 to 100 proposals and at least one round.", where="critic")
        width, depth = 1, 1
        if self.search is not None:
            try:
                width, depth = read_search(self.search)
            except ValueError as error:
                message = str(error)
                raise InputError(f"{message[:1].upper()}{message[1:]}.", where="--search") from error
            if (width, depth) != (1, 1) and self.rounds > 1:
                raise InputError(
                    "A search has one round of proposals a turn.",
                    where="--critic-rounds",
                    next="Leave it out.",
                )
        return CriticSettings(
            self.role, self.proposals, self.rounds, self.criteria, self.unreadable, width, depth
        )


class PlayOptions(TypedDict, total=False):
    """What else :func:`play` and :func:`stream` take, by keyword."""

    specify: bool
    """Make the idea concrete first; True unless given."""
    word_limit: int
    """Words of the specified task; 50 unless given."""
    plan: bool
    """Divide the task into subtasks first."""
    protocol: Literal["free", "enforced"] | None
    """Enforced if the built-in model plays both, free otherwise, unless given."""
    max_messages: int | None
    """40 unless given; 12 if the built-in model plays."""
    seed: int | None
    """Of the sampling."""
    language: str | None
    """In which to answer."""
    prompts: str | None
    """Prompt pack: a name or a .toml file."""
    base_url: str | None
    """Endpoint; that of ``OPENAI_BASE_URL`` unless given."""
    window: int | None
    """Context window of the endpoint's model, in tokens."""
    timeout: float
    """Longest wait for a reply, in seconds; 600 unless given."""
    max_wait: float
    """Seconds that an endpoint may ask to wait; 600 unless given."""
    tool_rounds: int
    """Replies of a turn that may call tools; 8 unless given."""
    tool_timeout: float
    """Seconds for one call of a tool; 30 unless given."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C ended a session. ``session`` is what was said; where it is stored, the same call resumes it."""

    def __init__(self, session: Session | None) -> None:
        super().__init__("The session was interrupted; its attribute `session` is what was said.")
        self.session = session


def play(
    idea: str | None = None,
    *,
    assistant: str | Role | None = None,
    user: str | Role | None = None,
    model: ModelLike = "local",
    models: Mapping[str, ModelLike] | None = None,
    critic: Critic | str | None = None,
    tools: ToolsLike | None = None,
    endings: EndingLike | Iterable[EndingLike] = (),
    run: str | Path | None = None,
    **options: Unpack[PlayOptions],
) -> Session:
    """Let two agents solve a task together, and return the session.

    Without an idea it is the paper's example. It works in a notebook, too.

    Example:
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha.\\nNext request.", "<CAMEL_TASK_DONE>"]
        >>> session = bt.play("Choose a tea", assistant="Tea merchant", model=bt.Scripted(script), specify=False)
        >>> session.ending.code
        'task_done'

    Args:
        idea: The task in one sentence.
        assistant: Role that solves: a name, or a :class:`Role` with a description.
        user: Role that instructs.
        model: Of every agent: a name, an object with ``reply``, or a function of messages that returns a text.
        models: Of single agents: ``user``, ``assistant``, ``critic``, ``task`` (specifier and planner).
        critic: Chooses each turn among several proposals: a :class:`Critic`, or its role.
        tools: What agents may call; see :data:`ToolsLike`.
        endings: Besides the usual ones: codes, rules, functions made by :func:`ending`; ``"paper"`` for the paper's
            endings in place of the default ones.
        run: File to store the session in. The same call resumes it, or returns it if it has ended.
        options: See :class:`PlayOptions`.

    Raises:
        InputError: something given cannot be used.
        ModelError: a model fails before anything is said. A session that fails later is returned, with a warning.
        Interrupted: Ctrl-C was pressed; it is a KeyboardInterrupt, and holds what was said.
        StoreError: the run is damaged, in use, or of a newer version of this program.
    """
    events = stream(
        idea,
        assistant=assistant,
        user=user,
        model=model,
        models=models,
        critic=critic,
        tools=tools,
        endings=endings,
        run=run,
        **options,
    )
    collected = SessionCollector()
    try:
        return run_sync(collected.collect(events))
    except KeyboardInterrupt:
        raise Interrupted(collected.session) from None


async def stream(
    idea: str | None = None,
    *,
    assistant: str | Role | None = None,
    user: str | Role | None = None,
    model: ModelLike = "local",
    models: Mapping[str, ModelLike] | None = None,
    critic: Critic | str | None = None,
    tools: ToolsLike | None = None,
    endings: EndingLike | Iterable[EndingLike] = (),
    run: str | Path | None = None,
    **options: Unpack[PlayOptions],
) -> AsyncGenerator[Event]:
    """Let two agents solve a task together, and yield what happens. The arguments are those of :func:`play`.

    The next request goes out when the next event is asked for. A model that fails ends the session as ``failed``.

    Example:
        >>> import asyncio
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha.\\nNext request.", "<CAMEL_TASK_DONE>"]
        >>> async def names():
        ...     events = bt.stream("Choose a tea", model=bt.Scripted(script), specify=False)
        ...     return [type(event).__name__ async for event in events]
        >>> asyncio.run(names())
        ['Started', 'Spoke', 'Spoke', 'Spoke', 'Ended']

    Raises:
        InputError: something given cannot be used.
        StoreError: the run is damaged, in use, or of a newer version of this program.
    """
    if idea is None:
        idea = EXAMPLE[0]
        options.setdefault("seed", EXAMPLE_SEED)
    chosen = Critic(critic) if isinstance(critic, str) else critic
    agents = (*AGENTS, CRITIC) if chosen else AGENTS
    access = build_model_options(
        options.get("base_url"),
        window=options.get("window"),
        timeout=options.get("timeout", 600.0),
        max_wait=options.get("max_wait", 600.0),
    )
    order = build_session_order(
        idea,
        (read_role(assistant, EXAMPLE[1]), read_role(user, EXAMPLE[2])),
        choose_models(agents, model, models),
        access,
        options,
        critic=chosen,
        tools=tools,
        endings=endings,
        run=run,
    )
    async with aclosing(play_one(order)) as events:
        async for event in events:
            yield event


def build_session_order(
    idea: str,
    roles: tuple[Role, Role],
    models: ModelChoice,
    access: ModelOptions,
    options: PlayOptions,
    *,
    critic: Critic | None = None,
    tools: ToolsLike | None = None,
    endings: EndingLike | Iterable[EndingLike] = (),
    run: str | Path | None = None,
) -> SessionOrder:
    """Everything that :func:`play` was given, as one order. ``roles`` are those of assistant and user.

    Raises:
        InputError: something given cannot be used.
    """
    rules, paper = read_endings(endings)
    if (limit := options.get("max_messages")) is not None and limit < 1:
        raise InputError("A session has at least one message.", where="max_messages", next="Give 1 or more.")
    setup = RolePlaySetup(
        idea=idea,
        assistant=roles[0],
        user=roles[1],
        models=models.names,
        specify=options.get("specify", True),
        word_limit=options.get("word_limit", WORD_LIMIT),
        plan=options.get("plan", False),
        protocol=options.get("protocol"),
        paper_endings=paper,
        endings=rules,
        max_messages=limit,
        seed=options.get("seed"),
        language=options.get("language"),
        critic=critic.settings() if critic else None,
    )
    specs, functions = read_tools(tools or (), options)
    return SessionOrder(
        setup,
        load_pack(options.get("prompts") or setup.pack),
        replace(access, objects={**access.objects, **models.objects}),
        specs,
        Path(run) if run is not None else None,
        functions,
    )


def read_role(given: str | Role | None, default: str) -> Role:
    """A role as it was given, by name or whole."""
    return given if isinstance(given, Role) else Role(default if given is None else given)


def read_tools(
    given: ToolsLike, options: PlayOptions
) -> tuple[dict[str, ToolsSpec], dict[str, tuple[Callable[..., object] | Runnable, ...]]]:
    """Files, servers and limits by agent, and functions by agent.

    Raises:
        InputError: an agent cannot have tools, or a name stands for none.
    """
    by_agent: Mapping[str, Sequence[ToolLike]] = given if isinstance(given, Mapping) else {"assistant": given}
    specs: dict[str, ToolsSpec] = {}
    functions: dict[str, tuple[Callable[..., object] | Runnable, ...]] = {}
    for agent, tools in by_agent.items():
        if agent not in ("user", "assistant"):
            raise InputError(
                f"{agent!r} cannot have tools.", where="tools", next="Give them to user or assistant."
            )
        if not tools:
            continue
        named = [one for one in tools if isinstance(one, str)]
        specs[agent] = ToolsSpec(
            python=tuple(one for one in named if ".py" in one and not one.startswith("mcp:")),
            mcp=tuple(one.removeprefix("mcp:") for one in named if one.startswith("mcp:")),
            rounds=options.get("tool_rounds", 8),
            seconds=options.get("tool_timeout", 30.0),
        )
        own = [one for one in tools if not isinstance(one, str)]
        own += [tool for one in named if ".py" not in one and ":" not in one for tool in _installed(one)]
        functions[agent] = tuple(own)
    return specs, functions


def _installed(name: str) -> Sequence[Callable[..., object] | Runnable]:
    if name not in list_plugins(TOOLS_GROUP):
        raise InputError(
            f"There is no tool {name!r}.",
            where="tools",
            next=f"Pass a function or FILE.py, or install the package that registers it under {TOOLS_GROUP}.",
        )
    found = load_plugin(TOOLS_GROUP, name)
    if isinstance(found, (list, tuple)):
        return cast("Sequence[Callable[..., object]]", found)
    return (cast("Callable[..., object]", found),)


class SessionCollector:
    """Puts a session together from its events."""

    def __init__(self) -> None:
        self._begun: Session | None = None
        self._turns: list[Turn] = []
        self._ending: Ending | None = None
        self._error: Exception | None = None

    @property
    def session(self) -> Session | None:
        """What was said so far; None if the session has not begun."""
        if self._begun is None:
            return None
        return replace(self._begun, turns=tuple(self._turns), ending=self._ending)

    async def collect(self, events: AsyncIterator[Event]) -> Session:
        """Take all ``events``.

        Raises:
            BactrianError: the session failed before anything was said.
        """
        async for event in events:
            match event:
                case Started(session):
                    self._begun, self._turns = session, list(session.turns)
                case Spoke(turn):
                    self._turns.append(turn)
                case Ended(ending, error):
                    self._ending, self._error = ending, error
                    if not self._turns or self._begun is None:
                        raise_failure(event)
                case _:
                    pass
        session = self.session
        if session is None:
            raise BactrianError("The session did not begin.", next="Report this.")
        if self._ending is not None and self._ending.code == "failed":
            reason = str(self._error or self._ending.evidence)
            warnings.warn(f"The session failed after {len(self._turns)} turns: {reason}", BactrianWarning, 2)
        return session


def raise_failure(event: Event) -> None:
    """Raise the error of a session that a fault ended; do nothing for any other event.

    Raises:
        ModelError: a model failed, or nothing could be said for want of room.
    """
    if isinstance(event, Ended) and event.ending.code == "failed":
        raise event.error or ModelError(event.ending.evidence)
    if isinstance(event, Ended) and event.ending.code == "token_limit" and not event.ending.turn:
        raise ContextFull(
            f"Nothing could be said: {event.ending.evidence.partition(chr(10))[0]}",
            next="Use a model with a larger window, or a shorter idea.",
        )
