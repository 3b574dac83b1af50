"""``bactrian play``: one conversation, live; ``bactrian roles``: the roles that a task needs."""

from __future__ import annotations

import json as jsonlib
import shlex
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Unpack, cast

from bactrian import options as opts
from bactrian.api.arguments import LOCAL
from bactrian.api.conversation import order_session
from bactrian.cli.flags import SPEAKERS, Argument, FieldsOf, SamplingFlags
from bactrian.cli.model_options import read_model_options, split_models
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.settings import list_given
from bactrian.cli.terminal.console import open_progress
from bactrian.cli.terminal.keyboard import ask_consent
from bactrian.cli.view.watching import OutputFlags, PlayKeeper
from bactrian.errors import InputError, explain_os_errors
from bactrian.models.model import Model
from bactrian.models.open import ModelOptions
from bactrian.recipes.parameters import read_parameters
from bactrian.records.session import Role, check_name, check_text
from bactrian.records.text import to_json, to_line, to_printable
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.role_assignment import RoleSuggestions, SuggestedRole, find_roles
from bactrian.roleplay.role_play import SessionOrder
from bactrian.roleplay.setup import EXAMPLE, ROLES
from bactrian.roleplay.start import open_models

# ``bactrian roles``: the roles that a task needs.


_LARGEST = 1 << 20


def roles(
    task: Annotated[str, Argument("The task; - reads it from standard input.")],
    count: Annotated[int, opts.COUNT, "Number of roles."] = 2,
    model: Annotated[str, opts.MODEL] = "local",
    base_url: opts.BaseUrl = None,
    language: Annotated[opts.Language, "Language of the answer."] = None,
    seed: opts.Seed = None,
    timeout: opts.Timeout = 600.0,
    tier: opts.Tier = None,
    sampling: Annotated[Mapping[str, Any], SamplingFlags()] = MappingProxyType({}),
    names: Annotated[bool, opts.Option("--names", "Write names only, for a recipe's axis.")] = False,
    json: Annotated[bool, opts.JSON, "Write JSON lines, for `play --roles`."] = False,
) -> None:
    """Ask a model for the roles that a task needs."""

    task = sys.stdin.buffer.read().decode(errors="surrogateescape").strip() if task == "-" else task
    check_text(task, "task")
    if language is not None:
        check_name(language, "language")
    reach = read_model_options(base_url, model, timeout=timeout, tier=tier)
    parameters = read_parameters(sampling)
    asked = partial(find_roles, task, count, language=language, seed=seed, parameters=(parameters,))
    work = _roles(asked, model, reach, write=_writer(names=names, json=json))
    run_async(work, resume="Run the same command again.")


def read_experts(path: Path) -> list[SuggestedRole]:
    """Read a file written by ``bactrian roles --json``.

    Raises:
        InputError: the file cannot be read, or has other content.
    """

    where = str(path)
    action = f"Make the file: bactrian roles TASK --json > {shlex.quote(where)}"
    try:
        with explain_os_errors("The roles cannot be read", path, action), path.open("rb") as file:
            lines = file.read(_LARGEST).decode().splitlines()
        values: list[Any] = [jsonlib.loads(line) for line in lines if line.strip()]
        return [
            SuggestedRole(str(row["name"]), str(row["description"]), str(row.get("competencies", "")))
            for row in values
        ]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(
            "This file does not contain roles.",
            where=where,
            next="Make the file with `bactrian roles TASK --json`: a name and a description a line.",
        ) from error


_RoleArgument = tuple[str | None, str, str]  # Given name, default name, and description


def choose_roles(file: Path | None, *roles: _RoleArgument) -> tuple[Role, Role]:
    """Return the roles of both sides, by name or in the order of the file.

    Raises:
        InputError: the file cannot be used, or has too few roles.
    """

    known = [expert.role() for expert in read_experts(file)] if file else []
    taken = [name for name, _, _ in roles if name]
    free = [role for role in known if role.name not in taken]
    made: list[Role] = []
    for name, default, description in roles:
        if name is None and file is not None:
            if not free:
                raise InputError(
                    f"There are {len(known)} roles, and two are needed.",
                    where=str(file),
                    next="Make more: bactrian roles TASK --count 2 --json",
                )
            role = free.pop(0)
        else:
            role = next(
                (role for role in known if role.name == name), Role(default if name is None else name)
            )
        made.append(Role(role.name, description or role.description))
    return made[0], made[1]


