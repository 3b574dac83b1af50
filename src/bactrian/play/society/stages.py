"""Plays a society: its stages in sequence, each a session that is stored and resumed by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from bactrian.errors import InputError
from bactrian.language.protocol import DONE, is_done
from bactrian.models.model import Model
from bactrian.models.registry import ModelOptions
from bactrian.models.seeds import derive_stage_seed
from bactrian.play.agent import Listener
from bactrian.play.critic.critic import CRITIC
from bactrian.play.endings.own import find_code
from bactrian.play.endings.rules import Rule
from bactrian.play.human import HUMAN
from bactrian.play.open_models import open_models
from bactrian.play.run_session import (
    begin_session,
    has_stopped_at_limit,
    resume_shorter,
    run_role_play,
    run_scene,
)
from bactrian.play.setup import RolePlaySetup, new_session
from bactrian.play.society.group_chat import ChatOptions, build_group_chat, new_group_chat
from bactrian.play.tools.loading import open_tools
from bactrian.play.tools.toolbox import Toolbox
from bactrian.prompts.pack import Pack, load_pack
from bactrian.recipes.schema import to_critic_settings
from bactrian.recipes.society import Society, SocietyModels, SocietyPrompts, SocietyStage
from bactrian.records.ending import Ending
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.run import Command
from bactrian.records.session import Role, Session
from bactrian.records.turn import Solution, Turn
from bactrian.store import RunReader, Store, open_store

_T = TypeVar("_T")
_HELPERS = ("task_specifier", "task_planner", CRITIC)


@dataclass(frozen=True, slots=True)
class SocietyRun:
    """A society with its options."""

    society: Society
    prompts: SocietyPrompts
    task: str
    given: ChatOptions
    pack: str | None = None
    """Prompt pack of the role-plays; None for the default of these models."""
    paper_endings: bool = False
    endings: tuple[Rule, ...] = ()
    """Endings of its role-plays, as in :attr:`~bactrian.play.setup.RolePlaySetup.endings`."""
    tools: Mapping[str, Toolbox] = field(default_factory=dict[str, Toolbox])
    """By agent."""
    name: str | None = None
    """Id of the last stage's session, for a job of a run; None for a hash of these options."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its job in a recipe."""
    mark: str | None = None
    prefix: str | None = None
    """Prefix of the ids under which a smaller limit of messages stored the sessions; None for that of these options."""
    command: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The options as JSON values, without keys, to store with the sessions."""

    def session_id(self, stage: SocietyStage) -> str:
        """Return the id of the session of ``stage``."""
        if self.name is not None and stage is self.society.stages[-1]:
            return self.name
        return f"{self.name or self.id}-{stage.name}"

    @property
    def id(self) -> str:
        """Prefix of its sessions' ids: a hash of these options."""
        if self.prefix is not None:
            return self.prefix
        given = self.given
        content: list[object] = [
            self.society.hash,
            self.task,
            dict(given.models),
            given.language,
            given.seed,
            given.max_messages,
        ]
        content += [given.protocol, self.pack, self.paper_endings]
        if self.endings:
            content.append([find_code(rule) for rule in self.endings])
        if self.tools:
            content.append({agent: asdict(box.kit) for agent, box in self.tools.items()})
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def name_models(
    society: Society, model: str, *, task_model: str | None, critic_model: str | None
) -> dict[str, str]:
    """Return the model name of each agent, and of the helpers in role-plays. The role ``human`` is a person.

    ``task_model`` and ``critic_model`` are those of the command, which outrank those of the society's file.

    Raises:
        InputError: one critic is a person, and another one is not.
    """
    names = {agent.name: HUMAN if agent.role == HUMAN else agent.model or model for agent in society.agents}
    helpers = society.models or SocietyModels()
    task_model = task_model or helpers.task or model
    if any(stage.specify for stage in society.stages):
        names["task_specifier"] = task_model
    if any(stage.plan for stage in society.stages):
        names["task_planner"] = task_model
    critics = {stage.critic.role == HUMAN for stage in society.stages if stage.critic}
    if len(critics) > 1:
        raise InputError(
            "One critic of this society is a person, and another one is not.",
            where=society.name,
            next="Give all its critics the role human, or none of them.",
        )
    if critics:
        names[CRITIC] = HUMAN if True in critics else critic_model or helpers.critic or model
    return names


