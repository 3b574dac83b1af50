"""Run a session from its first request to its ending: begin it, prepare its task, build its scene, play, persist.

Every way to play goes through here. :func:`run_role_play` and :func:`run_scene` take models and tools that are open,
as the jobs of a run have them; :func:`play_one` opens what one session needs and closes it again.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bactrian.errors import BadReply, EmptyReply, ModelError
from bactrian.models.budget import Budget
from bactrian.models.model import Model, Request, ResponseFormat, get_traits
from bactrian.models.open import ModelOptions, load_local, open_model
from bactrian.models.retry import Recorder, RefusalCheck, Retry, RetryPolicy
from bactrian.models.seeds import derive_sampling
from bactrian.protocol.pack import Pack, list_packs, load_pack
from bactrian.recipes.schema import ToolsSpec
from bactrian.records.events import Called, Chose, Ended, Event, Proposed, Returned, Spoke, Started
from bactrian.records.run import Call, Command
from bactrian.records.session import Ending, Session
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import NOTHING_KNOWN, Message, Sampling, Toolkit, Usage
from bactrian.roleplay.agent import (
    MORE_ROOM,
    Listener,
    build_small_task_format,
    is_all_thought,
    make_room_for_thoughts,
)
from bactrian.roleplay.endings import Rule
from bactrian.roleplay.human import Human
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.setup import (
    CompleteSetup,
    RolePlaySetup,
    build_role_play,
    list_earlier_ids,
    list_shorter_ids,
    new_session,
)
from bactrian.roleplay.tool_sources import DEFAULT_LIMITS, open_tools
from bactrian.roleplay.tools import NO_TOOLS, Runnable, Toolbox
from bactrian.roleplay.turns import Scene
from bactrian.store import RunStore, open_store

# Opens the models of a session's agents together, and closes them together.


@asynccontextmanager
async def open_models(
    names: Mapping[str, str],
    access: ModelOptions,
    *,
    sink: Callable[[Call], Awaitable[None]] | None = None,
    load: bool = False,
) -> AsyncGenerator[Mapping[str, Model]]:
    """Open the model that ``names`` gives for each agent; agents that share a name share a model.

    Transient faults are retried. ``sink`` receives every call, failed ones too. Humans are neither retried nor
    recorded as calls. With ``load``, models on this computer are loaded immediately.

    Raises:
        InputError: a name stands for no model, or its file cannot be used.
        ModelError: it cannot be loaded.
    """
    models: dict[str, Model] = {}
    try:
        for name in names.values():
            if name not in models:
                model = open_model(name, access)
                if isinstance(model, Human):
                    models[name] = model
                    continue
                if load:
                    await load_local(model)
                retry_policy = RetryPolicy().with_max_wait(access.max_wait)
                inner = Recorder(model, sink) if sink else model
                counted = Budget(inner, access.meter) if access.meter else inner
                models[name] = Retry(RefusalCheck(counted), retry_policy, notice=access.notice)
        yield {agent: models[name] for agent, name in names.items()}
    finally:
        for model in models.values():
            await model.close()


# Preparation of the task: the task specifier and the task planner (paper, section 3.1).


async def prepare(
    session: Session,
    setup: RolePlaySetup,
    pack: Pack,
    models: Mapping[str, Model],
    keep: Callable[[Session], Awaitable[None]] | None = None,
) -> Session:
    """Run the steps of preparation that ``setup`` requests and ``session`` lacks.

    ``keep`` receives the session after each step, before the next request is sent.

    Raises:
        ModelError: the model does not answer, or returns two empty replies.
    """
    if setup.specify and session.task.specified is None:
        session = await specify(session, pack, models["task_specifier"], word_limit=setup.word_limit)
        if keep is not None:
            await keep(session)
    if setup.plan and session.task.planned is None:
        session = await plan(session, pack, models["task_planner"])
        if keep is not None:
            await keep(session)
    return session


async def specify(session: Session, pack: Pack, model: Model, *, word_limit: int) -> Session:
    """Make the idea of ``session`` concrete. Return the session with its specified task.

    Raises:
        ModelError: the model does not answer, or returns two empty replies.
    """
    prompt = pack.render(
        "task_specifier",
        session.values,
        task=session.task.original,
        assistant_role=session.assistant.name,
        user_role=session.user.name,
        word_limit=word_limit,
        language=session.provenance.language or "",
    )
    enforced = session.provenance.protocol == "enforced" and get_traits(model).small
    form = build_small_task_format() if enforced else None
    text, usage = await _answer("task_specifier", prompt, session, model, 0, form)
    return replace(
        session,
        task=replace(session.task, specified=text),
        preparation=session.preparation + usage,
    )


async def plan(session: Session, pack: Pack, model: Model) -> Session:
    """Divide the task of ``session`` into subtasks. Return the session with its plan.

    Raises:
        ModelError: the model does not answer, or returns two empty replies.
    """
    prompt = pack.render(
        "task_planner",
        session.values,
        task=session.task.text,
        assistant_role=session.assistant.name,
        user_role=session.user.name,
        language=session.provenance.language or "",
    )
    call_index = 0 if session.task.specified is None else 1
    text, usage = await _answer("task_planner", prompt, session, model, call_index)
    return replace(
        session,
        task=replace(session.task, planned=text),
        preparation=session.preparation + usage,
    )


async def _answer(
    agent: str,
    prompt: str,
    session: Session,
    model: Model,
    call_index: int,
    form: ResponseFormat | None = None,
) -> tuple[str, Usage]:
    """Return the model's answer to one prompt; an empty one is requested once more."""
    sampling = session.provenance.sampling.get(agent, Sampling())
    before = f"{session.provenance.preamble}\n\n" if session.provenance.preamble else ""
    request = Request(
        messages=(Message("user", Text(before + prompt)),),
        sampling=derive_sampling(sampling, agent, 0),
        session=session.id,
        agent=agent,
        call_index=call_index,
        response_format=form,
    )
    reply = await model.reply(request)
    usage = reply.usage
    if not reply.text.strip():
        again = derive_sampling(sampling, agent, 0, retry=True)
        reply = await model.reply(replace(request, sampling=make_room_for_thoughts(again, reply)))
        usage += reply.usage
    if not reply.text.strip():
        raise BadReply(
            f"The model answered the {agent.replace('_', ' ')} with nothing, twice.",
            where=model.name,
            next=f"{MORE_ROOM}."
            if is_all_thought(reply)
            else "Try another model, or --no-specify to use the idea as it is.",
            sample=reply.raw,
        )
    return reply.text.strip(), usage


