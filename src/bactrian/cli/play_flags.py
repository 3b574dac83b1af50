"""The flags of ``bactrian play``, in groups."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypedDict

import typer

from bactrian.api.arguments import Critic
from bactrian.api.checks import check_critic
from bactrian.api.models import ChosenModels, make_meter
from bactrian.cli.model_options import read_model_options
from bactrian.cli.options import declare_option
from bactrian.cli.run_async import StopControl
from bactrian.cli.terminal.keyboard import add_person
from bactrian.errors import InputError
from bactrian.models.registry import ModelOptions
from bactrian.play.setup_defaults import ROLES


class Protocol(StrEnum):
    """Whether the inception protocol is enforced."""

    free = "free"
    enforced = "enforced"


class Unreadable(StrEnum):
    """The effect of an unreadable choice of the critic."""

    first = "first"
    fail = "fail"


class Side(StrEnum):
    """A side of the conversation."""

    user = "user"
    assistant = "assistant"


@dataclass(frozen=True, slots=True)
class RoleFlags:
    """The roles."""

    assistant: Annotated[
        str | None, declare_option("--assistant", f"Role that solves. Default: {ROLES[0]}.")
    ] = None
    user: Annotated[str | None, declare_option("--user", f"Role that instructs. Default: {ROLES[1]}.")] = None
    assistant_description: Annotated[
        str, declare_option("--assistant-description", "Description of the role that solves.")
    ] = ""
    user_description: Annotated[
        str, declare_option("--user-description", "Description of the role that instructs.")
    ] = ""
    roles: Annotated[
        Path | None,
        declare_option(
            "--roles",
            "Output of `bactrian roles --json`: first the role that solves, then the role that instructs.",
        ),
    ] = None
    embodied: Annotated[
        str | None,
        declare_option(
            "--embodied",
            "Role that acts by writing Python, which runs in a sandbox: alone, or with --user as the role that solves.",
        ),
    ] = None
    yes: Annotated[bool, declare_option("--yes", "Let --embodied run code without asking first.")] = False
    as_: Annotated[Side | None, declare_option("--as", "The side that you play yourself.")] = None


class _Addresses(TypedDict):
    base_url: str | None
    window: int | None
    timeout: float
    max_wait: float
    budget: float | None
    price: str | None


@dataclass(frozen=True, slots=True)
class ModelFlags:
    """The models and their endpoints."""

    model: Annotated[
        str | None,
        declare_option(
            "--model",
            "Model of every agent; see `bactrian models`. Default: local, or the assistant's if both sides have one.",
        ),
    ] = None
    assistant_model: Annotated[
        str | None, declare_option("--assistant-model", "Model of the AI assistant.")
    ] = None
    user_model: Annotated[str | None, declare_option("--user-model", "Model of the AI user.")] = None
    task_model: Annotated[
        str | None, declare_option("--task-model", "Model of the task specifier and planner.")
    ] = None
    critic_model: Annotated[str | None, declare_option("--critic-model", "Model of the critic.")] = None
    base_url: Annotated[str | None, declare_option("--base-url", "Endpoint of openai:NAME.")] = None
    window: Annotated[
        int | None, declare_option("--window", "Context window of openai:NAME, in tokens.", min=1)
    ] = None
    timeout: Annotated[
        float, declare_option("--timeout", "Longest wait for a reply, in seconds.", min=0.001)
    ] = 600.0
    max_wait: Annotated[
        float,
        declare_option(
            "--max-wait",
            "Longest wait that an endpoint may ask for, in seconds; three times as long if it fails.",
            min=0,
        ),
    ] = 600.0

    budget: Annotated[
        float | None,
        declare_option("--budget", "Stop before this command costs more than this many US dollars.", min=0),
    ] = None
    price: Annotated[
        str | None,
        declare_option(
            "--price", "US dollars per million tokens, prompt/completion[/cached]. Default: a table."
        ),
    ] = None

    def by_agent(self) -> dict[str, str]:
        """Return the models given for single agents."""
        given = {
            "assistant": self.assistant_model,
            "user": self.user_model,
            "task": self.task_model,
            "critic": self.critic_model,
        }
        return {agent: name for agent, name in given.items() if name is not None}

    def addresses(self) -> _Addresses:
        """Return what the flags say about the endpoint, to store it with a session."""
        return _Addresses(
            base_url=self.base_url or os.environ.get("OPENAI_BASE_URL") or None,
            window=self.window,
            timeout=self.timeout,
            max_wait=self.max_wait,
            budget=self.budget,
            price=self.price,
        )

    def open(
        self, models: ChosenModels, *, person: bool, idea: str | None
    ) -> tuple[ModelOptions, StopControl]:
        """Return the options for opening ``models``, with the person at the keyboard if one takes part."""
        stop_control = StopControl()
        options = read_model_options(
            self.base_url,
            *models.names.values(),
            window=self.window,
            timeout=self.timeout,
            longest_wait=self.max_wait,
        )
        meter = make_meter(models, price=self.price, budget=self.budget, base_url=options.base_url)
        options = replace(options, meter=meter)
        return (add_person(options, stop_control, idea) if person else options), stop_control


def _keep_words_together(
    ctx: typer.Context, param: typer.CallbackParam, value: list[str] | None
) -> list[str] | None:
    """Keep a text from the environment whole: click would split it at its spaces for a repeatable option."""
    source = ctx.get_parameter_source(param.name or "")
    return [" ".join(value)] if value and source is not None and source.name == "ENVIRONMENT" else value


@dataclass(frozen=True, slots=True)
class CriticFlags:
    """The critic."""

    critics: Annotated[
        list[str] | None,
        declare_option(
            "--critic",
            "Role that chooses each turn among several proposals; human stands for you.",
            callback=_keep_words_together,
        ),
    ] = None
    proposals: Annotated[int, declare_option("--proposals", "Proposals for each turn.", min=1, max=100)] = 3
    critic_rounds: Annotated[
        int,
        declare_option(
            "--critic-rounds",
            "Maximum rounds of proposals for a turn; the critic's feedback starts another round.",
            min=1,
        ),
    ] = 1
    criteria: Annotated[
        str | None,
        declare_option("--criteria", "Criteria of the choice. Default: how well the task is done."),
    ] = None
    search: Annotated[
        str | None,
        declare_option("--search", "Search ahead: the number of lines to keep, and of turns to look ahead."),
    ] = None
    unreadable: Annotated[
        Unreadable,
        declare_option("--unreadable", "After two unreadable choices: take the first proposal, or fail."),
    ] = Unreadable.first

    @property
    def critic(self) -> str | None:
        """The critic's role; None without a critic.

        Raises:
            InputError: several were given.
        """
        if self.critics is not None and len(self.critics) > 1:
            listed = ", ".join(map(repr, self.critics))
            raise InputError(
                f"A conversation has one critic, and {len(self.critics)} were given: {listed}.",
                where="--critic",
                next="Give one; several critics are a society: --society panel, or a file of your own.",
            )
        return self.critics[0] if self.critics else None

    def check(self, model: str | None, sampling: Mapping[str, Any]) -> None:
        """Refuse options of a critic if there is none.

        Raises:
            InputError: such an option was given.
        """
        given = {
            "--critic-model": None if model == os.environ.get("BACTRIAN_CRITIC_MODEL") else model,
            "--critic-temperature or its like": sampling.get("critic"),
        }
        check_critic(self.critic, given, "Give --critic ROLE, too.")

    def read(self) -> Critic | None:
        """Return the critic; None if not given. Raises InputError for a search without a critic."""
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
    """The tools."""

    tools: Annotated[
        list[str] | None,
        declare_option(
            "--tools",
            "Python functions that an agent may call: FILE.py or FILE.py:NAME,NAME. Can be repeated.",
        ),
    ] = None
    mcp: Annotated[
        list[str] | None,
        declare_option(
            "--mcp", "Command line of an MCP server whose tools an agent may call. Can be repeated."
        ),
    ] = None
    tools_for: Annotated[Side, declare_option("--tools-for", "Agent that may call them.")] = Side.assistant
    tool_timeout: Annotated[
        float, declare_option("--tool-timeout", "Time limit of one call, in seconds.", min=0.001)
    ] = 30.0
    tool_rounds: Annotated[
        int, declare_option("--tool-rounds", "Maximum replies of a turn that call tools.", min=1, max=100)
    ] = 8

    def read(self) -> dict[str, list[str]]:
        """Return the tools by agent."""
        listed = [*(self.tools or ()), *(f"mcp:{command}" for command in self.mcp or ())]
        return {self.tools_for.value: listed} if listed else {}


@dataclass(frozen=True, slots=True)
class SessionFlags:
    """The task, the protocol and the endings."""

    specify: Annotated[
        bool | None,
        declare_option(
            "--specify/--no-specify",
            "Make the idea concrete first. Default: yes; no for your own idea on the built-in model.",
        ),
    ] = None
    word_limit: Annotated[int, declare_option("--word-limit", "Word limit of the specified task.", min=1)] = (
        50
    )
    plan: Annotated[bool, declare_option("--plan", "Divide the task into subtasks first.")] = False
    protocol: Annotated[
        Protocol | None,
        declare_option(
            "--protocol",
            "Whether grammars enforce the protocol. Default: enforced if the built-in model plays both, else free.",
        ),
    ] = None
    endings: Annotated[
        str,
        declare_option(
            "--endings",
            "Rules that end the conversation: default, paper, camel, or a list as in "
            "task_done,user_no_instruct=3,max_messages=40.",
        ),
    ] = "default"
    max_messages: Annotated[
        int | None,
        declare_option(
            "--max-messages",
            "Maximum number of messages. Default: 40, or 8 if the built-in model plays both.",
            min=1,
        ),
    ] = None
    seed: Annotated[int | None, declare_option("--seed", "Seed of the sampling.")] = None
    language: Annotated[str | None, declare_option("--language", "Language of the conversation.")] = None
    prompts: Annotated[
        str | None,
        declare_option(
            "--prompts", "Prompt pack: a name or a .toml file. Default: ai-society, or a small one."
        ),
    ] = None
