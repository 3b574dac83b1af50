"""The options of a command as JSON values, as they are stored in a run to resume it. Keys are left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, cast
from urllib.parse import urlsplit, urlunsplit

from bactrian.api.arguments import Critic, PlayOptions, ToolsLike
from bactrian.play.endings.own import EndingLike
from bactrian.records.session import Role

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
    of_one_call = ("parameters", "seed", "origin", "keep_tasks", "on_progress", "retry_failed")
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
