"""A society at work: its stages one after another, each a session that is kept and taken up again by itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

from bactrian.language.protocol import DONE, is_done
from bactrian.models.model import Model
from bactrian.play.agent import Listener
from bactrian.play.critic.critic import CRITIC
from bactrian.play.persist import persist_events
from bactrian.play.prepare import prepare
from bactrian.play.scene import Scene, build_role_play
from bactrian.play.session import play_session
from bactrian.play.setup import RolePlaySetup, new_session
from bactrian.play.society.group_chat import ChatOptions, build_group_chat, new_group_chat
from bactrian.play.tools.toolbox import Toolbox
from bactrian.prompts.pack import Pack, load_pack
from bactrian.recipes.schema import to_critic_settings
from bactrian.recipes.society import Society, SocietyPrompts, SocietyStage
from bactrian.records.candidate import NOTHING_KNOWN
from bactrian.records.ending import Ending
from bactrian.records.events import Ended, Event, Spoke
from bactrian.records.session import Role, Session
from bactrian.records.turn import Solution, Turn
from bactrian.store import Store

_T = TypeVar("_T")
_HELPERS = ("task_specifier", "task_planner", CRITIC)


@dataclass(frozen=True, slots=True)
class SocietyRun:
    """A society with what a command says about it."""

    society: Society
    prompts: SocietyPrompts
    task: str
    given: ChatOptions
    pack: str | None = None
    """Prompt pack of the role-plays; None for the one that suits the models."""
    paper_endings: bool = False
    tools: Mapping[str, Toolbox] = field(default_factory=dict[str, Toolbox])
    """By agent."""
    name: str | None = None
    """Id of its last stage's session, for a job of a run; None for one that this wish alone gives."""
    values: Mapping[str, str] = field(default_factory=dict[str, str])
    """Its place in a recipe."""
    mark: str | None = None

    def session_id(self, stage: SocietyStage) -> str:
        """Id of the session of ``stage``."""
        if self.name is not None and stage is self.society.stages[-1]:
            return self.name
        return f"{self.name or self.id}-{stage.name}"

    @property
    def id(self) -> str:
        """What the ids of its sessions begin with: the same wish, the same sessions."""
        given = self.given
        wish: list[object] = [
            self.society.hash,
            self.task,
            dict(given.models),
            given.language,
            given.seed,
            given.max_messages,
        ]
        wish += [given.protocol, self.pack, self.paper_endings]
        if self.tools:
            wish.append({agent: asdict(box.kit) for agent, box in self.tools.items()})
        return hashlib.sha256(json.dumps(wish, sort_keys=True).encode()).hexdigest()[:12]


def name_models(society: Society, model: str, *, task_model: str, critic_model: str) -> dict[str, str]:
    """Model name of each agent, and of those who help in the stages."""
    names = {agent.name: agent.model or model for agent in society.agents}
    if any(stage.specify for stage in society.stages):
        names["task_specifier"] = task_model
    if any(stage.plan for stage in society.stages):
        names["task_planner"] = task_model
    if any(stage.critic for stage in society.stages):
        names[CRITIC] = critic_model
    return names


async def play_society(
    wish: SocietyRun,
    models: Mapping[str, Model],
    store: Store | None = None,
    listener: Listener | None = None,
) -> AsyncGenerator[Event]:
    """Play each stage to its ending. The output of one is part of the task of those after it.

    A stage that a model or a person broke off is the last; the same call with the same store goes on from there.

    Raises:
        InputError: the task, a role or the language cannot be used.
        ModelError: the task cannot be specified or planned.
    """
    outputs: dict[str, str] = {}
    for stage in wish.society.stages:
        task = wish.prompts.task(stage.name, wish.task, outputs)
        session, scene = await _open(wish, stage, task, models, store, listener)
        turns = list(session.turns)
        ending: Ending | None = None
        events = (
            play_session(scene) if store is None else persist_events(play_session(scene), session.id, store)
        )
        async for event in events:
            yield event
            match event:
                case Spoke(turn):
                    turns.append(turn)
                case Ended(ending):
                    pass
                case _:
                    pass
        if ending is None or not ending.final:
            return
        outputs[stage.name] = collect_output(turns, stage)


def collect_output(turns: Sequence[Turn], stage: SocietyStage) -> str:
    """What a stage hands on: its solutions, its last message or all that was said, without the done token."""
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


async def _open(
    wish: SocietyRun,
    stage: SocietyStage,
    task: str,
    models: Mapping[str, Model],
    store: Store | None,
    listener: Listener | None,
) -> tuple[Session, Scene]:
    """The session of a stage, with what is stored of it, and its scene."""
    society, given = wish.society, wish.given
    name = wish.session_id(stage)
    if stage.agents:
        session = new_group_chat(society, stage, task, given, name, wish.tools)
        session = replace(session, values=wish.values, mark=wish.mark)
        session = session if store is None else await store.begin(session)
        return session, build_group_chat(
            session,
            society,
            wish.prompts,
            stage,
            models,
            max_messages=given.max_messages,
            tools=wish.tools,
            listener=listener,
        )
    setup, pack = _setup(wish, stage, task)
    session = new_session(setup, pack, name=name)
    session = replace(session, values=wish.values, mark=wish.mark)
    session = session if store is None else await store.begin(session)
    seats = _seats(stage, models)
    session = await prepare(session, setup, pack, seats, store.save_task if store else None)
    known = NOTHING_KNOWN
    if store is not None and setup.critic is not None:
        known = await store.deliberation(session.id, after=setup.critic.count_settled(len(session.turns)))
    return session, build_role_play(
        session,
        pack,
        seats,
        rules=setup.rules(),
        known=known,
        tools=_seated_tools(stage, wish.tools),
        listener=listener,
    )


def _setup(wish: SocietyRun, stage: SocietyStage, task: str) -> tuple[RolePlaySetup, Pack]:
    society, given = wish.society, wish.given
    assert stage.user is not None
    assert stage.assistant is not None
    user, assistant = society.agent(stage.user), society.agent(stage.assistant)
    setup = RolePlaySetup(
        idea=task,
        assistant=Role(assistant.role, assistant.description),
        user=Role(user.role, user.description),
        models=_seats(stage, given.models),
        specify=stage.specify,
        plan=stage.plan,
        protocol=given.protocol,
        paper_endings=wish.paper_endings,
        max_messages=given.max_messages or stage.max_messages,
        seed=given.seed,
        language=given.language,
        critic=stage.critic and to_critic_settings(stage.critic),
        tools={side: box.kit for side, box in _seated_tools(stage, wish.tools).items()},
    )
    return setup, load_pack(wish.pack or setup.pack)


def _seated_tools(stage: SocietyStage, tools: Mapping[str, Toolbox]) -> dict[str, Toolbox]:
    """The tools of the agents of a role-play, by side; none where a critic chooses what is said."""
    seats = {"user": stage.user or "", "assistant": stage.assistant or ""}
    return {side: tools[name] for side, name in seats.items() if name in tools and not stage.critic}


def _seats(stage: SocietyStage, by_agent: Mapping[str, _T]) -> dict[str, _T]:
    """What belongs to the agents of a role-play, by the sides that they take in it."""
    assert stage.user is not None
    assert stage.assistant is not None
    helpers = {name: by_agent[name] for name in _HELPERS if name in by_agent}
    return {"user": by_agent[stage.user], "assistant": by_agent[stage.assistant], **helpers}
