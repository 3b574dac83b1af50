"""The flags of ``bactrian play`` that Python has in another form: roles, tools, and where a session goes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from bactrian.api.arguments import check_critic
from bactrian.cli.view.watching import PlayKeeper
from bactrian.errors import InputError
from bactrian.models.budget import UsageMeter
from bactrian.options import (
    JSON,
    MCP,
    OUT,
    OVERWRITE,
    RUN,
    TOOLS,
    YES,
    AgentModels,
    Option,
    PlayOptions,
    list_options,
)
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.setup import ROLES


class Side(StrEnum):
    """A side of the conversation."""

    user = "user"
    assistant = "assistant"


class PlayFlags(PlayOptions, AgentModels, total=False):
    """The options of Python's :func:`bactrian.play`, and a model for each agent."""


@dataclass(frozen=True, slots=True)
class RoleFlags:
    """The roles, and the side of a person."""

    assistant: Annotated[str | None, Option("--assistant", f"Role that solves. Default: {ROLES[0]}.")] = None
    user: Annotated[str | None, Option("--user", f"Role that instructs. Default: {ROLES[1]}.")] = None
    assistant_description: Annotated[
        str, Option("--assistant-description", "Description of the role that solves.")
    ] = ""
    user_description: Annotated[
        str, Option("--user-description", "Description of the role that instructs.")
    ] = ""
    roles: Annotated[
        Path | None,
        Option(
            "--roles",
            "Output of `bactrian roles --json`: first the role that solves, then the role that instructs.",
        ),
    ] = None
    yes: Annotated[bool, YES, "Let --embodied run code without asking first."] = False
    as_: Annotated[Side | None, Option("--as", "The side that you play yourself.")] = None


@dataclass(frozen=True, slots=True)
class ToolFlags:
    """The tools of one agent."""

    tools: Annotated[
        list[str] | None,
        TOOLS,
    ] = None
    mcp: Annotated[
        list[str] | None,
        MCP,
    ] = None
    tools_for: Annotated[Side, Option("--tools-for", "Agent that may call them.")] = Side.assistant

    @property
    def names(self) -> list[str]:
        """The tools, as :func:`bactrian.play` takes them."""
        return [*(self.tools or ()), *(f"mcp:{command}" for command in self.mcp or ())]


@dataclass(frozen=True, slots=True)
class OutputFlags:
    """Where a session goes, and what is shown of it."""

    run_file: Annotated[
        Path | None,
        RUN,
        "Store the session here; the same command resumes it. Default: in your data folder.",
    ] = None
    keep_: Annotated[
        bool, Option("--keep/--no-keep", "Keep a session without --run in your data folder.")
    ] = True
    out: Annotated[
        Path | None,
        OUT,
        "Also write the conversation to this file, as .md, .html or .json.",
    ] = None
    overwrite: Annotated[bool, OVERWRITE, "Replace the file of --out."] = False
    raw: Annotated[
        bool,
        Option("--raw", "Show each text as it came, with the protocol's words and without Markdown."),
    ] = False
    json: Annotated[bool, JSON, "Write events as JSON lines."] = False

    def keep(self, meter: UsageMeter | None = None) -> PlayKeeper:
        """Return what keeps the session as the flags say; ``meter`` counts what it uses.

        Raises:
            InputError: the file of ``--out`` cannot be written.
        """
        if self.out is not None:
            _check_out(self.out, overwrite=self.overwrite)
        return PlayKeeper(
            self.run_file, keep=self.keep_, json=self.json, raw=self.raw, out=self.out, meter=meter
        )


def _check_out(out: Path, *, overwrite: bool) -> None:
    """Refuse a file that could not be written in the end: the conversation may be long and expensive."""
    if out.suffix not in (".md", ".html", ".json"):
        raise InputError(
            f"A conversation is not written as {out.suffix or 'a file without a suffix'}.",
            where=str(out),
            next="Name a file that ends in .md, .html or .json.",
        )
    if out.is_dir() or (out.exists() and not overwrite):
        raise InputError("It exists.", where=str(out), next="Name another file, or give --overwrite.")
    if not out.absolute().parent.is_dir():
        raise InputError(
            "Its folder does not exist.", where=str(out), next="Make the folder, or name another."
        )


def split_models(options: Mapping[str, Any]) -> tuple[str | None, dict[str, str], dict[str, Any]]:
    """Split flags into the model of all agents, the models by agent, and all others."""
    flags = {declared.name for declared in list_options(AgentModels)}
    agents = {"list": "lister"}
    named = {name.removesuffix("_model"): value for name, value in options.items() if name in flags}
    rest = {name: value for name, value in options.items() if name not in flags}
    model = named.pop("model", None)
    return model, {agents.get(agent, agent): name for agent, name in named.items()}, rest


def check_critic_flags(
    critic: str | None, models: Mapping[str, str], sampling: Mapping[str, Any], hint: str
) -> None:
    """Refuse flags of a critic if there is none. A variable of the environment may name its model for all commands.

    Raises:
        InputError: such a flag was given.
    """
    model = models.get("critic")
    given = {
        "--critic-model": None if model in (os.environ.get("BACTRIAN_CRITIC_MODEL"), HUMAN) else model,
        "--critic-temperature or its like": sampling.get("critic"),
    }
    check_critic(critic, given, hint)
