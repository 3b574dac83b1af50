"""Flags for sampling parameters, for all agents and for each agent."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from bactrian.cli.options import declare_option
from bactrian.errors import InputError

SPEAKERS = ("assistant", "user", "task", "critic")
_FLAGS = {
    "temperature": (
        "temperature",
        "Sampling temperature of all agents. The value none omits the parameter, also in the options below.",
    ),
    "top_p": ("top-p", "Nucleus sampling of all agents."),
    "max_tokens": ("reply-length", "Maximum length of the replies of all agents, in tokens."),
    "stop": ("stop", "Text that ends the replies of all agents."),
    "reasoning_effort": ("reasoning-effort", "Reasoning effort of all agents: usually low, medium or high."),
    "body": ("body", "Further fields of all requests, as in 'top_k=40'. Can be repeated."),
    "seed": ("seed", ""),
}
"""Flags by parameter. The commands have a --seed for all agents already."""


def add_sampling_flags(*agents: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add flags for all agents, and for each of ``agents``, to a command; without ``agents``, for its only one.

    The command receives them as the argument ``sampling`` in the form of a recipe's table. Flags of single agents, such
    as ``--assistant-temperature``, are not listed in the help because of their number.
    """

    def add(command: Callable[..., None]) -> Callable[..., None]:
        return _add_flags(command, agents)

    return add


def _add_flags(command: Callable[..., None], agents: tuple[str, ...]) -> Callable[..., None]:
    flags = [(None, key) for key in _FLAGS if key != "seed"]
    flags += [(agent, key) for agent in agents for key in _FLAGS]
    names = {_argument(agent, key): (agent, key) for agent, key in flags}

    @wraps(command)
    def run(**arguments: Any) -> None:
        given: dict[str, Any] = {}
        for name, (agent, key) in names.items():
            if (written := arguments.pop(name)) not in (None, []):
                table = given if agent is None else given.setdefault(agent, {})
                table[key] = _read_body(written) if key == "body" else _read(key, written)
        command(**arguments, sampling=given)

    signature = inspect.signature(command, eval_str=True)
    own = [each for each in signature.parameters.values() if each.name != "sampling"]
    more = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=_declare(agent, key, alone=not agents),
        )
        for name, (agent, key) in names.items()
    ]
    run.__dict__["__signature__"] = signature.replace(parameters=[*own, *more])
    run.__annotations__ = {}  # Typer would evaluate them again, and its signature says all
    return run


def _argument(agent: str | None, key: str) -> str:
    return f"{agent or 'all'}_{key}"


def _declare(agent: str | None, key: str, *, alone: bool) -> Any:
    flag, text = _FLAGS[key]
    if alone:
        text = text.replace(" of all agents", "").replace(" of all requests", " of the request")
    kind = list[str] | None if key == "body" else str | None
    name = f"--{flag}" if agent is None else f"--{agent}-{flag}"
    if key == "temperature" and agent is None and not alone:
        text += " Options of one agent begin with its name: --assistant-temperature."
    return Annotated[kind, declare_option(name, text, hidden=agent is not None)]


def _read(key: str, written: str) -> object:
    """Return a number if possible; else the text."""
    if key in ("stop", "reasoning_effort"):
        return written
    try:
        return float(written) if key in ("temperature", "top_p") else int(written)
    except ValueError:
        return written


def _read_body(written: list[str]) -> dict[str, object]:
    """Parse fields of a request body: a TOML value if possible, else a text."""
    body: dict[str, object] = {}
    for each in written:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise InputError(
                f"{each!r} is not a field and its value.", where="--body", next="Write it as 'top_k=40'."
            )
        try:
            found = tomllib.loads(f"value = {value}")
            body[name.strip()] = found["value"] if found.keys() == {"value"} else value
        except (ValueError, RecursionError):
            body[name.strip()] = value
    return body
