"""``bactrian play``: one conversation, live."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from bactrian.api.arguments import Critic, PlayOptions
from bactrian.api.models import ChosenModels, choose_models
from bactrian.api.play import (
    AGENTS,
    EXAMPLE,
    EXAMPLE_SEED,
    build_session_order,
    raise_failure,
)
from bactrian.cli.commands.roles import choose_roles
from bactrian.cli.model_options import read_model_options
from bactrian.cli.options import declare_option, flatten_groups
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.terminal.keyboard import add_person
from bactrian.cli.view.audience import choose_viewer
from bactrian.errors import InputError
from bactrian.models.registry import ModelOptions
from bactrian.play.human import HUMAN
from bactrian.play.own_endings import read_endings
from bactrian.play.run_session import SessionOrder, play_one
from bactrian.play.society.group_chat import ChatOptions
from bactrian.play.society.stages import SocietyRun, name_models, play_one_society
from bactrian.recipes.society import load_society
from bactrian.records.events import Event, Started


class Protocol(StrEnum):
    """How the inception protocol is kept."""

    free = "free"
    enforced = "enforced"


class Unreadable(StrEnum):
    """What follows a critic's choice that cannot be read."""

    first = "first"
    fail = "fail"


class Side(StrEnum):
    """A side of the conversation."""

    user = "user"
    assistant = "assistant"


@dataclass(frozen=True, slots=True)
class RoleFlags:
    """Who takes part."""

    assistant: Annotated[
        str | None, declare_option("--assistant", f"Role that solves. Default: {EXAMPLE[1]}.")
    ] = None
    user: Annotated[str | None, declare_option("--user", f"Role that instructs. Default: {EXAMPLE[2]}.")] = (
        None
    )
    assistant_description: Annotated[
        str, declare_option("--assistant-description", "What the role that solves is and can do.")
    ] = ""
    user_description: Annotated[
        str, declare_option("--user-description", "What the role that instructs is and can do.")
    ] = ""
    roles: Annotated[
        Path | None,
        declare_option(
            "--roles", "What `bactrian roles --json` wrote: one that solves, then one that instructs."
        ),
    ] = None
    as_: Annotated[Side | None, declare_option("--as", "The side that you play yourself.")] = None


@dataclass(frozen=True, slots=True)
class ModelFlags:
    """Which models answer, and how they are reached."""

    model: Annotated[str, declare_option("--model", "Model of every agent; see `bactrian models`.")] = "local"
    assistant_model: Annotated[
        str | None, declare_option("--assistant-model", "Model of the AI assistant.")
    ] = None
    user_model: Annotated[str | None, declare_option("--user-model", "Model of the AI user.")] = None
    task_model: Annotated[str | None, declare_option("--task-model", "Model of specifier and planner.")] = (
        None
    )
    critic_model: Annotated[str | None, declare_option("--critic-model", "Model of the critic.")] = None
    base_url: Annotated[str | None, declare_option("--base-url", "Endpoint of openai:NAME.")] = None
    window: Annotated[
        int | None, declare_option("--window", "Context window of openai:NAME, in tokens.", min=1)
    ] = None
    timeout: Annotated[float, declare_option("--timeout", "Longest wait for a reply, in seconds.", min=0)] = (
        600.0
    )
    max_wait: Annotated[
        float,
        declare_option(
            "--max-wait",
            "Seconds that an endpoint may ask to wait; one that fails gets three times as long.",
            min=0,
        ),
    ] = 600.0

    def by_agent(self) -> dict[str, str]:
        """The models that single agents have."""
        given = {
            "assistant": self.assistant_model,
            "user": self.user_model,
            "task": self.task_model,
            "critic": self.critic_model,
        }
        return {agent: name for agent, name in given.items() if name is not None}

    def open(self, *, person: bool, idea: str | None) -> tuple[ModelOptions, StopControl]:
        """How to reach the models, with the person at the keyboard if one takes part."""
        brake = StopControl()
        options = read_model_options(
            self.base_url, window=self.window, timeout=self.timeout, longest_wait=self.max_wait
        )
        return (add_person(options, brake, idea) if person else options), brake


