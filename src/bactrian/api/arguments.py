"""Arguments of the API: tools and roles in several forms, what does not go together, and what a run stores of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from bactrian.errors import InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.models.http import read_address
from bactrian.options import Critic, PlayOptions, fill_defaults
from bactrian.recipes.schema import Recipe, ToolsSpec
from bactrian.records.session import Role
from bactrian.records.turn import Toolkit
from bactrian.roleplay.endings import EndingLike
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.tools import Runnable

TOOLS_GROUP = "bactrian.tools"
"""Entry points of other packages: a function, or a list of functions, by name."""

ToolLike = str | Callable[..., object] | Runnable
"""A Python function, ``"FILE.py"`` or ``"FILE.py:NAME,NAME"``, ``"mcp:COMMAND"``, or the name of an entry point."""
ToolsLike = Sequence[ToolLike] | Mapping[str, Sequence[ToolLike]]
"""The tools of the assistant, or those of ``user`` and ``assistant`` by name."""


def read_role(given: str | Role | None, default: str) -> Role:
    """Return the role given by name or as an object, or the default."""
    return given if isinstance(given, Role) else Role(default if given is None else given)


def read_tools(
    given: ToolsLike, options: PlayOptions
) -> tuple[dict[str, ToolsSpec], dict[str, tuple[Callable[..., object] | Runnable, ...]]]:
    """Split ``tools`` into files, servers and limits by agent, and functions by agent.

    Raises:
        InputError: an agent cannot have tools, or a name is unknown.
    """
    by_agent = given if isinstance(given, Mapping) else {"assistant": given}
    limits = read_limits(options)
    specs: dict[str, ToolsSpec] = {}
    functions: dict[str, tuple[Callable[..., object] | Runnable, ...]] = {}
    for agent, several in by_agent.items():
        if agent not in ("user", "assistant"):
            raise InputError(
                f"{agent!r} cannot have tools.", where="tools", next="Give them to user or assistant."
            )
        if not several:
            continue
        tools = (several,) if isinstance(several, str) else several
        named = [one for one in tools if isinstance(one, str)]
        specs[agent] = ToolsSpec(
            python=tuple(one for one in named if ".py" in one and not one.startswith("mcp:")),
            mcp=tuple(one.removeprefix("mcp:") for one in named if one.startswith("mcp:")),
            rounds=limits.rounds,
            seconds=limits.seconds,
        )
        own = [one for one in tools if not isinstance(one, str)]
        own += [tool for one in named if ".py" not in one and ":" not in one for tool in _installed(one)]
        functions[agent] = tuple(own)
    return specs, functions


def read_limits(options: PlayOptions) -> Toolkit:
    """Return the limits of an agent's tools."""
    filled = fill_defaults(options, PlayOptions)
    return Toolkit((), filled["tool_rounds"], filled["tool_timeout"])


def _installed(name: str) -> Sequence[Callable[..., object] | Runnable]:
    if name not in list_plugins(TOOLS_GROUP):
        raise InputError(
            f"There is no tool {name!r}.",
            where="tools",
            next=f"Pass a function or FILE.py, or install the package that registers it under {TOOLS_GROUP}.",
        )
    found = load_plugin(TOOLS_GROUP, name)
    if isinstance(found, (list, tuple)):
        return cast("Sequence[Callable[..., object]]", found)
    return (cast("Callable[..., object]", found),)


# Checks of what options say together.


def check_base_url(base_url: str | None, names: Iterable[str]) -> None:
    """Refuse an address that none of the models ``names`` takes. One for all commands, in the environment, may stay.

    Raises:
        InputError: no model is ``openai:NAME``.
    """
    names = list(names)
    if base_url == os.environ.get("BACTRIAN_BASE_URL") or choose_base_url(base_url, names) == base_url:
        return
    other = next((name for name in names if ":" in name and "@" not in name), "openai:NAME")
    raise InputError(
        "This is the address of openai:NAME, and no agent has such a model.",
        where="--base-url",
        next=f"Write the address behind the model's name: {other}@{read_address(str(base_url))}",
    )


def choose_base_url(base_url: str | None, names: Iterable[str]) -> str | None:
    """Return ``base_url`` if one of the models takes it; otherwise None."""
    return base_url if any(name.startswith("openai:") for name in names) else None