async def play_society(
    settings: SocietyRun,
    models: Mapping[str, Model],
    store: Store | None = None,
    listener: Listener | None = None,
) -> AsyncGenerator[Event]:
    """Play each stage to its ending. The output of a stage is part of the task of later stages.

    After a stage that a model or a person ended early, no further stage is played; the same call with the same store
    resumes it.

    Raises:
        InputError: the task, a role or the language cannot be used.
    """
    if settings.pack is not None:
        load_pack(settings.pack).check_axes(settings.values)
    outputs: dict[str, str] = {}
    for stage in settings.society.stages:
        task = settings.prompts.task(stage.name, settings.task, outputs)
        turns: list[Turn] = []
        ending: Ending | None = None
        async for event in _run_stage(settings, stage, task, models, store, listener):
            yield event
            match event:
                case Started(session):
                    turns = list(session.turns)
                case Spoke(turn):
                    turns.append(turn)
                case Ended(ending):
                    pass
                case _:
                    pass
        if ending is None or not ending.final:
            return
        outputs[stage.name] = collect_output(turns, stage)


async def play_one_society(
    settings: SocietyRun,
    options: ModelOptions,
    run: Path | None,
    listener: Listener | None = None,
    *,
    kept_in: Store | None = None,
) -> AsyncGenerator[Event]:
    """Open store, models and tools, and play the stages of a society, or resume them.

    In the open run ``kept_in``, a society without a name is played again under a free id.

    Raises:
        InputError: something named in ``settings`` cannot be used.
        StoreError: the run is damaged, in use, or of a newer version of this program.
    """
    models = settings.given.models
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(run)) if run else kept_in
        sink = store.add_call if store is not None else None
        options = replace(options, slots=max(options.slots, len(models)))
        opened = await stack.enter_async_context(open_models(models, options, sink=sink))
        tools = await stack.enter_async_context(open_tools(settings.society.tools))
        settings = replace(settings, tools=tools)
        if store is not None:
            if run is None and settings.name is None:
                settings = replace(settings, name=await _find_free_name(settings, store))
            else:
                settings = await _find_earlier_ids(settings, store)
            name = settings.session_id(settings.society.stages[0])
            await store.add_command(Command.begin("play", {**settings.command, "name": settings.name}, name))
        events = play_society(settings, opened, store, listener)
        async with aclosing(events):
            async for event in events:
                yield event


async def _find_earlier_ids(settings: SocietyRun, store: RunReader) -> SocietyRun:
    """Return ``settings`` with the ids that a smaller limit of messages gave its sessions; unchanged if not found."""
    given, stages = settings.given, settings.society.stages
    if given.max_messages is None or settings.name is not None:
        return settings
    turns = {one.id: one.turns or 0 async for one in store.progress()}
    if settings.session_id(stages[0]) in turns:
        return settings
    limits: list[int | None] = list(range(min(given.max_messages - 1, max(turns.values(), default=0)), 0, -1))
    if all(stage.max_messages is not None and stage.max_messages <= given.max_messages for stage in stages):
        limits.append(None)
    for limit in limits:
        shorter = replace(settings, given=replace(given, max_messages=limit))
        if shorter.session_id(stages[0]) in turns:
            return replace(settings, prefix=shorter.id)
    return settings


async def _continue_stopped(
    session: Session, settings: SocietyRun, stage: SocietyStage, store: Store | None
) -> Session:
    """Return a stage's session without its ending, if it stopped at a smaller limit and no later stage has begun."""
    limit = settings.given.max_messages or stage.max_messages
    if store is None or limit is None or not has_stopped_at_limit(session):
        return session  # Without a wait, so that jobs begin in their order.
    stages = settings.society.stages
    later = stages[stages.index(stage) + 1 :]
    if later and await store.session(settings.session_id(later[0])) is not None:
        return session
    return await resume_shorter(session, limit, store)


async def _find_free_name(settings: SocietyRun, store: RunReader) -> str | None:
    """Return a name under which no session is stored; None if the id of ``settings`` is free."""
    number, named = 1, settings
    while await store.session(named.session_id(named.society.stages[0])) is not None:
        number += 1
        named = replace(settings, name=f"{settings.id}-{number}")
    return named.name


