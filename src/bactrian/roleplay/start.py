"""The life of a session: open its store, tools and models, begin or resume it, play it, and store each event.

:func:`play_one` opens what a session needs and closes it again. The jobs of a run have models and tools that are open;
their players store a session by ``RunStore.begin``, and play it by :func:`run_scene`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bactrian.errors import EmptyReply, ModelError
from bactrian.models.budget import Budget
from bactrian.models.faults import Recorder, RefusalCheck, Retry, RetryPolicy
from bactrian.models.model import Model, Observer
from bactrian.models.open import ModelOptions, load_local, open_model
from bactrian.records.events import Called, Chose, Ended, Event, Proposed, Returned, Spoke, Started
from bactrian.records.run import Call, Command
from bactrian.records.session import HUMAN, Ending, Session
from bactrian.records.text import clean_text
from bactrian.records.turn import Toolkit, Usage
from bactrian.roleplay.agent import Listener
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.tools import DEFAULT_LIMITS, Runnable, Toolbox, open_tools
from bactrian.roleplay.turns import Scene
from bactrian.store import RunStore, open_store

if TYPE_CHECKING:  # a session without tools loads no schema of recipes
    from bactrian.recipes.schema import ToolsSpec

Functions = Mapping[str, Sequence[Callable[..., object] | Runnable]]


@dataclass(frozen=True, slots=True)
class OpenSession:
    """A session that has begun, with what is open for it."""

    session: Session  # As the store returned it.
    models: Mapping[str, Model]  # One for each agent.
    tools: Mapping[str, Toolbox]  # By agent.
    store: RunStore | None = None  # Stores every event before the next request is sent; None stores nothing.
    listener: Listener | None = None  # Receives text as it is generated.


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayOrder:
    """A session to play, with everything that has to be opened for it. Its subclasses say what is played."""

    options: ModelOptions
    tools: Mapping[str, ToolsSpec] = field(default_factory=dict[str, Any])
    functions: Functions = field(default_factory=dict[str, Sequence[Callable[..., object] | Runnable]])
    """More tools by agent: Python functions and other objects."""
    run: Path | None = None  # The file that stores the session; None stores nothing.
    name: str | None = None
    """The id of the stored session to continue; None for the id that the options give."""
    embodied: bool = False
    """True if the assistant acts by Python that it writes; its tools are the actions (paper, appendix N)."""
    limits: Toolkit = DEFAULT_LIMITS  # Of an embodied assistant without tools.
    command: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options as JSON values, without keys, to store with the session."""

    @property
    def limit(self) -> int:
        """The messages to which a session that stopped at fewer is continued."""
        return 0

    def make_session(self, kits: Mapping[str, Toolkit]) -> Session:
        """Return the new session, whose agents have the tools ``kits``."""
        raise NotImplementedError

    async def play(self, opened: OpenSession) -> AsyncGenerator[Event]:
        """Return what plays the session, which has begun."""
        raise NotImplementedError


async def play_one(
    order: PlayOrder, listener: Listener | None = None, *, kept_in: RunStore | None = None
) -> AsyncGenerator[Event]:
    """Open store, tools and models, and play the session that ``order`` describes, or resume it.

    In the open run ``kept_in``, a session is new, under a free id, unless the order asks to resume one.

    Raises:
        InputError: something in the order cannot be used.
        SandboxError: an agent is embodied, and this computer has no sandbox.
        StoreError: the run is damaged, in use, or of a newer version of this program.
    """
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(order.run)) if order.run else kept_in
        # What can be refused is refused before the code of tools is loaded, which runs it.
        agents = {*order.tools, "assistant"} if order.embodied else order.tools
        draft = order.make_session(dict.fromkeys(agents, DEFAULT_LIMITS))
        if store is not None and order.name is not None:
            draft = await store.session(order.name) or draft
        sink = None if store is None else store.add_call
        models, telemetry = await stack.enter_async_context(
            open_models(draft.provenance.models, order.options, sink=sink)
        )
        tools: Mapping[str, Toolbox] = await stack.enter_async_context(
            open_tools(order.tools, order.functions, embodied=("assistant",) if order.embodied else ())
        )
        body = None
        if order.embodied:
            from bactrian.roleplay.embodied import open_body  # Other sessions start without the sandbox.

            actions = tools.get("assistant")
            body = await stack.enter_async_context(
                open_body(actions, actions.kit if actions else order.limits)
            )
            tools = {**tools, "assistant": body}
        session = order.make_session({agent: box.kit for agent, box in tools.items()})
        if store is not None:
            if order.run is None and order.name is None:
                session = replace(session, id=await find_free_id(session.id, store))
            session = await resume_shorter(await store.begin(session), order.limit, store)
            if session.ending is None:
                await store.add_command(begin_command(order.command, order.options, session.id))
        if body is not None:
            body.resume(session, None if store is None else store.path)
        if session.ending is None or not session.ending.final:
            for model in models.values():
                await load_local(model)
        events = await order.play(OpenSession(session, models, tools, store, listener))
        async with aclosing(report_endings(events, telemetry) if telemetry else events) as events:
            async for event in events:
                yield event


_MANY = 1_000  # Attempts, where only the time is to count


