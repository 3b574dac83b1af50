"""Plays a society: its stages in sequence, each a session or a group chat with an order of speakers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from bactrian.errors import InputError
from bactrian.models.model import Model, ResponseFormat, derive_stage_seed, get_traits
from bactrian.models.open import ModelOptions, find_traits
from bactrian.protocol.markers import DONE, is_done
from bactrian.protocol.pack import Pack, load_engine_prompts, load_pack, render_prompt
from bactrian.recipes.schema import to_critic_settings
from bactrian.recipes.society_file import Society, SocietyModels, SocietyPrompts, SocietyStage
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.session import HUMAN, Ending, Provenance, Role, Session, Task, check_name, check_text
from bactrian.records.text import Text
from bactrian.records.turn import Sampling, Solution, Speaker, Turn
from bactrian.roleplay import start
from bactrian.roleplay.agent import Agent, Listener
from bactrian.roleplay.chosen_endings import find_code
from bactrian.roleplay.critic import CRITIC
from bactrian.roleplay.endings import EndpointRefused, MaxMessages, Rule, TaskDone
from bactrian.roleplay.response_formats import make_object_schema
from bactrian.roleplay.role_play import find_toolbox, run_role_play
from bactrian.roleplay.setup import FULL_PACKS, RolePlaySetup, check_tools, new_session
from bactrian.roleplay.tool_turns import WithTools
from bactrian.roleplay.tools import DEFAULT_LIMITS, Toolbox, open_tools
from bactrian.roleplay.turns import Scene, SpeakerOrder
from bactrian.store import RunStore, open_store

# Orders of speakers.


_NEXT = re.compile(r"^[*_#> \t]*next[*_]*[ \t]*:[*_ \t]*(?P<name>[^\n]+)$", re.IGNORECASE | re.MULTILINE)
_TO = re.compile(r"^[*_#> \t]*to[*_]*[ \t]*:[*_ \t]*(?P<name>[^\n]+)$", re.IGNORECASE | re.MULTILINE)
_EDGES = " \t*_.\"'`<>[]"


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """All agents speak in a fixed order, again and again."""

    agents: tuple[Speaker, ...]

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent after the one that spoke last."""
        if not turns:
            return self.agents[0]
        return self.agents[(self.agents.index(turns[-1].speaker) + 1) % len(self.agents)]


@dataclass(frozen=True, slots=True)
class Moderated:
    """A moderator speaks between all others and names the next one in a line ``Next: ROLE``.

    If the moderator names no agent, the one that has been silent for longest speaks.
    """

    moderator: Speaker
    roles: Mapping[Speaker, str]  # Role by agent, the moderator's too, in the default order of speakers.

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the moderator, or the agent that it named."""
        if not turns or turns[-1].speaker != self.moderator:
            return self.moderator
        named = [match["name"] for match in _NEXT.finditer(turns[-1].text)]
        others = [name for name in self.roles if name != self.moderator]
        last = {turn.speaker: turn.number for turn in turns}
        silent = min(others, key=lambda name: last.get(name, 0))
        return (_find_agent(named[-1], self.roles, others) if named else None) or silent


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """The agent that a turn addresses answers: by a line ``To: ROLE``, or by ``@ROLE``.

    If none is addressed, the previous speaker answers; at the beginning, the next agent in the list.
    """

    roles: Mapping[Speaker, str]

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent that the last turn addresses."""
        names = list(self.roles)
        if not turns:
            return names[0]
        last = turns[-1]
        others = [name for name in names if name != last.speaker]
        lines = [match["name"] for match in _TO.finditer(last.text)]
        addressed = (
            _find_agent(lines[-1], self.roles, others)
            if lines
            else _find_mention(last.text, self.roles, others)
        )
        if addressed is not None:
            return addressed
        before = next((turn.speaker for turn in reversed(turns) if turn.speaker != last.speaker), None)
        return before or names[(names.index(last.speaker) + 1) % len(names)]


def _find_agent(written: str, roles: Mapping[Speaker, str], among: Sequence[Speaker]) -> Speaker | None:
    """Return the agent with this role or name; None if not found."""
    wanted = written.strip(_EDGES).casefold()
    return next((name for name in among if wanted in (roles[name].casefold(), name.casefold())), None)