# Stores the events of a session while it is played.


_NOTHING = Usage()


async def persist_events(
    events: AsyncGenerator[Event], session: str, store: RunStore
) -> AsyncGenerator[Event]:
    """Yield ``events``, each one after it is on disk, and close them at the end.

    The next request is sent when the next event is requested, so a finished turn is durable before that.
    """
    used = _NOTHING
    undecided = _NOTHING
    """Tokens of proposals, decisions and tool calls for the unfinished turn; a finished turn includes its own."""
    async with aclosing(events):
        async for event in events:
            match event:
                case Spoke(turn):
                    used, undecided = used + turn.usage, _NOTHING
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


@dataclass(frozen=True, slots=True)
class SessionOrder:
    """One role-play, with everything that has to be opened for it."""

    complete: CompleteSetup
    options: ModelOptions
    tools: Mapping[str, ToolsSpec] = field(default_factory=dict[str, ToolsSpec])
    """Tools by agent."""
    run: Path | None = None
    """The file that stores the session; None stores nothing."""
    functions: Mapping[str, Sequence[Callable[..., object] | Runnable]] = field(
        default_factory=dict[str, Sequence[Callable[..., object] | Runnable]]
    )
    """More tools by agent: Python functions and other objects."""
    name: str | None = None
    """The id of the stored session to continue; None for the id that the options give."""
    embodied: bool = False
    """True if the assistant acts by Python that it writes; its tools are the actions (paper, appendix N)."""
    limits: Toolkit = DEFAULT_LIMITS
    """Of an embodied assistant without tools."""
    command: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options as JSON values, without keys, to store with the session."""
    before: CompleteSetup | None = None
    """What earlier versions made of the same request; None if the same."""

    @property
    def setup(self) -> RolePlaySetup:
        """The settings of the session, tools aside."""
        return self.complete.setup

    @property
    def pack(self) -> Pack:
        """Its prompts."""
        return self.complete.pack


async def play_one(
    order: SessionOrder, listener: Listener | None = None, *, kept_in: RunStore | None = None
) -> AsyncGenerator[Event]:
    """Open store, tools and models, and play the session that ``order`` describes, or resume it.

    In the open run ``kept_in``, a session is new, under a free id, unless the order asks to resume one.

    Raises:
        InputError: something in the order cannot be used.
        StoreError: the run is damaged, in use, or of a newer version of this program.
    """
    async with AsyncExitStack() as stack:
        tools = await stack.enter_async_context(open_tools(order.tools, order.functions))
        body = None
        if order.embodied:
            from bactrian.roleplay.embodied import open_body

            limits = tools["assistant"].kit if "assistant" in tools else order.limits
            body = await stack.enter_async_context(open_body(tools.get("assistant"), limits))
            tools = {**tools, "assistant": body}
        kits = {agent: box.kit for agent, box in tools.items()}
        setup, pack = replace(order.setup, tools=kits), order.pack
        session = new_session(setup, pack, name=order.name)
        store = await stack.enter_async_context(open_store(order.run)) if order.run else kept_in
        if store is not None and order.name is None and order.run is None:
            session = replace(session, id=await find_free_id(session.id, store))
        elif store is not None and order.name is None:
            session = await _find_stored(session, setup, pack, store)
            if order.before is not None and await store.session(session.id) is None:
                earlier = replace(order.before.setup, tools=kits)
                stored = new_session(earlier, order.before.pack)
                stored = await _find_stored(stored, earlier, order.before.pack, store)
                session = stored if await store.session(stored.id) is not None else session
        session = await begin_session(session, store)
        setup = replace(setup, specify="task_specifier" in session.provenance.models)
        pack = _find_pack(session, pack)
        if store is not None:
            session = await resume_shorter(session, setup.limit, store)
            if session.ending is None:
                await store.add_command(Command.begin("play", order.command, session.id))
        if body is not None:
            body.resume(session, None if store is None else store.path)
        sink = store.add_call if store is not None else None
        continues = session.ending is None or not session.ending.final
        names = (
            session.provenance.models
        )  # Those of the stored session, where an earlier version chose others.
        models = await stack.enter_async_context(open_models(names, order.options, sink=sink, load=continues))
        events = await run_role_play(
            session, setup, pack, models, store=store, tools=tools, listener=listener
        )
        async with aclosing(events):
            async for event in events:
                yield event


async def find_free_id(session_id: str, store: RunStore) -> str:
    """Return ``session_id``, or with the first number behind it that no stored session has."""
    name, number = session_id, 1
    while await store.session(name) is not None:
        number += 1
        name = f"{session_id}-{number}"
    return name


def _find_pack(session: Session, pack: Pack) -> Pack:
    """Return the prompts that a stored session began with, if they are built in; else ``pack``."""
    origin = session.provenance
    if origin.prompts_hash == pack.hash or origin.prompts not in list_packs():
        return pack
    begun_with = load_pack(origin.prompts)
    return begun_with if begun_with.hash == origin.prompts_hash else pack


async def _find_stored(session: Session, setup: RolePlaySetup, pack: Pack, store: RunStore) -> Session:
    """Return ``session`` under the id that the run stores it by; unchanged if not found."""
    session = await _find_earlier(session, list_earlier_ids(setup, pack), store)
    return await _find_shorter(session, setup, pack, store)


async def _find_earlier(session: Session, ids: Sequence[str], store: RunStore) -> Session:
    """Return ``session`` under the id that an earlier version stored it by; unchanged if not found."""
    if ids and await store.session(session.id) is None:
        for name in ids:
            if await store.session(name) is not None:
                return replace(session, id=name)
    return session


async def _find_shorter(session: Session, setup: RolePlaySetup, pack: Pack, store: RunStore) -> Session:
    """Return ``session`` under the id that it has with a smaller limit of messages; unchanged if not found."""
    if await store.session(session.id) is not None:
        return session
    endings = {one.id: one.turns or setup.limit async for one in store.progress()}
    longest = max(endings.values(), default=0)
    found = next((name for name in list_shorter_ids(setup, pack, longest) if name in endings), None)
    return session if found is None else replace(session, id=found)


def has_stopped_at_limit(session: Session) -> bool:
    """Return True if the session ended because it may have no more messages."""
    return session.ending is not None and session.ending.code == "max_messages"


async def resume_shorter(session: Session, limit: int, store: RunStore) -> Session:
    """Return ``session`` without its ending, if it stopped at fewer messages than ``limit``."""
    if not has_stopped_at_limit(session) or len(session.turns) >= limit:
        return session
    await store.reopen(session.id)
    return replace(session, ending=None)


async def begin_session(session: Session, store: RunStore | None) -> Session:
    """Store ``session``, or return the stored one; without a store, return it unchanged."""
    return session if store is None else await store.begin(session)


async def run_role_play(
    session: Session,
    setup: RolePlaySetup,
    pack: Pack,
    models: Mapping[str, Model],
    *,
    store: RunStore | None = None,
    rules: tuple[Rule, ...] | None = None,
    tools: Mapping[str, Toolbox] = NO_TOOLS,
    listener: Listener | None = None,
) -> AsyncGenerator[Event]:
    """Prepare the task of a session that has begun. Return what plays it to its ending.

    A model that fails during the preparation ends the session as ``failed``, like any later failure.

    Args:
        session: As :func:`begin_session` returned it.
        setup: The steps of preparation, and the endings.
        pack: The session's prompts.
        models: One for each agent, open.
        store: Stores every event before the next request is sent; None stores nothing.
        rules: End the session; those of ``setup`` if None.
        tools: By agent, open.
        listener: Receives text as it is generated.

    Raises:
        PromptError: the pack cannot be rendered with these roles and this task.
    """
    try:
        session = await prepare(session, setup, pack, models, store.save_task if store else None)
    except ModelError as error:
        return _yield_one(await end_as_failed(session, error, store))
    known = NOTHING_KNOWN
    if store is not None and (critic := session.provenance.critic) is not None:
        known = await store.deliberation(session.id, after=critic.count_settled(len(session.turns)))
    scene = build_role_play(
        session,
        pack,
        models,
        rules=setup.rules() if rules is None else rules,
        known=known,
        tools=tools,
        listener=listener,
    )
    return run_scene(scene, store)


def run_scene(scene: Scene, store: RunStore | None = None) -> AsyncGenerator[Event]:
    """Play ``scene``; with a store, an event is on disk when it is yielded."""
    events = play_session(scene)
    return events if store is None else persist_events(events, scene.session.id, store)


async def _yield_one(event: Event) -> AsyncGenerator[Event]:
    yield event


async def end_as_failed(session: Session, error: ModelError, store: RunStore | None) -> Ended:
    """Return the ending of a session whose model failed outside the loop.

    It is stored unless the endpoint is at fault, in which case a later run resumes the session.
    """
    last = session.turns[-1].number if session.turns else 0
    ending = Ending("failed", last, "user", clean_text(error.what))
    if store is not None and not error.endpoint_wide:
        await store.end(session.id, ending, session.usage)
    return Ended(ending, error)