def _writer(*, names: bool, json: bool) -> Any:

    def write(number: int, expert: SuggestedRole) -> None:
        if json:
            print(to_json(asdict(expert)), flush=True)
        elif names:
            print(to_line(expert.name), flush=True)
        else:
            print(to_printable(f"{number}. {expert.name}\n   {expert.description}"))
            if expert.competencies:
                print(to_printable(f"   Competencies: {expert.competencies}"))
            sys.stdout.flush()

    return write


async def _roles(
    ask: Callable[[Model], AsyncGenerator[RoleSuggestions]], name: str, reach: ModelOptions, *, write: Any
) -> int:

    written = 0
    suggested: RoleSuggestions | None = None
    async with open_models({"role_assigner": name}, reach) as (models, _):
        async for suggested in ask(models["role_assigner"]):
            for number, expert in enumerate(suggested.experts[written:], start=written + 1):
                write(number, expert)
            written = len(suggested.experts)
    if suggested is not None:
        usage = suggested.usage
        open_progress().say(
            f"{suggested.calls} calls, {usage.prompt:,} + {usage.completion:,} tokens", style="dim"
        )
    return 0


# ``bactrian play``: one conversation, live.


class Side(StrEnum):
    """A side of the conversation."""

    user = "user"
    assistant = "assistant"


class PlayFlags(opts.PlayOptions, opts.AgentModels, total=False):
    """The options of Python's :func:`bactrian.play`, and a model for each agent."""


@dataclass(frozen=True, slots=True)
class RoleFlags:
    """The roles, and the side of a person."""

    assistant: Annotated[
        str | None, opts.Option("--assistant", f"Role that solves. Default: {ROLES[0]}.")
    ] = None
    user: Annotated[str | None, opts.Option("--user", f"Role that instructs. Default: {ROLES[1]}.")] = None
    assistant_description: Annotated[
        str, opts.Option("--assistant-description", "Description of the role that solves.")
    ] = ""
    user_description: Annotated[
        str, opts.Option("--user-description", "Description of the role that instructs.")
    ] = ""
    roles: Annotated[
        Path | None,
        opts.Option(
            "--roles",
            "Output of `bactrian roles --json`: first the role that solves, then the role that instructs.",
        ),
    ] = None
    yes: Annotated[bool, opts.YES, "Let --embodied run code without asking first."] = False
    as_: Annotated[Side | None, opts.Option("--as", "The side that you play yourself.")] = None


@dataclass(frozen=True, slots=True)
class ToolFlags:
    """The tools of one agent."""

    tools: Annotated[list[str] | None, opts.TOOLS] = None
    mcp: Annotated[list[str] | None, opts.MCP] = None
    tools_for: Annotated[Side, opts.Option("--tools-for", "Agent that may call them.")] = Side.assistant

    @property
    def names(self) -> list[str]:
        """The tools, as :func:`bactrian.play` takes them."""
        return [*(self.tools or ()), *(f"mcp:{command}" for command in self.mcp or ())]