def _find_mention(text: str, roles: Mapping[Speaker, str], among: Sequence[Speaker]) -> Speaker | None:
    """Return the agent that is mentioned first with an ``@``; None if not found."""
    lower = text.casefold()
    places = {
        name: min(
            (at for word in (roles[name], name) if (at := lower.find(f"@{word.casefold()}")) >= 0),
            default=len(lower),
        )
        for name in among
    }
    first = min(places, key=lambda name: places[name])
    return first if places[first] < len(lower) else None


# A group chat: any number of agents, each with its own system prompt, that speak in a given order.


MAX_MESSAGES = 40
_TOKENS = 1024
_SMALL_TOKENS = 120


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The options of a group chat besides its society."""

    models: Mapping[str, str]  # Model name by agent.
    language: str | None = None
    seed: int | None = None
    max_messages: int | None = None
    protocol: str | None = None  # `enforced` or `free`; None means `enforced` for models in this process.


class _ModeratorFields(BaseModel):
    message: str
    next: str | None
    done: bool


def build_moderator_format(roles: list[str], *, small: bool = False) -> ResponseFormat:
    """Return the format of a moderator's turn: a message, and the next speaker or the done token."""
    longest = 200 if small else 2000
    names = " | ".join(json.dumps(role, ensure_ascii=False) for role in roles)
    return ResponseFormat(
        name="moderation",
        schema=make_object_schema(
            message={"type": "string", "description": render_prompt("schema_moderator_message")},
            next={
                "type": ["string", "null"],
                "enum": [*roles, None],
                "description": render_prompt("schema_moderator_next"),
            },
            done={"type": "boolean", "description": render_prompt("schema_moderator_done")},
        ),
        grammar=(
            f'root ::= line "\\nNext: " ({names}) | line "\\n{DONE}"\n'
            f"line ::= [A-Z] [^\\n<>]{{20,{longest}}} [.?]\n"
        ),
        read=_read_moderator,
    )


def _read_moderator(text: str) -> str:
    fields = _ModeratorFields.model_validate_json(text)
    last = DONE if fields.done or fields.next is None else f"Next: {fields.next}"
    return f"{fields.message.strip()}\n{last}"


_T = TypeVar("_T")
_HELPERS = ("task_specifier", "task_planner", CRITIC)


