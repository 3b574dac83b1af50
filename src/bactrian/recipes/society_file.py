"""Societies: more than one conversation, or more than two agents, as a .toml file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self, cast

from jinja2 import Template
from pydantic import Field, model_validator

from bactrian.errors import InputError
from bactrian.files.template import TemplateFault, compile_template
from bactrian.files.toml import FileKind, TomlSource, check_table, resolve_beside
from bactrian.options import SamplingSpec
from bactrian.recipes.schema import CriticSpec, Part, ToolsSpec

_KIND = FileKind("society", InputError, "`bactrian help societies.md`", "societies", "recipes/societies")
_NAME = r"^[a-z][a-z0-9_]{0,63}$"
_RESERVED = frozenset({"user", "assistant", "critic", "task", "role", "description", "others", "language"})
_PROMPT_VALUES = frozenset({"task", "role", "description", "others", "language"})

OrderName = Literal["round_robin", "moderator", "reply_to"]


class SocietyAgent(Part):
    """An agent that takes part in one or more stages."""

    name: Annotated[str, Field(pattern=_NAME)]
    """Name by which stages and other agents refer to it."""
    role: Annotated[str, Field(min_length=1, max_length=300)]
    description: str = ""
    prompt: str = ""
    """Template of its system prompt in a stage with `agents`: task, role, description, others, language."""
    hears: tuple[str, ...] | None = None
    """Agents whose turns it receives, besides its own. Default: all."""
    model: str | None = None
    """Default: --model. `human` is the person at the terminal."""
    temperature: Annotated[float | None, Field(ge=0, le=5)] = None
    max_tokens: Annotated[int | None, Field(gt=0, strict=True)] = None
    parameters: SamplingSpec | None = None
    """Further sampling parameters; the value none omits a parameter."""
    tools: ToolsSpec | None = None
    """Tools it may call; unavailable where a critic searches."""


class SocietyModels(Part):
    """Models of the helpers in the stages, where a command names no other."""

    critic: Annotated[str | None, Field(min_length=1)] = None
    """Of the stages' critics."""
    task: Annotated[str | None, Field(min_length=1)] = None
    """Of task specifier and planner."""


class SocietyStage(Part):
    """One conversation: a role-play of `user` and `assistant`, or a discussion of any number of `agents`."""

    name: Annotated[str, Field(pattern=_NAME)]
    """Placeholder of its output in later stages' tasks."""
    task: str = "{{ task }}"
    """Template: task, and the names of earlier stages."""
    user: str | None = None
    """Agent that instructs, by the inception protocol."""
    assistant: str | None = None
    """Agent that solves."""
    agents: tuple[str, ...] = ()
    """The agents of a discussion, in speaking order."""
    order: OrderName = "round_robin"
    """How the next speaker of `agents` is chosen; user and assistant alternate."""
    moderator: str | None = None
    """The agent that names the next speaker, for `order = "moderator"`."""
    done_by: tuple[str, ...] | None = None
    """Agents whose done token ends the discussion. Default: the moderator, or all."""
    max_messages: Annotated[int | None, Field(gt=0, strict=True)] = None
    specify: Annotated[bool, Field(strict=True)] = False
    """Make the task concrete first; role-play only."""
    plan: Annotated[bool, Field(strict=True)] = False
    """Divide it into subtasks first; role-play only."""
    critic: CriticSpec | None = None
    """Chooses each turn; role-play only."""
    output: Literal["solutions", "last", "all"] = "solutions"
    """What later stages receive: all solutions, the last message, or the whole discussion."""

    @property
    def cast(self) -> tuple[str, ...]:
        """Names of the agents that take part."""
        return self.agents or tuple(filter(None, (self.user, self.assistant)))

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        pair = (self.user, self.assistant)
        if bool(self.agents) == any(pair) or (any(pair) and not all(pair)):
            raise ValueError("a stage has either `user` and `assistant`, or `agents`")
        if self.agents and (self.specify or self.plan or self.critic):
            raise ValueError("`specify`, `plan` and `critic` are for a stage with `user` and `assistant`")
        if len(self.cast) < 2 or len(set(self.cast)) < len(self.cast):
            raise ValueError("a stage has at least two agents, each of them once")
        if (self.order == "moderator") != (self.moderator is not None):
            raise ValueError('`order = "moderator"` and `moderator` go together')
        named = (*(self.done_by or ()), *filter(None, (self.moderator,)))
        if strange := [name for name in named if name not in self.agents]:
            raise ValueError(f"{strange[0]!r} is not one of the stage's `agents`")
        return self


