"""Checks of arguments: unknown names, values of the wrong type, and options that none of the models takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from inspect import Parameter, signature
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bactrian.errors import InputError
from bactrian.models.http.address import read_address
from bactrian.play.human import HUMAN
from bactrian.recipes.parameters import SamplingSpec
from bactrian.recipes.schema import Recipe
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


def check_names(function: Callable[..., object], given: Collection[str], options: type, **hints: str) -> None:
    """Refuse keyword arguments that a function does not have, as Python does for ordinary functions.

    Args:
        function: The function.
        given: Names of the options that were given.
        options: The ``TypedDict`` of all options.
        hints: What to write instead, by the name of an argument.

    Raises:
        TypeError: an argument is not known; the message names the nearest one.
    """
    own = signature(function).parameters.values()
    known = [one.name for one in own if one.kind is not Parameter.VAR_KEYWORD] + [*options.__annotations__]
    sampling_names = tuple(SamplingSpec.model_fields) if "parameters" in known else ()
    for name in given:
        if name in options.__annotations__:
            continue
        hint = hints.get(name, "")
        near = get_close_matches(name, (*known, *sampling_names), n=1)
        if not hint and near:
            sampling = near[0] not in known
            hint = f"Write parameters={{{near[0]!r}: …}}." if sampling else f"Did you mean {near[0]!r}?"
        raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}. {hint}".rstrip())


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


def _explain(message: str) -> str:
    """Return pydantic's message as the object of a sentence that begins with "Give"."""
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
