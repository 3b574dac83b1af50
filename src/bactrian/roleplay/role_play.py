"""A role-play of two agents (paper, section 3): its task is prepared, its scene is built, and it is played."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, replace

from bactrian.errors import BadReply, InputError, ModelError
from bactrian.models.model import Model, Request, derive_sampling, get_traits
from bactrian.protocol.pack import Pack, list_packs, load_pack, render_prompt, render_session
from bactrian.records.events import Event
from bactrian.records.session import HUMAN, Session
from bactrian.records.text import Text
from bactrian.records.turn import NOTHING_KNOWN, Deliberation, Message, Sampling, Speaker, Toolkit, Usage
from bactrian.roleplay.agent import MORE_ROOM, Agent, Listener, is_all_thought, make_room_for_thoughts
from bactrian.roleplay.endings import Rule
from bactrian.roleplay.proposals import choose_turns
from bactrian.roleplay.response_formats import (
    Fresh,
    build_assistant_format,
    build_small_task_format,
    build_user_format,
)
from bactrian.roleplay.setup import SMALL_PACK, WORD_LIMIT, RolePlaySetup, new_session
from bactrian.roleplay.start import OpenSession, PlayOrder, end_as_failed, run_scene
from bactrian.roleplay.tool_turns import WithTools
from bactrian.roleplay.tools import NO_TOOLS, Toolbox
from bactrian.roleplay.turns import Scene, TurnStrategy


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOrder(PlayOrder):
    """One role-play, with everything that has to be opened for it."""

    setup: RolePlaySetup  # Without the tools.
    pack: Pack

    @property
    def limit(self) -> int:
        """Messages at which the session ends at the latest."""
        return self.setup.limit

    def make_session(self, kits: Mapping[str, Toolkit]) -> Session:
        """Return the new session, whose agents have the tools ``kits``."""
        return new_session(replace(self.setup, tools=kits), self.pack, name=self.name)

    async def play(self, opened: OpenSession) -> AsyncGenerator[Event]:
        """Prepare the task, and return what plays the session with the prompts that it began with."""
        origin, pack = opened.session.provenance, self.pack
        if origin.prompts_hash != pack.hash and origin.prompts in list_packs():
            begun_with = load_pack(origin.prompts)
            pack = begun_with if begun_with.hash == origin.prompts_hash else pack
        rules, word_limit = self.setup.rules(), self.setup.word_limit
        return await run_role_play(opened, pack, rules=rules, word_limit=word_limit)


async def run_role_play(
    opened: OpenSession, pack: Pack, *, rules: tuple[Rule, ...], word_limit: int = WORD_LIMIT
) -> AsyncGenerator[Event]:
    """Prepare the task of a session that has begun (paper, section 3.1). Return what plays it to its ending.

    The task specifier and the task planner do what they have not done. Each result is stored before the next request. A
    model that fails during the preparation ends the session as ``failed``, like any later failure.

    Args:
        opened: The session, with its models and tools.
        pack: The session's prompts.
        rules: End the session.
        word_limit: The most words of a specified task.

    Raises:
        PromptError: the pack cannot be rendered with these roles and this task.
    """
    session, models, store = opened.session, opened.models, opened.store
    try:
        for agent, part, values in (
            ("task_specifier", "specified", {"word_limit": word_limit}),
            ("task_planner", "planned", dict[str, int]()),
        ):
            if agent in session.provenance.models and getattr(session.task, part) is None:
                text, usage = await _ask(agent, session, pack, models, **values)
                task = replace(session.task, **{part: text})
                session = replace(session, task=task, preparation=session.preparation + usage)
                if store is not None:
                    await store.save_task(session)
    except ModelError as error:
        return _yield_event(await end_as_failed(session, error, store))
    known = NOTHING_KNOWN
    if store is not None and (critic := session.provenance.critic) is not None:
        known = await store.deliberation(session.id, after=critic.count_settled(len(session.turns)))
    tools, listener = opened.tools, opened.listener
    scene = build_role_play(session, pack, models, rules=rules, known=known, tools=tools, listener=listener)
    return run_scene(scene, store)


async def _yield_event(event: Event) -> AsyncGenerator[Event]:
    yield event


async def _ask(
    agent: str, session: Session, pack: Pack, models: Mapping[str, Model], **values: int
) -> tuple[str, Usage]:
    """Return the agent's answer to its prompt; an empty one is requested once more."""
    origin, model = session.provenance, models[agent]
    sampling = origin.sampling.get(agent, Sampling())
    is_small = get_traits(model).small
    small = agent == "task_specifier" and origin.protocol == "enforced" and is_small
    # Nothing is added to the short prompts of the built-in model.
    system = () if is_small else (Message("system", Text(render_prompt(f"{agent}_system"))),)
    request = Request(
        messages=(*system, Message("user", Text(render_session(agent, session, pack, **values)))),
        sampling=derive_sampling(sampling, agent, 0),
        session=session.id,
        agent=agent,
        call_index=0 if session.task.specified is None else 1,
        response_format=build_small_task_format() if small else None,
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
            else "Try another model, or specify=False to use the idea as it is.",
            sample=reply.raw,
        )
    return reply.text.strip(), usage


