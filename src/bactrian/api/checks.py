"""Checks of keyword arguments: unknown names, and values of the wrong type."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bactrian.errors import InputError
from bactrian.recipes.parameters import SamplingSpec
from bactrian.records.session import Role

_Count = Annotated[int, Field(ge=1)]


class _Options(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", arbitrary_types_allowed=True)

    seed: int | None = None
    parameters: Mapping[str, Any] | None = None
    base_url: str | None = None
    window: _Count | None = None
    timeout: float = 1.0
    max_wait: float = 1.0


class PlayTypes(_Options):
    """The types of the arguments of :func:`bactrian.play`."""

    idea: str | None = None
    assistant: str | Role | None = None
    user: str | Role | None = None
    run: str | Path | None = None
    specify: bool | None = None
    word_limit: _Count = 1
    plan: bool = False
    protocol: Literal["free", "enforced"] | None = None
    max_messages: int | None = None
    language: str | None = None
    prompts: str | Path | None = None
    embodied: str | Role | None = None
    tool_rounds: Annotated[int, Field(ge=1, le=100)] = 1
    tool_timeout: Annotated[float, Field(gt=0)] = 1.0
    budget: Annotated[float, Field(ge=0)] | None = None
    price: str | None = None


class GenerateTypes(_Options):
    """The types of the arguments of :func:`bactrian.generate`."""

    run: str | Path
    limit: Annotated[int, Field(ge=0)] | None = None
    budget: Annotated[float, Field(ge=0)] | None = None
    concurrency: _Count | None = None
    max_tokens: _Count | None = None
    price: str | None = None
    requests_per_minute: Annotated[float, Field(gt=0)] | None = None
    tokens_per_minute: Annotated[float, Field(gt=0)] | None = None
    retry_failed: bool = False
    sample: _Count | None = None
    order: Literal["depth", "breadth"] = "depth"
    equal_roles: bool = False
    keep_tasks: bool = False
    jobs: str | Path | list[dict[str, str]] | None = None
    origin: str | Path | None = None
    acknowledge_misuse: bool = False
    run_code: bool = False
    on_progress: Callable[..., object] | None = None


def check_names(function: str, given: Collection[str], known: Collection[str], **hints: str) -> None:
    """Refuse keyword arguments that a function does not have, as Python does for ordinary functions.

    Args:
        function: Name of the function.
        given: Names of the arguments that were given.
        known: Names of all keyword arguments.
        hints: What to write instead, by the name of an argument.

    Raises:
        TypeError: an argument is not known; the message names the nearest one.
    """
    for name in given:
        if name in known:
            continue
        hint = hints.get(name, "")
        near = get_close_matches(name, (*known, *SamplingSpec.model_fields), n=1)
        if not hint and near:
            sampling = near[0] not in known
            hint = f"Write parameters={{{near[0]!r}: …}}." if sampling else f"Did you mean {near[0]!r}?"
        raise TypeError(f"{function}() got an unexpected keyword argument {name!r}. {hint}".rstrip())


def check_types(types: type[BaseModel], given: Mapping[str, Any]) -> None:
    """Refuse arguments of the wrong type.

    Raises:
        InputError: with the name of the argument and what it takes.
    """
    try:
        types.model_validate(dict(given))
    except ValidationError as error:
        problems = error.errors(include_url=False)
        name = str(problems[0]["loc"][0])
        wanted = [_explain(one["msg"]) for one in problems if one["loc"][0] == name]
        none = types.model_fields[name].default is None
        raise InputError(
            f"{given[name]!r} is not a value for {name}.",
            where=name,
            next=f"Give {' or '.join(dict.fromkeys(wanted))}{', or None' if none else ''}.",
        ) from error


def _explain(message: str) -> str:
    """Return what pydantic wants, as an object of `Give`."""
    text = message.removeprefix("Input should be ").removeprefix("a valid ").removeprefix("an instance of ")
    words = {
        "string": "a text",
        "integer": "a whole number",
        "number": "a number",
        "boolean": "True or False",
        "Path": "a Path",
        "Role": "a Role",
        "callable": "a function",
    }
    if text.startswith(("greater", "less")):
        return f"a number {text}"
    return words.get(text, text)