@dataclass(frozen=True, slots=True)
class CriticFlags:
    """Who chooses what is said."""

    critic: Annotated[
        str | None,
        declare_option("--critic", "Role that chooses what is said among several proposals; human is you."),
    ] = None
    proposals: Annotated[int, declare_option("--proposals", "Proposals for each turn.", min=1, max=100)] = 3
    critic_rounds: Annotated[
        int,
        declare_option(
            "--critic-rounds", "Rounds of proposals for a turn; the critic's feedback begins another.", min=1
        ),
    ] = 1
    criteria: Annotated[
        str | None,
        declare_option("--criteria", "What the critic looks for. Default: how well the task is done."),
    ] = None
    search: Annotated[
        str | None,
        declare_option(
            "--search", "beam:WIDTHxDEPTH: lines that are kept alive, and turns that are looked ahead."
        ),
    ] = None
    unreadable: Annotated[
        Unreadable,
        declare_option(
            "--unreadable", "After a choice that cannot be read, twice: the first proposal, or failure."
        ),
    ] = Unreadable.first

    def read(self) -> Critic | None:
        """The critic; None if there is to be none. Raises InputError for a search without one."""
        if self.critic is not None:
            critic = Critic(
                self.critic,
                self.proposals,
                self.critic_rounds,
                search=self.search,
                unreadable=self.unreadable.value,
            )
            return replace(critic, criteria=self.criteria) if self.criteria else critic
        if self.search is None:
            return None
        raise InputError(
            "A search needs a critic that ranks its lines.", where="--search", next="Give --critic ROLE, too."
        )


@dataclass(frozen=True, slots=True)
class ToolFlags:
    """What an agent may call."""

    tools: Annotated[
        list[str] | None,
        declare_option("--tools", "Python functions that an agent may call: FILE.py or FILE.py:NAME,NAME."),
    ] = None
    mcp: Annotated[
        list[str] | None,
        declare_option(
            "--mcp", "Command line of an MCP server whose tools an agent may call. Can be given often."
        ),
    ] = None
    tools_for: Annotated[Side, declare_option("--tools-for", "Who may call them.")] = Side.assistant
    tool_timeout: Annotated[float, declare_option("--tool-timeout", "Seconds for one call.", min=0.001)] = (
        30.0
    )
    tool_rounds: Annotated[
        int, declare_option("--tool-rounds", "Replies of a turn that may call tools.", min=1, max=100)
    ] = 8

    def read(self) -> dict[str, list[str]]:
        """The tools by agent."""
        listed = [*(self.tools or ()), *(f"mcp:{command}" for command in self.mcp or ())]
        return {self.tools_for.value: listed} if listed else {}


@dataclass(frozen=True, slots=True)
class SessionFlags:
    """How the conversation goes and ends."""

    specify: Annotated[bool, declare_option("--specify/--no-specify", "Make the idea concrete first.")] = True
    word_limit: Annotated[int, declare_option("--word-limit", "Words of the specified task.", min=1)] = 50
    plan: Annotated[bool, declare_option("--plan", "Divide the task into subtasks first.")] = False
    protocol: Annotated[
        Protocol | None,
        declare_option("--protocol", "Default: enforced if the built-in model plays both, else free."),
    ] = None
    endings: Annotated[
        str,
        declare_option(
            "--endings",
            "default, paper, camel, or endings one by one, as in task_done,user_no_instruct=3,max_messages=40.",
        ),
    ] = "default"
    max_messages: Annotated[
        int | None,
        declare_option("--max-messages", "Default: 40, or 12 if the built-in model plays both.", min=1),
    ] = None
    seed: Annotated[int | None, declare_option("--seed", "Seed of the sampling.")] = None
    language: Annotated[str | None, declare_option("--language", "Language in which to answer.")] = None
    prompts: Annotated[
        str | None,
        declare_option(
            "--prompts", "Prompt pack: a name or a .toml file. Default: ai-society, or its small one."
        ),
    ] = None


@flatten_groups
def play(
    idea: Annotated[
        str | None,
        typer.Argument(
            help="What to do, in one sentence; - reads it from standard input.",
            show_default="the paper's example",
        ),
    ] = None,
    *,
    roles: RoleFlags,
    models: ModelFlags,
    flags: SessionFlags,
    critic: CriticFlags,
    tools: ToolFlags,
    society: Annotated[
        str | None,
        declare_option("--society", "More agents, or more conversations: a society's name or .toml file."),
    ] = None,
    run_file: Annotated[
        Path | None, declare_option("--run", "Store the session here; the same command resumes it.")
    ] = None,
    json: Annotated[bool, declare_option("--json", "Write events as JSON lines.")] = False,
) -> None:
    """Watch two agents solve a task."""
    if society is not None:
        check_flags(roles, models, flags, critic, tools)
        _play_society(society, idea, models, flags, run_file, json=json)
    if idea is None:
        idea, flags = EXAMPLE[0], replace(flags, seed=EXAMPLE_SEED if flags.seed is None else flags.seed)
    pair = choose_roles(
        roles.roles,
        (roles.assistant, EXAMPLE[1], roles.assistant_description),
        (roles.user, EXAMPLE[2], roles.user_description),
    )
    chosen = _choose_models(roles, models, critic)
    person = HUMAN in (*chosen.names.values(), critic.critic)
    options, brake = models.open(person=person, idea=idea)
    order = build_session_order(
        _read_idea(idea),
        pair,
        chosen,
        options,
        PlayOptions(
            specify=flags.specify,
            word_limit=flags.word_limit,
            plan=flags.plan,
            protocol=flags.protocol.value if flags.protocol else None,
            max_messages=flags.max_messages,
            seed=flags.seed,
            language=flags.language,
            prompts=flags.prompts,
            tool_rounds=tools.tool_rounds,
            tool_timeout=tools.tool_timeout,
        ),
        critic=critic.read(),
        tools=tools.read(),
        endings=flags.endings,
        run=run_file,
    )
    run_async(_play(order, json=json), resume=_explain_resume(run_file), brake=brake)