def play(
    idea: Annotated[
        str | None,
        Argument("The task, in one sentence; - reads it from standard input.", shown="the paper's example"),
    ] = None,
    *,
    roles: RoleFlags,
    endings: Annotated[
        str,
        opts.Option(
            "--endings",
            "Rules that end the conversation: default, paper, camel, or a list as in "
            "task_done,user_no_instruct=3,max_messages=40.",
        ),
    ] = "default",
    critic: Annotated[Mapping[str, Any], FieldsOf(opts.Critic)] = MappingProxyType({}),
    tools: ToolFlags,
    society: Annotated[
        str | None, opts.SOCIETY, "More agents, or more conversations: a society's name or .toml file."
    ] = None,
    output: OutputFlags,
    settings: Annotated[  # noqa: ARG001 (they have become the other options)
        list[str] | None,
        opts.SET,
        "Change a setting, as in critic.rounds=2, or name a .toml file of settings. Can be repeated.",
    ] = None,
    sampling: Annotated[Mapping[str, Any], SamplingFlags(SPEAKERS)] = MappingProxyType({}),
    **flags: Unpack[PlayFlags],
) -> None:
    """Watch two agents solve a task."""
    model, models, options = split_models(flags)
    stop_control = StopControl()
    if critic.get("role") == HUMAN:
        models["critic"] = HUMAN
    if society is not None:
        from bactrian.api.conversation import order_society

        _check_society(critic.get("role"))
        kept = {key: value for key, value in options.items() if key in opts.SocietyOptions.__annotations__}
        made = order_society(
            society,
            _read_idea(idea),
            model,
            models,
            cast("opts.SocietyOptions", kept),
            endings=endings,
            run=output.run_file,
        )
        keeper = PlayKeeper(output, made[1].meter)
        run_async(keeper.watch(made, stop_control, idea), resume=keeper, stop_control=stop_control)
    if roles.as_ is not None:
        models[roles.as_.value] = HUMAN
    for part, missing, of in (
        ("critic", "role" not in critic, "--critic ROLE"),
        ("tool", not tools.names, "--tools FILE.py"),
    ):
        names = (f"{part}_", f"{part}s_", f"sampling_{part}_")
        if missing and (
            flag := next((flag for name, flag in list_given().items() if name.startswith(names)), None)
        ):
            raise InputError(
                f"This is for the {part}, and there is no {part}.", where=flag, next=f"Give {of}, too."
            )
    text = _read_idea(idea)
    if (role := options.get("embodied")) is not None:
        _refuse({"--roles": roles.roles, "--as": roles.as_}, "--embodied", "Leave it out.")
        options["embodied"] = Role(role, roles.assistant_description)
    assistant, user = _choose_roles(roles, text, options)
    order = order_session(
        text,
        assistant,
        user,
        model,
        models,
        critic=opts.Critic(**critic) if "role" in critic else None,
        tools={tools.tools_for.value: tools.names},
        endings=endings,
        run=output.run_file,
        options=cast("opts.PlayOptions", {**options, "parameters": sampling}),
    )
    if role is not None:
        ask_consent(role, tools.names, yes=roles.yes)
    keeper = PlayKeeper(output, order.options.meter)
    names = set(order.setup.models.values()) if isinstance(order, SessionOrder) else set[str]()
    suggest = model is None and bool(names) and names <= {LOCAL, HUMAN} and not output.json
    work = keeper.watch(order, stop_control, idea, suggest=suggest)
    run_async(work, resume=keeper, stop_control=stop_control)


def _choose_roles(
    roles: RoleFlags, idea: str | None, options: Mapping[str, Any]
) -> tuple[Role | None, Role | None]:
    """Return the roles of assistant and user; for an embodied assistant, only those that were given."""
    if options.get("embodied") is not None:
        user = None if roles.user is None else Role(roles.user, roles.user_description)
        return (None if roles.assistant is None else Role(roles.assistant)), user
    defaults = EXAMPLE[1:] if idea in (None, EXAMPLE[0]) else ROLES
    return choose_roles(
        roles.roles,
        (roles.assistant, defaults[0], roles.assistant_description),
        (roles.user, defaults[1], roles.user_description),
    )


# What a society does not say itself.
_BESIDE_SOCIETY = frozenset(
    {
        *opts.SocietyOptions.__annotations__,
        *("model", "task_model", "critic_model", "endings", "society", "yes"),
        *("run_file", "keep", "out", "overwrite", "raw", "json"),
    }
)


def _check_society(critic: str | None) -> None:
    """Refuse options that contradict a society's file."""
    beside = {*_BESIDE_SOCIETY, "critic_role"} if critic == HUMAN else _BESIDE_SOCIETY
    flags = {flag: name not in beside for name, flag in list_given().items()}
    _refuse(
        flags,
        "--society",
        "Set it in the society's file, which `bactrian societies show NAME > NAME.toml` writes.",
    )


def _refuse(flags: Mapping[str, object], beside: str, hint: str) -> None:
    """Refuse the first of ``flags`` that has a value.

    Raises:
        InputError: there is one.
    """
    if wrong := next((flag for flag, value in flags.items() if value), None):
        raise InputError(f"{wrong} cannot be combined with {beside}.", where=wrong, next=hint)


def _read_idea(idea: str | None) -> str | None:
    """Return the idea; a dash reads it from standard input."""
    if idea != "-":
        return idea
    # Invalid UTF-8 becomes surrogates, which the check of the idea refuses with a clear error.
    return sys.stdin.buffer.read().decode(errors="surrogateescape").strip()
