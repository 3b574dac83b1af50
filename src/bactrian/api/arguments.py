"""Arguments of the API: tools and roles in several forms, what does not go together, and what a run stores of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from bactrian.errors import InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.models.http import hide_credentials, split_addresses, write_addresses
from bactrian.options import PlayOptions, fill_defaults
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.start import Functions
from bactrian.roleplay.tool_sources import BY_RULES
from bactrian.roleplay.tools import Runnable

if TYPE_CHECKING:
    from bactrian.recipes.schema import ToolsSpec

OWN = "own"  # The key that is true if the command used Python objects, which no file can store
# Entry points of other packages: a function, or a list of functions, by name.
TOOLS_GROUP = "bactrian.tools"
IMAGE = "image"  # The tool that draws: `image`, or `image:MODEL` for a model with an images endpoint

# A Python function, `"FILE.py"` or `"FILE.py:NAME,NAME"`, `"mcp:COMMAND"`, or the name of an entry point.
ToolLike = str | Callable[..., object] | Runnable
# The tools of the assistant, or those of `user` and `assistant` by name.
ToolsLike = Sequence[ToolLike] | Mapping[str, Sequence[ToolLike]]


def read_tools(
    chosen: ToolsLike, options: PlayOptions
) -> tuple[dict[str, ToolsSpec], Functions, dict[str, Any]]:
    """Split ``chosen`` into files, servers and limits by agent, functions by agent, and what a run stores of them.

    Raises:
        InputError: an agent cannot have tools, or a name is unknown.
    """
    limits = fill_defaults(options, PlayOptions)
    specs: dict[str, ToolsSpec] = {}
    functions: dict[str, tuple[Callable[..., object] | Runnable, ...]] = {}
    files: dict[str, list[str]] = {}
    servers: dict[str, int] = {}  # Only their number: the command line of a server may contain a key.
    for agent, several in (chosen if isinstance(chosen, Mapping) else {"assistant": chosen}).items():
        if agent not in ("user", "assistant"):
            raise InputError(
                f"{agent!r} cannot have tools.", option="tools", next="Give them to user or assistant."
            )
        if not several:
            continue
        from bactrian.recipes.schema import ToolsSpec

        tools = (several,) if isinstance(several, str) else several
        named = [tool for tool in tools if isinstance(tool, str)]
        commands = [name.removeprefix("mcp:") for name in named if name.startswith("mcp:")]
        files[agent] = [name for name in named if not name.startswith("mcp:")]
        painters = [name for name in named if name.partition(":")[0] == IMAGE]
        if len(painters) > 1:
            raise InputError("Only one tool draws.", option="tools", next=f"Name {IMAGE} once.")
        servers[agent] = len(commands)
        specs[agent] = ToolsSpec(
            python=tuple(name for name in files[agent] if ".py" in name and name not in painters),
            image=(painters[0].partition(":")[2] or BY_RULES) if painters else None,
            mcp=tuple(commands),
            rounds=limits["tool_rounds"],
            seconds=limits["tool_timeout"],
        )
        functions[agent] = (
            *(tool for tool in tools if not isinstance(tool, str)),
            *(
                tool
                for name in files[agent]
                if ".py" not in name and name not in painters
                for tool in _load_installed(name)
            ),
        )
    stored: dict[str, Any] = {
        "tools": {agent: names for agent, names in files.items() if names},
        "servers": {agent: count for agent, count in servers.items() if count},
        OWN: any(not isinstance(tool, str) for tools in functions.values() for tool in tools),
    }
    return specs, functions, stored


def _load_installed(name: str) -> Sequence[Callable[..., object] | Runnable]:
    if name not in list_plugins(TOOLS_GROUP):
        raise InputError(
            f"There is no tool {name!r}.",
            option="tools",
            next=f"Pass a function or FILE.py, or install the package that registers it under {TOOLS_GROUP}.",
        )
    loaded = load_plugin(TOOLS_GROUP, name)
    return cast("Sequence[Any]", loaded) if isinstance(loaded, (list, tuple)) else (cast("Any", loaded),)


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
        option="base_url",
        next=f"Write the address behind the model's name: {other}@{write_addresses(str(base_url))}",
    )


def choose_base_url(base_url: str | None, names: Iterable[str]) -> str | None:
    """Return ``base_url`` if one of the models takes it; otherwise None."""
    return base_url if any(name.startswith("openai:") for name in names) else None


def check_unattended(recipe_critic: str | None, models: Mapping[str, str]) -> None:
    """Refuse a person in a run, which cannot ask anybody.

    Raises:
        InputError: a model or the critic is ``human``.
    """
    agent = next((agent for agent, name in models.items() if name == HUMAN), None)
    if agent is not None or recipe_critic == HUMAN:
        raise InputError(
            f"The {agent or 'critic'} would be a person, and a run cannot ask one.",
            option="model" if agent else "critic.role",
            next="Name a model, or another role for the critic; a person takes part in `bactrian play`.",
        )


# The options of a command as JSON values, as they are stored in a run to resume it. Keys are left out.


def describe_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are JSON values, the address without a user and a password."""
    described = {name: _to_json(value) for name, value in options.items() if value is not None}
    if address := described.get("base_url"):
        described["base_url"] = ",".join(hide_credentials(each, "") for each in split_addresses(str(address)))
    return {name: value for name, value in described.items() if value is not None}


def describe_run(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a run that are not in its plan, as JSON values, and its limit."""
    transient = (
        "parameters",
        "seed",
        "origin",
        "keep_tasks",
        "retry_failed",
        "batch_wait",
        "shard",
        "lists_only",
    )
    described = {name: value for name, value in options.items() if name not in transient}
    return {**describe_options(described), "limit": described.get("limit")}


def _to_json(value: object) -> object:
    """Return ``value`` if it is a JSON value or a mapping of them; else None."""
    if isinstance(value, Mapping):
        items = cast("Mapping[object, object]", value).items()
        return {str(key): _to_json(part) for key, part in items}
    if isinstance(value, (list, tuple)):
        return [_to_json(part) for part in cast("list[object]", value)]
    return value if isinstance(value, (str, int, float, bool)) else None