def build_role_play(
    session: Session,
    pack: Pack,
    models: Mapping[str, Model],
    *,
    rules: tuple[Rule, ...],
    known: Deliberation = NOTHING_KNOWN,
    tools: Mapping[str, Toolbox] = NO_TOOLS,
    listener: Listener | None = None,
) -> Scene:
    """Build the scene of the paper: an AI user instructs, an AI assistant solves (section 3.1).

    ``models`` contains one model each for ``user`` and ``assistant``, and for the ``critic`` of a session with one. The
    prompts come from ``pack``, everything else from the session's record. ``known`` contains the stored events of the
    unfinished turn of a resumed session; ``tools`` are the tools named in the record, by agent.

    Raises:
        PromptError: the pack cannot be rendered with these roles and this task.
    """
    origin = session.provenance
    enforced, plain = origin.protocol == "enforced", origin.prompts == SMALL_PACK
    agents: dict[Speaker, Agent] = {}
    strategies: dict[Speaker, TurnStrategy] = {}
    for side, role in (("user", session.user), ("assistant", session.assistant)):
        model = models[side]
        traits, toolbox = get_traits(model), None
        more: list[str] = []
        if side in origin.tools:
            toolbox = find_toolbox(session, side, tools)
            more.append(toolbox.describe())
            strategies[side] = WithTools()
        elif plain and traits.small:
            strategies[side] = Fresh()
        if enforced and traits.constrained_by == "schema" and model.name != HUMAN:
            more.insert(0, render_prompt("fields_user" if side == "user" else "fields_assistant"))
        form = None
        if enforced and side == "user":
            form = build_user_format(small=traits.small, plain=plain)
        elif enforced:  # The small grammar does not admit code.
            # Where code is wanted, a model held to it wants what the grammar forbids at every token, and each of
            # those costs a pass over the vocabulary: a quarter of the speed (docs/performance.md).
            form = build_assistant_format(small=traits.small and not origin.needs_code, plain=plain)
        agents[side] = Agent(
            speaker=side,
            role=role,
            system=Text("\n\n".join([render_session(f"{side}_system", session, pack), *filter(None, more)])),
            model=model,
            sampling=origin.sampling.get(side, Sampling()),
            opening=Text(render_session("opening_request", session, pack)) if side == "user" else None,
            form=form,
            toolbox=toolbox,
            language=origin.language,
        )
    if origin.critic is not None:
        strategies |= choose_turns(session, pack, models, origin.critic, known)
    return Scene(session, agents, rules=tuple(rules), strategies=strategies, listener=listener)


def find_toolbox(session: Session, agent: Speaker, tools: Mapping[str, Toolbox]) -> Toolbox:
    """Return the tools of ``agent``, which the session's record names.

    Raises:
        InputError: some of them are not given.
    """
    kit = session.provenance.tools[agent]
    if agent not in tools or not {tool.name for tool in kit.tools} <= tools[agent].tools.keys():
        raise InputError(
            f"The session needs the tools that it was begun with, and some of the {agent}'s are missing.",
            where=session.id,
            next="Give all of them.",
        )
    return replace(tools[agent], kit=kit)
