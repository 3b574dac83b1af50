"""``bactrian play``: one conversation, live."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bactrian.cli.options import declare_option
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.sampling_options import add_sampling_flags
from bactrian.errors import ContextFull, ModelError

if TYPE_CHECKING:
    from bactrian.play.run_session import SessionOrder
    from bactrian.records.events import Event

EXAMPLE = ("Develop a trading bot for the stock market", "Python Programmer", "Stock Trader")
"""The paper's example: idea, assistant role, user role."""
EXAMPLE_SEED = 7
"""So that the example is the conversation in the README."""


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


@add_sampling_flags
def play(
    idea: Annotated[
        str | None,
        typer.Argument(
            help="What to do, in one sentence; - reads it from standard input.",
            show_default="the paper's example",
        ),
    ] = None,
    assistant: Annotated[
        str | None, declare_option("--assistant", f"Role that solves. Default: {EXAMPLE[1]}.")
    ] = None,
    user: Annotated[
        str | None, declare_option("--user", f"Role that instructs. Default: {EXAMPLE[2]}.")
    ] = None,
    assistant_description: Annotated[
        str, declare_option("--assistant-description", "Who the role that solves is, and what it can do.")
    ] = "",
    user_description: Annotated[
        str, declare_option("--user-description", "Who the role that instructs is, and what it can do.")
    ] = "",
    roles: Annotated[
        Path | None,
        declare_option(
            "--roles", "What `bactrian roles --json` wrote: one that solves, then one that instructs."
        ),
    ] = None,
    model: Annotated[
        str, declare_option("--model", "Model of every agent; see `bactrian models`.")
    ] = "local",
    assistant_model: Annotated[
        str | None, declare_option("--assistant-model", "Model of the AI assistant.")
    ] = None,
    user_model: Annotated[str | None, declare_option("--user-model", "Model of the AI user.")] = None,
    task_model: Annotated[
        str | None, declare_option("--task-model", "Model of specifier and planner.")
    ] = None,
    base_url: Annotated[str | None, declare_option("--base-url", "Endpoint of openai:NAME.")] = None,
    specify: Annotated[
        bool, declare_option("--specify/--no-specify", "Make the idea concrete first.")
    ] = True,
    word_limit: Annotated[int, declare_option("--word-limit", "Words of the specified task.", min=1)] = 50,
    plan: Annotated[bool, declare_option("--plan", "Divide the task into subtasks first.")] = False,
    protocol: Annotated[
        Protocol | None,
        declare_option("--protocol", "Default: enforced if the built-in model plays both, else free."),
    ] = None,
    critic: Annotated[
        str | None,
        declare_option("--critic", "Role that chooses what is said among several proposals; human is you."),
    ] = None,
    as_: Annotated[Side | None, declare_option("--as", "The side that you play yourself.")] = None,
    critic_model: Annotated[str | None, declare_option("--critic-model", "Model of the critic.")] = None,
    proposals: Annotated[int, declare_option("--proposals", "Proposals for each turn.", min=1, max=100)] = 3,
    critic_rounds: Annotated[
        int,
        declare_option(
            "--critic-rounds", "Rounds of proposals for a turn; the critic's feedback begins another.", min=1
        ),
    ] = 1,
    criteria: Annotated[
        str | None,
        declare_option("--criteria", "What the critic looks for. Default: how well the task is done."),
    ] = None,
    search: Annotated[
        str | None,
        declare_option(
            "--search", "beam:WIDTHxDEPTH: lines that are kept alive, and turns that are looked ahead."
        ),
    ] = None,
    unreadable: Annotated[
        Unreadable,
        declare_option(
            "--unreadable", "After a choice that cannot be read, twice: the first proposal, or failure."
        ),
    ] = Unreadable.first,
    tools: Annotated[
        list[str] | None,
        declare_option("--tools", "Python functions that an agent may call: FILE.py or FILE.py:NAME,NAME."),
    ] = None,
    mcp: Annotated[
        list[str] | None,
        declare_option(
            "--mcp", "Command line of an MCP server whose tools an agent may call. Can be given often."
        ),
    ] = None,
    tools_for: Annotated[Side, declare_option("--tools-for", "Who may call them.")] = Side.assistant,
    tool_timeout: Annotated[
        float, declare_option("--tool-timeout", "Seconds for one call.", min=0.001)
    ] = 30.0,
    tool_rounds: Annotated[
        int, declare_option("--tool-rounds", "Replies of a turn that may call tools.", min=1, max=100)
    ] = 8,
    endings: Annotated[
        str,
        declare_option(
            "--endings",
            "default, paper, camel, or endings one by one, as in task_done,user_no_instruct=3,max_messages=40.",
        ),
    ] = "default",
    max_messages: Annotated[
        int | None,
        declare_option("--max-messages", "Default: 40, or 12 if the built-in model plays both.", min=1),
    ] = None,
    seed: Annotated[int | None, declare_option("--seed", "Seed of the sampling.")] = None,
    language: Annotated[str | None, declare_option("--language", "Language in which to answer.")] = None,
    prompts: Annotated[
        str | None,
        declare_option(
            "--prompts", "Prompt pack: a name or a .toml file. Default: ai-society, or its small one."
        ),
    ] = None,
    window: Annotated[
        int | None, declare_option("--window", "Context window of openai:NAME, in tokens.", min=1)
    ] = None,
    timeout: Annotated[
        float, declare_option("--timeout", "Longest wait for a reply, in seconds.", min=0)
    ] = 600.0,
    max_wait: Annotated[
        float,
        declare_option(
            "--max-wait",
            "Seconds that an endpoint may ask to wait; one that fails gets three times as long.",
            min=0,
        ),
    ] = 600.0,
    society: Annotated[
        str | None,
        declare_option("--society", "More agents, or more conversations: a society's name or .toml file."),
    ] = None,
    run_file: Annotated[
        Path | None, declare_option("--run", "Store the session here; the same command takes it up again.")
    ] = None,
    json: Annotated[bool, declare_option("--json", "Write events as JSON lines.")] = False,
    sampling: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Watch two agents solve a task."""
    from bactrian.cli.commands.roles import choose_roles
    from bactrian.cli.critic_options import read_critic_settings
    from bactrian.cli.model_options import read_model_options
    from bactrian.cli.terminal.keyboard import add_person
    from bactrian.play.human import HUMAN
    from bactrian.play.own_endings import read_endings
    from bactrian.play.run_session import SessionOrder
    from bactrian.play.setup import RolePlaySetup
    from bactrian.prompts.pack import load_pack
    from bactrian.recipes.parameters import read_parameters
    from bactrian.recipes.schema import ToolsSpec

    rules, paper = read_endings(endings)
    if society is not None:
        from bactrian.cli.commands.society import check_flags, play_society
        from bactrian.play.society.group_chat import ChatOptions
        from bactrian.play.society.stages import SocietyRun, name_models
        from bactrian.recipes.society import load_society

        inside = {
            "--assistant": assistant,
            "--user": user,
            "--roles": roles,
            "--as": as_,
            "--critic": critic,
            "--plan": plan,
            "--tools": tools,
            "--mcp": mcp,
            "--search": search,
            "--assistant-model": assistant_model,
            "--user-model": user_model,
            "--assistant-description": assistant_description,
            "--user-description": user_description,
            "--temperature and its like": sampling,
        }
        check_flags(inside)
        loaded, templates = load_society(society)
        names = name_models(loaded, model, task_model=task_model or model, critic_model=critic_model or model)
        reach = read_model_options(base_url, window=window, timeout=timeout, longest_wait=max_wait)
        given = {model, task_model, critic_model}
        reach = replace(reach, distrusted=frozenset(names.values()) - given)
        brake = StopControl()
        if HUMAN in names.values():
            reach = add_person(reach, brake, idea)
        wish = SocietyRun(
            loaded,
            templates,
            _idea(idea or loaded.task),
            ChatOptions(names, language, seed, max_messages, protocol.value if protocol else None),
            prompts,
            paper_endings=paper,
            endings=rules,
        )
        run_async(play_society(wish, reach, run_file, json=json), resume=_resume(run_file), brake=brake)
    if idea is None:
        idea, seed = EXAMPLE[0], EXAMPLE_SEED if seed is None else seed
    solves, instructs = choose_roles(
        roles, (assistant, EXAMPLE[1], assistant_description), (user, EXAMPLE[2], user_description)
    )
    reach = read_model_options(base_url, window=window, timeout=timeout, longest_wait=max_wait)
    brake = StopControl()
    if as_ is not None or HUMAN in (critic, model, user_model, assistant_model, task_model, critic_model):
        reach = add_person(reach, brake, idea)
    setup = RolePlaySetup(
        idea=_idea(idea),
        assistant=solves,
        user=instructs,
        models={
            "task_specifier": task_model or model,
            "task_planner": task_model or model,
            "user": HUMAN if as_ is Side.user else user_model or model,
            "assistant": HUMAN if as_ is Side.assistant else assistant_model or model,
            **({"critic": HUMAN if critic == HUMAN else critic_model or model} if critic else {}),
        },
        specify=specify,
        word_limit=word_limit,
        plan=plan,
        protocol=protocol.value if protocol else None,
        paper_endings=paper,
        endings=rules,
        max_messages=max_messages,
        seed=seed,
        language=language,
        critic=read_critic_settings(critic, proposals, critic_rounds, criteria, unreadable.value, search),
        parameters=read_parameters(sampling, "flags").by_agent(),
    )
    wanted = {
        tools_for.value: ToolsSpec(
            python=tuple(tools or ()), mcp=tuple(mcp or ()), rounds=tool_rounds, seconds=tool_timeout
        )
    }
    order = SessionOrder(
        setup, load_pack(prompts or setup.pack), reach, wanted if tools or mcp else {}, run_file
    )
    run_async(_play(order, json=json), resume=_resume(run_file), brake=brake)


def _resume(run_file: Path | None) -> str:
    if run_file is None:
        return "Nothing was stored; --run FILE keeps a session."
    return "All that was said is kept: run the same command again to go on."


def _idea(given: str) -> str:
    """The idea, from standard input where a dash stands for it."""
    if given != "-":
        return given
    # What is not UTF-8 becomes what the check of the idea refuses with a clear error.
    return sys.stdin.buffer.read().decode(errors="surrogateescape").strip()


async def _play(order: SessionOrder, *, json: bool) -> int:
    """Play the session and give the exit code."""
    from bactrian.cli.view.audience import choose_viewer
    from bactrian.play.run_session import play_one
    from bactrian.records.events import Started

    watching = choose_viewer(json=json)
    async with aclosing(play_one(order, watching.listener)) as events:
        with watching.waiting("thinking about the task"):
            event = await anext(events)
        if isinstance(event, Started):
            watching.show(event)
        else:
            _raise_failure(event)
        async for event in events:
            watching.show(event)
            _raise_failure(event)
    return 0


def _raise_failure(event: Event) -> None:
    """Raise the error of a session that a fault ended."""
    from bactrian.records.events import Ended

    if isinstance(event, Ended) and event.ending.code == "failed":
        raise event.error or ModelError(event.ending.evidence)
    if isinstance(event, Ended) and event.ending.code == "token_limit" and not event.ending.turn:
        raise ContextFull(
            f"Nothing could be said: {event.ending.evidence.partition(chr(10))[0]}",
            next="Use a model with a larger window, or a shorter idea.",
        )
