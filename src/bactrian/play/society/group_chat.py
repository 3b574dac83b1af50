"""A group chat: any number of agents, each with its own system prompt, that speak in a given order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel

from bactrian.errors import InputError
from bactrian.language.protocol import DONE
from bactrian.models.model import Model, ResponseFormat
from bactrian.models.registry import find_traits
from bactrian.models.traits import get_traits
from bactrian.play.agent import Agent, Listener
from bactrian.play.endings.rules import EndpointRefused, MaxMessages, TaskDone
from bactrian.play.human import HUMAN
from bactrian.play.order import Moderated, ReplyTo, RoundRobin, SpeakerOrder
from bactrian.play.scene import Scene, find_toolbox
from bactrian.play.setup import check_tools
from bactrian.play.tools.toolbox import NO_TOOLS, Toolbox
from bactrian.prompts.engine import load_engine_prompts, render_prompt
from bactrian.prompts.values import check_idea, check_name, check_value
from bactrian.recipes.society import Society, SocietyPrompts, SocietyStage
from bactrian.recipes.society import SocietyAgent as Wanted
from bactrian.records.sampling import Sampling
from bactrian.records.session import Provenance, Role, Session, Task
from bactrian.records.text import Text

MAX_MESSAGES = 40
_TOKENS = 1024
_SMALL_TOKENS = 120


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The options of a group chat besides its society."""

    models: Mapping[str, str]
    """Model name by agent."""
    language: str | None = None
    seed: int | None = None
    max_messages: int | None = None
    protocol: str | None = None
    """``enforced`` or ``free``; None means ``enforced`` for models in this process."""


def new_group_chat(
    society: Society,
    stage: SocietyStage,
    task: str,
    given: ChatOptions,
    name: str,
    tools: Mapping[str, Toolbox] = NO_TOOLS,
) -> Session:
    """Make the new session of a stage with ``agents``.

    Raises:
        InputError: the task, a role or the language cannot be used.
    """
    check_idea(task, "task")
    if given.language is not None:
        check_name(given.language, "language")
    agents = [society.agent(one) for one in stage.agents]
    for agent in agents:
        check_name(agent.role, "role")
        check_value(agent.description, "description")
    models = {agent.name: given.models[agent.name] for agent in agents}
    check_tools(tools.keys() & models.keys(), models)
    local = all(find_traits(model).in_process for model in models.values() if model != HUMAN)
    cast = {agent.name: Role(agent.role, agent.description) for agent in agents}
    first, second, *_ = cast.values()
    return Session(
        id=name,
        assistant=second,
        user=first,
        task=Task(task),
        provenance=Provenance(
            prompts=f"society {society.name}",
            prompts_hash=society.hash,
            engine_hash=load_engine_prompts().hash,
            protocol=given.protocol or ("enforced" if local else "free"),
            models=models,
            sampling={
                agent.name: _sampling(agent, models[agent.name], given.seed)
                for agent in agents
                if models[agent.name] != HUMAN
            },
            language=given.language,
            cast=cast,
            tools={agent: box.kit for agent, box in tools.items() if agent in models},
        ),
    )


def build_group_chat(
    session: Session,
    society: Society,
    prompts: SocietyPrompts,
    stage: SocietyStage,
    models: Mapping[str, Model],
    *,
    max_messages: int | None = None,
    tools: Mapping[str, Toolbox] = NO_TOOLS,
    listener: Listener | None = None,
) -> Scene:
    """Build the scene of a stage with ``agents``."""
    roles = {name: society.agent(name).role for name in stage.agents}
    order = _order(stage, roles)
    origin = session.provenance
    agents: dict[str, Agent] = {}
    for name in stage.agents:
        wanted = society.agent(name)
        others = [roles[other] for other in stage.agents if other != name]
        enforced = origin.protocol == "enforced" and name == stage.moderator
        agents[name] = Agent(
            speaker=name,
            role=Role(wanted.role, wanted.description),
            system=Text(
                prompts.system(
                    wanted, task=session.task.text, others=others, language=origin.language or ""
                ).strip()
            ),
            model=models[name],
            sampling=origin.sampling.get(name, Sampling()),
            opening=Text(render_prompt("group_opening")) if name == order.next_speaker(()) else None,
            form=build_moderator_format(others, small=get_traits(models[name]).small) if enforced else None,
            among=True,
            hears=None if wanted.hears is None else frozenset(wanted.hears),
            toolbox=find_toolbox(session, name, tools),
        )
    done_by = stage.done_by or ((stage.moderator,) if stage.moderator else stage.agents)
    limit = max_messages or stage.max_messages or MAX_MESSAGES
    return Scene(
        session=session,
        agents=agents,
        order=order,
        rules=(TaskDone(frozenset(done_by)), EndpointRefused(), MaxMessages(limit)),
        listener=listener,
    )


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
        schema={
            "type": "object",
            "properties": {
                "message": {"type": "string", "description": render_prompt("schema_moderator_message")},
                "next": {
                    "type": ["string", "null"],
                    "enum": [*roles, None],
                    "description": render_prompt("schema_moderator_next"),
                },
                "done": {"type": "boolean", "description": render_prompt("schema_moderator_done")},
            },
            "required": ["message", "next", "done"],
            "additionalProperties": False,
        },
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


def _order(stage: SocietyStage, roles: Mapping[str, str]) -> SpeakerOrder:
    match stage.order:
        case "moderator":
            if stage.moderator is None:
                raise InputError("A moderated talk needs a moderator.", where=stage.name)
            return Moderated(stage.moderator, roles)
        case "reply_to":
            return ReplyTo(roles)
        case "round_robin":
            return RoundRobin(stage.agents)


def _sampling(agent: Wanted, model: str, seed: int | None) -> Sampling:
    small = find_traits(model).small
    temperature = agent.temperature if agent.temperature is not None else 0.4 if small else 0.7
    usual = Sampling(
        temperature,
        0.9 if small else None,
        agent.max_tokens or (_SMALL_TOKENS if small else _TOKENS),
        seed,
    )
    return agent.parameters.apply(usual) if agent.parameters else usual