@asynccontextmanager
async def open_models(
    names: Mapping[str, str], access: ModelOptions, *, sink: Callable[[Call], Awaitable[None]] | None = None
) -> AsyncGenerator[tuple[Mapping[str, Model], Observer | None]]:
    """Open the model that ``names`` gives for each agent, and the telemetry; agents that share a name share a model.

    Transient faults are retried. ``sink`` receives every call, failed ones too. Humans are neither retried nor
    recorded as calls.

    Raises:
        InputError: a name stands for no model, or its file cannot be used.
    """
    models: dict[str, Model] = {}
    names = {agent: HUMAN if agent in access.taken else name for agent, name in names.items()}
    terms = access.telemetry
    async with terms.open(access.run, access.report) if terms else nullcontext() as telemetry:
        try:
            for name in dict.fromkeys(names.values()):
                model = models[name] = open_model(name, access)
                if name == HUMAN:
                    continue
                model = Recorder(model, sink) if sink else model
                model = telemetry.trace(model) if telemetry else model
                model = Budget(model, access.meter, tier=access.tier) if access.meter else model
                policy = RetryPolicy().with_max_wait(access.max_wait)
                if access.tier:  # It has no room for many requests, one after another, and then it has.
                    policy = replace(policy, attempts=_MANY)
                models[name] = Retry(RefusalCheck(model), policy, notice=access.notice)
            yield {agent: models[name] for agent, name in names.items()}, telemetry
        finally:
            for model in models.values():
                await model.close()


async def report_endings(events: AsyncGenerator[Event], telemetry: Observer) -> AsyncGenerator[Event]:
    """Yield ``events``, and tell ``telemetry`` how many turns each session has and how it ended."""
    session, turns, code = "", 0, ""
    try:
        async with aclosing(events):
            async for event in events:
                match event:
                    case Started(begun):
                        session, turns, code = begun.id, len(begun.turns), ""
                    case Spoke(turn):
                        turns = turn.number
                    case Ended(ending, error) if not (isinstance(error, ModelError) and error.endpoint_wide):
                        code = ending.code
                    case _:
                        pass
                yield event
                if isinstance(event, Ended):
                    telemetry.end_session(session, turns, code)
    finally:
        telemetry.end_session(session, turns, code)


def begin_command(command: Mapping[str, Any], options: ModelOptions, session: str) -> Command:
    """Return the record of a call of ``play``, with the prices that its cost is counted by."""
    prices = {} if options.meter is None else {"prices": options.meter.describe_prices()}
    return Command.begin("play", {**command, **prices}, session)


async def find_free_id(session_id: str, store: RunStore) -> str:
    """Return ``session_id``, or with the first number behind it that no stored session has."""
    name, number = session_id, 1
    while await store.session(name) is not None:
        number += 1
        name = f"{session_id}-{number}"
    return name


def has_stopped_at_limit(session: Session) -> bool:
    """Return True if the session ended because it may have no more messages."""
    return session.ending is not None and session.ending.code == "max_messages"


async def resume_shorter(session: Session, limit: int, store: RunStore) -> Session:
    """Return ``session`` without its ending, if it stopped at fewer messages than ``limit``."""
    if not has_stopped_at_limit(session) or len(session.turns) >= limit:
        return session
    await store.reopen(session.id)
    return replace(session, ending=None)


def run_scene(scene: Scene, store: RunStore | None = None) -> AsyncGenerator[Event]:
    """Play ``scene``; with a store, an event is on disk when it is yielded."""
    events = play_session(scene)
    return events if store is None else persist_events(events, scene.session.id, store)


async def persist_events(
    events: AsyncGenerator[Event], session: str, store: RunStore
) -> AsyncGenerator[Event]:
    """Yield ``events``, each one after it is on disk, and close them at the end.

    The next request is sent when the next event is requested, so a finished turn is durable before that.
    """
    # Undecided are proposals, decisions and tool calls of the unfinished turn; a turn includes its own.
    nothing = used = undecided = Usage()
    async with aclosing(events):
        async for event in events:
            match event:
                case Spoke(turn):
                    used, undecided = used + turn.usage, nothing
                    await store.add_turn(session, turn)
                case Started(begun):
                    used = begun.usage
                case Proposed(proposal):
                    undecided += proposal.usage
                    await store.add_proposal(session, proposal)
                case Chose(verdict):
                    undecided += verdict.usage
                    await store.add_decision(session, verdict)
                case Called(call):
                    undecided += call.usage
                    await store.add_tool_call(session, call)
                case Returned(result):
                    await store.add_tool_result(session, result)
                case Ended(_, ModelError(endpoint_wide=True)):
                    pass  # The fault is the endpoint's: the session stays open, and a later run resumes it.
                case Ended(ending, error):
                    if isinstance(error, EmptyReply):  # Its calls were answered, and no turn includes them.
                        spent = Usage(*error.spent)
                        used += spent
                        call = Call(session, ending.speaker, 0, "", 0.0, error.sample, error.what, spent)
                        await store.add_call(call)
                    await store.end(session, ending, used + undecided)
            yield event


async def end_as_failed(session: Session, error: ModelError, store: RunStore | None) -> Ended:
    """Return the ending of a session whose model failed outside the loop.

    It is stored unless the endpoint is at fault, in which case a later run resumes the session.
    """
    last = session.turns[-1].number if session.turns else 0
    ending = Ending("failed", last, "user", clean_text(error.report))
    if store is not None and not error.endpoint_wide:
        await store.end(session.id, ending, session.usage)
    return Ended(ending, error)