def check_critic(critic: str | None, given: Mapping[str, object], hint: str) -> None:
    """Refuse options of a critic if there is none.

    Args:
        critic: The critic's role; None if there is no critic.
        given: What was given for a critic, by the name of the option.
        hint: How to have a critic.

    Raises:
        InputError: such an option was given.
    """
    if critic is None and (name := next((name for name, value in given.items() if value), None)):
        raise InputError("This is for the critic, and there is no critic.", where=name, next=hint)


def check_unattended(recipe_critic: str | None, models: Mapping[str, str]) -> None:
    """Refuse a person in a run, which cannot ask anybody.

    Raises:
        InputError: a model or the critic is ``human``.
    """
    agent = next((agent for agent, name in models.items() if name == HUMAN), None)
    if agent is not None or recipe_critic == HUMAN:
        raise InputError(
            f"The {agent or 'critic'} would be a person, and a run cannot ask one.",
            where="--model" if agent else "--set critic.role",
            next="Name a model, or another role for the critic; a person takes part in `bactrian play`.",
        )


def check_acknowledged(recipe: Recipe, *, acknowledged: bool) -> None:
    """Refuse a red-team recipe without an acknowledgement.

    Raises:
        InputError: the recipe is for red-team research, and ``acknowledged`` is False.
    """
    if recipe.red_team and not acknowledged:
        raise InputError(
            "This recipe is for red-team research only.",
            next="Say so with --acknowledge-misuse; everything it makes will be marked.",
        )


# The options of a command as JSON values, as they are stored in a run to resume it. Keys are left out.


OWN = "own"
"""The key that is true if the command used Python objects, which no file can store."""


def describe_session(
    idea: str,
    roles: tuple[Role, Role],
    models: Mapping[str, str],
    options: PlayOptions,
    *,
    critic: Critic | None,
    tools: ToolsLike | None,
    endings: EndingLike | Iterable[EndingLike],
) -> dict[str, Any]:
    """Return the options of one role-play. ``roles`` are those of assistant and user."""
    named, files, servers = describe_tools(tools or ())
    text = endings if isinstance(endings, str) else None
    return {
        **describe_options(options),
        **({"embodied": roles[0].name} if options.get("embodied") else {}),
        "idea": idea,
        "assistant": asdict(roles[0]),
        "user": asdict(roles[1]),
        "models": dict(models),
        "critic": critic and asdict(critic),
        "endings": text or "default",
        "tools": files,
        "servers": servers,
        OWN: named
        or (text is None and bool(tuple(cast("Iterable[object]", endings))))
        or any(name.startswith("python:") for name in models.values()),
    }


def describe_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are JSON values, the address without a user and a password."""
    described = {name: _to_json(value) for name, value in options.items() if value is not None}
    if address := described.get("base_url"):
        described["base_url"] = remove_credentials(str(address))
    return {name: value for name, value in described.items() if value is not None}


def describe_run(options: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the options of a run, and ``more``, as JSON values: those that are not in its plan, and the limit."""
    of_one_call = ("parameters", "seed", "origin", "keep_tasks", "retry_failed")
    described = {name: value for name, value in {**options, **more}.items() if name not in of_one_call}
    return {**describe_options(described), "limit": described.get("limit")}


def remove_credentials(address: str) -> str:
    """Return the address without the user and the password that it may contain."""
    parts = urlsplit(address)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _to_json(value: object) -> object:
    """Return ``value`` if it is a JSON value or a mapping of them; else None."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(one) for key, one in cast("Mapping[object, object]", value).items()}
    if isinstance(value, (list, tuple)):
        return [_to_json(one) for one in cast("list[object]", value)]
    return value if isinstance(value, (str, int, float, bool)) else None


def describe_tools(tools: ToolsLike) -> tuple[bool, dict[str, list[str]], dict[str, int]]:
    """Return whether objects are among the tools, the files by agent, and the number of MCP servers by agent.

    The command line of a server may contain a key, so it is not stored.
    """
    by_agent = tools if isinstance(tools, Mapping) else {"assistant": tools}
    files: dict[str, list[str]] = {}
    servers: dict[str, int] = {}
    for agent, given in by_agent.items():
        names = [one for one in given if isinstance(one, str)]
        files[agent] = [one for one in names if not one.startswith("mcp:")]
        servers[agent] = len(names) - len(files[agent])
    own = any(not isinstance(one, str) for given in by_agent.values() for one in given)
    return own, {agent: one for agent, one in files.items() if one}, {a: n for a, n in servers.items() if n}