def check_flags(
    roles: RoleFlags, models: ModelFlags, flags: SessionFlags, critic: CriticFlags, tools: ToolFlags
) -> None:
    """Refuse flags that say what a society's file says.

    Raises:
        InputError: one of them was given.
    """
    given: Mapping[str, object] = {
        "--assistant": roles.assistant,
        "--user": roles.user,
        "--roles": roles.roles,
        "--as": roles.as_,
        "--critic": critic.critic,
        "--plan": flags.plan,
        "--tools": tools.tools,
        "--mcp": tools.mcp,
        "--search": critic.search,
        "--assistant-model": models.assistant_model,
        "--user-model": models.user_model,
        "--assistant-description": roles.assistant_description,
        "--user-description": roles.user_description,
    }
    if wrong := [flag for flag, value in given.items() if value]:
        raise InputError(
            f"{wrong[0]} does not go with --society.",
            where=wrong[0],
            next="Say it in the society's file; docs/societies.md shows how.",
        )


def _choose_models(roles: RoleFlags, models: ModelFlags, critic: CriticFlags) -> ChosenModels:
    """The model of each agent; a person takes the place of one."""
    by_agent = models.by_agent()
    if roles.as_ is not None:
        by_agent[roles.as_.value] = HUMAN
    if critic.critic == HUMAN:
        by_agent["critic"] = HUMAN
    agents = (*AGENTS, "critic") if critic.critic else AGENTS
    return choose_models(agents, models.model, by_agent)


def _play_society(
    name: str, idea: str | None, models: ModelFlags, flags: SessionFlags, run_file: Path | None, *, json: bool
) -> NoReturn:
    """Play a society and end the command."""
    society, prompts = load_society(name)
    names = name_models(
        society,
        models.model,
        task_model=models.task_model or models.model,
        critic_model=models.critic_model or models.model,
    )
    options, brake = models.open(person=HUMAN in names.values(), idea=idea)
    protocol = flags.protocol.value if flags.protocol else None
    rules, paper = read_endings(flags.endings)
    wish = SocietyRun(
        society,
        prompts,
        _read_idea(idea or society.task),
        ChatOptions(names, flags.language, flags.seed, flags.max_messages, protocol),
        flags.prompts,
        paper_endings=paper,
        endings=rules,
    )
    work = _watch_society(wish, options, run_file, json=json)
    run_async(work, resume=_explain_resume(run_file), brake=brake)


def _explain_resume(run_file: Path | None) -> str:
    if run_file is None:
        return "Nothing was stored; --run FILE keeps a session."
    return "All that was said is kept: run the same command again to go on."


def _read_idea(given: str) -> str:
    """The idea, from standard input where a dash stands for it."""
    if given != "-":
        return given
    # What is not UTF-8 becomes what the check of the idea refuses with a clear error.
    return sys.stdin.buffer.read().decode(errors="surrogateescape").strip()


async def _play(order: SessionOrder, *, json: bool) -> int:
    """Play the session and give the exit code."""
    watching = choose_viewer(json=json)
    async with aclosing(play_one(order, watching.listener)) as events:
        with watching.waiting("thinking about the task"):
            event = await anext(events)
        if isinstance(event, Started):
            watching.show(event)
        raise_failure(event)
        async for event in events:
            watching.show(event)
            raise_failure(event)
    return 0


async def _watch_society(
    wish: SocietyRun, options: ModelOptions, run_file: Path | None, *, json: bool
) -> int:
    """Play the society's stages and give the exit code."""
    watching = choose_viewer(json=json)
    started = False
    events: AsyncGenerator[Event] = play_one_society(wish, options, run_file, watching.listener)
    async with aclosing(events):
        async for event in events:
            started = started or isinstance(event, Started)
            if started:
                watching.show(event)
            raise_failure(event)
    return 0