def collect_output(turns: Sequence[Turn], stage: SocietyStage) -> str:
    """Return the output of a stage: its solutions, its last message or all turns, without the done token."""
    said = [(turn, turn.text.replace(DONE, "").strip()) for turn in turns]
    said = [(turn, text) for turn, text in said if text]
    match stage.output:
        case "last":
            return said[-1][1] if said else ""
        case "all":
            return "\n\n".join(f"{turn.role}: {text}" for turn, text in said)
        case "solutions":
            solutions = [turn.said.solution for turn, _ in said if isinstance(turn.said, Solution)]
            return "\n\n".join(solutions or [text for turn, text in said if not is_done(turn.text)])


async def _run_stage(
    settings: SocietyRun,
    stage: SocietyStage,
    task: str,
    models: Mapping[str, Model],
    store: Store | None,
    listener: Listener | None,
) -> AsyncGenerator[Event]:
    """Play or resume the session of a stage."""
    name = settings.session_id(stage)
    given = replace(settings.given, seed=derive_stage_seed(settings.given.seed, stage.name))
    society, settings = settings.society, replace(settings, given=given)
    if stage.agents:
        session = new_group_chat(society, stage, task, given, name, settings.tools)
        session = await begin_session(replace(session, values=settings.values, mark=settings.mark), store)
        session = await _continue_stopped(session, settings, stage, store)
        scene = build_group_chat(
            session,
            society,
            settings.prompts,
            stage,
            models,
            max_messages=given.max_messages,
            tools=settings.tools,
            listener=listener,
        )
        events = run_scene(scene, store)
    else:
        setup, pack = _make_setup(settings, stage, task)
        session = replace(new_session(setup, pack, name=name), values=settings.values, mark=settings.mark)
        session = await begin_session(session, store)
        session = await _continue_stopped(session, settings, stage, store)
        by_side, tools = _choose_by_side(stage, models), _choose_tools(stage, settings.tools)
        events = await run_role_play(
            session, setup, pack, by_side, store=store, tools=tools, listener=listener
        )
    async with aclosing(events):
        async for event in events:
            yield event


def _make_setup(settings: SocietyRun, stage: SocietyStage, task: str) -> tuple[RolePlaySetup, Pack]:
    """Return the set-up and the prompt pack of a stage that is a role-play."""
    society, given = settings.society, settings.given
    assert stage.user is not None
    assert stage.assistant is not None
    user, assistant = society.agent(stage.user), society.agent(stage.assistant)
    setup = RolePlaySetup(
        idea=task,
        assistant=Role(assistant.role, assistant.description),
        user=Role(user.role, user.description),
        models=_choose_by_side(stage, given.models),
        specify=stage.specify,
        plan=stage.plan,
        protocol=given.protocol,
        paper_endings=settings.paper_endings,
        endings=settings.endings,
        max_messages=given.max_messages or stage.max_messages,
        seed=given.seed,
        language=given.language,
        critic=stage.critic and to_critic_settings(stage.critic),
        tools={side: box.kit for side, box in _choose_tools(stage, settings.tools).items()},
        parameters={
            side: (agent.parameters,)
            for side, agent in (("user", user), ("assistant", assistant))
            if agent.parameters is not None
        },
    )
    return setup, load_pack(settings.pack or setup.pack)


def _choose_tools(stage: SocietyStage, tools: Mapping[str, Toolbox]) -> dict[str, Toolbox]:
    """Return the tools of a role-play's agents by side; empty if its critic searches (docs/decisions.md)."""
    seats = {"user": stage.user or "", "assistant": stage.assistant or ""}
    if stage.critic is not None and to_critic_settings(stage.critic).searches:
        return {}
    return {side: tools[name] for side, name in seats.items() if name in tools}


def _choose_by_side(stage: SocietyStage, by_agent: Mapping[str, _T]) -> dict[str, _T]:
    """Return the values of a role-play's agents, by side instead of by agent."""
    assert stage.user is not None
    assert stage.assistant is not None
    helpers = {name: by_agent[name] for name in _HELPERS if name in by_agent}
    return {"user": by_agent[stage.user], "assistant": by_agent[stage.assistant], **helpers}