@dataclass(frozen=True, slots=True)
class SocietyRun:
    """A society with its options."""

    society: Society
    prompts: SocietyPrompts
    task: str
    chat: ChatOptions
    pack: str | None = None  # Prompt pack of the role-plays; None for the default of these models.
    paper_endings: bool = False
    endings: tuple[Rule, ...] = ()  # Endings of its role-plays, as in `endings`.
    tools: Mapping[str, Toolbox] = field(default_factory=dict[str, Toolbox])  # By agent.
    name: str | None = None
    """Id of the last stage's session, for a job of a run; None for a hash of these options."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])  # Its job in a recipe.
    mark: str | None = None
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
        chat = self.chat
        content = [
            self.society.hash,
            self.task,
            asdict(replace(chat, models=dict(chat.models), max_messages=None)),
            self.pack,
            self.paper_endings,
            [find_code(rule) for rule in self.endings],
            {agent: asdict(box.kit) for agent, box in self.tools.items()},
        ]
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]


def new_group_chat(settings: SocietyRun, stage: SocietyStage, task: str, seed: int | None) -> Session:
    """Make the new session of a stage with ``agents``.

    Raises:
        InputError: the task, a role or the language cannot be used.
    """
    society, options, tools = settings.society, settings.chat, settings.tools
    check_text(task, "task")
    if options.language is not None:
        check_name(options.language, "language")
    models: dict[str, str] = {}
    cast: dict[str, Role] = {}
    sampling: dict[str, Sampling] = {}
    for name in stage.agents:
        agent, model = society.agent(name), options.models[name]
        check_name(agent.role, "role")
        check_text(agent.description, "description", None)
        models[name], cast[name] = model, Role(agent.role, agent.description)
        if model == HUMAN:
            continue
        small = find_traits(model).small
        usual = Sampling(
            agent.temperature if agent.temperature is not None else 0.4 if small else 0.7,
            0.9 if small else None,
            agent.max_tokens or (_SMALL_TOKENS if small else _TOKENS),
            seed,
        )
        sampling[name] = agent.parameters.apply(usual) if agent.parameters else usual
    check_tools(tools.keys() & models.keys(), models)
    local = all(find_traits(models[name]).in_process for name in sampling)
    first, second, *_ = cast.values()
    return Session(
        id=settings.session_id(stage),
        assistant=second,
        user=first,
        task=Task(task),
        provenance=Provenance(
            prompts=f"society {society.name}",
            prompts_hash=society.hash,
            engine_hash=load_engine_prompts().hash,
            protocol=options.protocol or ("enforced" if local else "free"),
            models=models,
            sampling=sampling,
            language=options.language,
            cast=cast,
            tools={agent: box.kit for agent, box in tools.items() if agent in models},
        ),
    )


def build_group_chat(
    settings: SocietyRun,
    stage: SocietyStage,
    session: Session,
    models: Mapping[str, Model],
    listener: Listener | None,
) -> Scene:
    """Build the scene of a stage with ``agents``."""
    society, origin = settings.society, session.provenance
    roles = {name: society.agent(name).role for name in stage.agents}
    order: SpeakerOrder = RoundRobin(stage.agents)
    if stage.order == "moderator" and stage.moderator is not None:
        order = Moderated(stage.moderator, roles)
    elif stage.order == "reply_to":
        order = ReplyTo(roles)
    agents: dict[str, Agent] = {}
    for name in stage.agents:
        agent = society.agent(name)
        others = [roles[other] for other in stage.agents if other != name]
        system = settings.prompts.system(
            agent, task=session.task.text, others=others, language=origin.language or ""
        )
        # A person is told the form.
        enforced = name == stage.moderator and (origin.protocol == "enforced" or models[name].name == HUMAN)
        agents[name] = Agent(
            speaker=name,
            role=Role(agent.role, agent.description),
            system=Text(system.strip()),
            model=models[name],
            sampling=origin.sampling.get(name, Sampling()),
            opening=Text(render_prompt("group_opening")) if name == order.next_speaker(()) else None,
            form=build_moderator_format(others, small=get_traits(models[name]).small) if enforced else None,
            among=True,
            hears=None if agent.hears is None else frozenset(agent.hears),
            toolbox=find_toolbox(session, name, settings.tools) if name in origin.tools else None,
        )
    done_by = stage.done_by or ((stage.moderator,) if stage.moderator else stage.agents)
    limit = settings.chat.max_messages or stage.max_messages or MAX_MESSAGES
    rules = (TaskDone(frozenset(done_by)), EndpointRefused(), MaxMessages(limit))
    strategies = {name: WithTools() for name in agents if name in origin.tools}
    return Scene(session, agents, order, rules, strategies, listener)


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


def _check_pack(settings: SocietyRun) -> None:
    if settings.pack is not None:
        load_pack(settings.pack).check_axes(settings.values)


def _check_beginning(settings: SocietyRun) -> None:
    """Refuse what cannot be played, before the code of its tools is loaded.

    Raises:
        InputError: the task, a role, the language or the prompt pack cannot be used.
    """
    _check_pack(settings)
    first = settings.society.stages[0]
    tools = dict.fromkeys(settings.society.tools, Toolbox(DEFAULT_LIMITS, {}))
    _make_session(replace(settings, tools=tools), first, settings.prompts.task(first.name, settings.task, {}))


async def play_society(
    settings: SocietyRun,
    models: Mapping[str, Model],
    store: RunStore | None = None,
    listener: Listener | None = None,
) -> AsyncGenerator[Event]:
    """Play each stage to its ending. The output of a stage is part of the task of later stages.

    After a stage that a model or a person ended early, no further stage is played; the same call with the same store
    resumes it.

    Raises:
        InputError: the task, a role or the language cannot be used.
    """
    _check_pack(settings)
    outputs: dict[str, str] = {}
    for stage in settings.society.stages:
        task = settings.prompts.task(stage.name, settings.task, outputs)
        turns: list[Turn] = []
        ending: Ending | None = None
        session, setup, pack = _make_session(settings, stage, task)
        session = session if store is None else await store.begin(session)
        session = await _continue_stopped(session, settings, stage, store)
        if setup is None or pack is None:
            events = start.run_scene(build_group_chat(settings, stage, session, models, listener), store)
        else:
            by_side, tools = _choose_by_side(stage, models), _choose_tools(stage, settings.tools)
            opened = start.OpenSession(session, by_side, tools, store, listener)
            events = await run_role_play(opened, pack, rules=setup.rules())
        async with aclosing(events):
            async for event in events:
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
    kept_in: RunStore | None = None,
) -> AsyncGenerator[Event]:
    """Open store, models and tools, and play the stages of a society, or resume them.

    In the open run ``kept_in``, a society without a name is played again under a free id.

    Raises:
        InputError: something named in ``settings`` cannot be used.
        StoreError: the run is damaged, in use, or of a newer version of this program.
    """
    models = settings.chat.models
    async with AsyncExitStack() as stack:
        store = await stack.enter_async_context(open_store(run)) if run else kept_in
        sink = store.add_call if store is not None else None
        options = replace(options, slots=max(options.slots, len(models)))
        opened, telemetry = await stack.enter_async_context(start.open_models(models, options, sink=sink))
        _check_beginning(settings)
        tools = await stack.enter_async_context(open_tools(settings.society.tools))
        settings = replace(settings, tools=tools)
        if store is not None:
            if run is None and settings.name is None:
                settings = replace(settings, name=await _find_free_name(settings, store))
            name = settings.session_id(settings.society.stages[0])
            command = {**settings.command, "name": settings.name}
            await store.add_command(start.begin_command(command, options, name))
        events = play_society(settings, opened, store, listener)
        async with aclosing(start.report_endings(events, telemetry) if telemetry else events) as events:
            async for event in events:
                yield event


async def _continue_stopped(
    session: Session, settings: SocietyRun, stage: SocietyStage, store: RunStore | None
) -> Session:
    """Return a stage's session without its ending, if it stopped at a smaller limit and no later stage has begun."""
    limit = settings.chat.max_messages or stage.max_messages
    if store is None or limit is None or not start.has_stopped_at_limit(session):
        return session  # Without a wait, so that jobs begin in their order.
    stages = settings.society.stages
    later = stages[stages.index(stage) + 1 :]
    if later and await store.session(settings.session_id(later[0])) is not None:
        return session
    return await start.resume_shorter(session, limit, store)