class Society(Part):
    """Agents, and the conversations they have, one after another."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    description: str = ""
    task: Annotated[str, Field(min_length=1)]
    """What to do, if the command does not say."""
    agents: Annotated[tuple[SocietyAgent, ...], Field(min_length=2)]
    stages: Annotated[tuple[SocietyStage, ...], Field(min_length=1)]
    models: SocietyModels | None = None
    """Models of critics, task specifier and planner."""

    def agent(self, name: str) -> SocietyAgent:
        """Return the agent of this name."""
        return next(agent for agent in self.agents if agent.name == name)

    @property
    def tools(self) -> dict[str, ToolsSpec]:
        """What agents may call, by agent."""
        return {agent.name: agent.tools for agent in self.agents if agent.tools is not None}

    @property
    def hash(self) -> str:
        """SHA-256, hexadecimal, of all that the file says."""
        content = self.model_dump(mode="json")
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @model_validator(mode="after")
    def _knows_its_names(self) -> Self:
        known = [agent.name for agent in self.agents]
        for names in (known, [stage.name for stage in self.stages]):
            for name in names:
                if names.count(name) > 1 or name in _RESERVED:
                    raise ValueError(f"the name {name!r} is taken")
        for agent in self.agents:
            if strange := [name for name in agent.hears or () if name not in known]:
                raise ValueError(f"{agent.name!r} hears {strange[0]!r}, which is not an agent")
        for stage in self.stages:
            if strange := [name for name in stage.cast if name not in known]:
                raise ValueError(f"stage {stage.name!r} needs {strange[0]!r}, which is not an agent")
            roles = [self.agent(name).role for name in stage.agents]
            if len(set(roles)) < len(roles):
                raise ValueError(f"two agents of stage {stage.name!r} have the same role")
            if mute := [name for name in stage.agents if not self.agent(name).prompt]:
                raise ValueError(f"{mute[0]!r} needs a `prompt` to take part in stage {stage.name!r}")
        return self


@dataclass(frozen=True, slots=True)
class SocietyPrompts:
    """The checked templates of a society."""

    tasks: Mapping[str, Template]  # By stage
    agents: Mapping[str, Template]  # System prompts by agent

    def task(self, stage: str, task: str, outputs: Mapping[str, str]) -> str:
        """Return the task of a stage, from the whole task and the outputs of earlier stages."""
        return self.tasks[stage].render({"task": task, **outputs}).strip()

    def system(self, agent: SocietyAgent, *, task: str, others: Sequence[str], language: str) -> str:
        """Return the system prompt of an agent among ``others``, which are names of roles."""
        return self.agents[agent.name].render(
            task=task,
            role=agent.role,
            description=agent.description,
            others=", ".join(others),
            language=language,
        )


def list_societies() -> tuple[str, ...]:
    """Return the names of the built-in societies."""
    return _KIND.list_built_in()


def read_society_text(name_or_path: str) -> str:
    """Return the text of a society's file. Raises InputError if it cannot be read."""
    return _KIND.find(name_or_path).text


def load_society(name_or_path: str) -> tuple[Society, SocietyPrompts]:
    """Read a built-in society by its name, or a file, and check it.

    Raises:
        InputError: the file cannot be read or is not a society; the message names the line.
    """
    source = _KIND.find(name_or_path)
    society = source.validate(Society, _with_paths(source))
    return society, _compiled(society, source)


def _with_paths(source: TomlSource) -> dict[str, object]:
    """Return the content of the file, with paths of tools resolved from its folder."""
    data = source.table()
    agents = data.get("agents")
    for agent in cast("list[object]", agents) if isinstance(agents, list) else []:
        resolve_beside(source.where, check_table(check_table(agent).get("tools")), "python")
    return data


def _compiled(society: Society, source: TomlSource) -> SocietyPrompts:
    before: list[str] = []
    tasks: dict[str, Template] = {}
    for number, stage in enumerate(society.stages):
        tasks[stage.name] = _template(source, "task", stage.task, {"task", *before}, "stages", number)
        before.append(stage.name)
    agents = {
        agent.name: _template(source, "prompt", agent.prompt, _PROMPT_VALUES, "agents", number, must={"task"})
        for number, agent in enumerate(society.agents)
        if agent.prompt
    }
    for stage in society.stages:
        for key in ("role", "criteria") if stage.critic else ():
            if "{" in getattr(stage.critic, key):
                raise source.error(f"{key!r} of a society's critic is not a template.", key, "Write it out.")
    return SocietyPrompts(tasks, agents)


def _template(
    source: TomlSource,
    key: str,
    text: str,
    may: set[str] | frozenset[str],
    *path: str | int,
    must: set[str] | None = None,
) -> Template:
    try:
        return compile_template(text, may=frozenset(may), must=frozenset(must or ()))
    except TemplateFault as fault:
        raise source.error(
            f"{key!r}, line {fault.line}, {fault.what}.", key, fault.next, within=source.part(path)
        ) from fault