async def _find_free_name(settings: SocietyRun, store: RunStore) -> str | None:
    """Return a name under which no session is stored; None if the id of ``settings`` is free."""
    number, named = 1, settings
    while await store.session(named.session_id(named.society.stages[0])) is not None:
        number += 1
        named = replace(settings, name=f"{settings.id}-{number}")
    return named.name


def collect_output(turns: Sequence[Turn], stage: SocietyStage) -> str:
    """Return the output of a stage: its solutions, its last message or all turns, without the done token."""
    messages = [(turn, turn.text.replace(DONE, "").strip()) for turn in turns]
    messages = [(turn, text) for turn, text in messages if text]
    match stage.output:
        case "last":
            return messages[-1][1] if messages else ""
        case "all":
            return "\n\n".join(f"{turn.role}: {text}" for turn, text in messages)
        case "solutions":
            solutions = [turn.said.solution for turn, _ in messages if isinstance(turn.said, Solution)]
            return "\n\n".join(solutions or [text for turn, text in messages if not is_done(turn.text)])


def _make_session(
    settings: SocietyRun, stage: SocietyStage, task: str
) -> tuple[Session, RolePlaySetup | None, Pack | None]:
    """Return the new session of a stage; with the set-up and the prompt pack, if it is a role-play."""
    seed = derive_stage_seed(settings.chat.seed, stage.name)
    setup, pack = None, None
    if stage.agents:
        session = new_group_chat(settings, stage, task, seed)
    else:
        setup, pack = _make_setup(settings, stage, task, seed)
        session = new_session(setup, pack, name=settings.session_id(stage))
    return replace(session, values=settings.values, mark=settings.mark), setup, pack


def _make_setup(
    settings: SocietyRun, stage: SocietyStage, task: str, seed: int | None
) -> tuple[RolePlaySetup, Pack]:
    """Return the set-up and the prompt pack of a stage that is a role-play."""
    society, chat = settings.society, settings.chat
    assert stage.user is not None
    assert stage.assistant is not None
    user, assistant = society.agent(stage.user), society.agent(stage.assistant)
    setup = RolePlaySetup(
        idea=task,
        assistant=Role(assistant.role, assistant.description),
        user=Role(user.role, user.description),
        models=_choose_by_side(stage, chat.models),
        specify=stage.specify,
        plan=stage.plan,
        protocol=chat.protocol,
        paper_endings=settings.paper_endings,
        endings=settings.endings,
        max_messages=chat.max_messages or stage.max_messages,
        seed=seed,
        language=chat.language,
        critic=stage.critic and to_critic_settings(stage.critic),
        tools={side: box.kit for side, box in _choose_tools(stage, settings.tools).items()},
        parameters={
            side: (agent.parameters,)
            for side, agent in (("user", user), ("assistant", assistant))
            if agent.parameters is not None
        },
    )
    return setup, load_pack(settings.pack or FULL_PACKS[setup.small])


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
