"""Sampling parameters of agents, as given by a recipe, a society or the user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import ErrorDetails

from bactrian.errors import InputError
from bactrian.files.toml import suggest_name
from bactrian.records.sampling import Sampling

Nothing = Literal["none"]
"""Instead of a value: the parameter is left out, and the model's own default applies."""
_Text = Annotated[str, Field(min_length=1)]
_OURS = frozenset({"model", "messages", "stream", "n", "tools", "tool_choice", "response_format"})
_OMITTABLE = frozenset({"temperature", "top_p", "max_tokens", "stop", "seed"})
AGENT_NAMES: Mapping[str, tuple[str, ...]] = {
    "user": ("user",),
    "assistant": ("assistant", "translator"),
    "task": ("task_specifier", "task_planner"),
    "critic": ("critic",),
    "lister": ("lister",),
}
"""Agents that can have parameters of their own, and the agents of a session that each name covers."""
_OF_TURNS = ("max_tokens", "stop", "seed")
"""Parameters of all agents that do not apply to the lister: they describe a turn, and an axis describes a list."""


class SamplingSpec(BaseModel):
    """Parameters of an agent; those that are not given stay as they are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    temperature: Annotated[float, Field(ge=0, le=5, strict=True)] | Nothing | None = None
    top_p: Annotated[float, Field(gt=0, le=1, strict=True)] | Nothing | None = None
    max_tokens: Annotated[int, Field(gt=0, strict=True)] | Nothing | None = Field(
        default=None, description="Longest reply, in tokens."
    )
    stop: tuple[_Text, ...] | Nothing | None = Field(default=None, description="Texts that end a reply.")
    seed: Annotated[int, Field(strict=True)] | Nothing | None = None
    reasoning_effort: _Text | None = Field(
        default=None, description="How long to think: mostly low, medium or high."
    )
    body: dict[str, Any] | None = Field(default=None, description="Further fields of the request's body.")

    @field_validator("stop", mode="before")
    @classmethod
    def _one_or_several(cls, given: object) -> object:
        return (given,) if isinstance(given, str) and given != "none" else given

    @field_validator("body")
    @classmethod
    def _says_nothing_that_is_ours(cls, body: dict[str, Any] | None) -> dict[str, Any] | None:
        if taken := sorted(_OURS & (body or {}).keys()):
            raise ValueError(f"{taken[0]!r} cannot be set here")
        return body

    def apply(self, sampling: Sampling) -> Sampling:
        """Return ``sampling`` changed by these parameters."""
        given = {name: value for name, value in self.model_dump(exclude_none=True).items() if name != "body"}
        named = {name: None if value == "none" else value for name, value in given.items()}
        if "stop" in named:
            named["stop"] = tuple(named["stop"] or ())
        extra = {**sampling.extra, **(self.body or {})}
        return replace(sampling, **named, extra=extra)


class Parameters(SamplingSpec):
    """Parameters of all agents, and of single ones in tables of their own."""

    user: SamplingSpec | None = None
    assistant: SamplingSpec | None = None
    task: SamplingSpec | None = Field(default=None, description="Of task specifier and planner.")
    critic: SamplingSpec | None = None
    lister: SamplingSpec | None = Field(default=None, description="Of lists.")

    def by_agent(self) -> dict[str, tuple[SamplingSpec, ...]]:
        """Return what applies to each agent, the general parameters first; agents without any are left out."""
        general = SamplingSpec(**{name: getattr(self, name) for name in SamplingSpec.model_fields})
        of_lists = general.model_copy(update=dict.fromkeys(_OF_TURNS))
        found: dict[str, tuple[SamplingSpec, ...]] = {}
        for name, agents in AGENT_NAMES.items():
            own: SamplingSpec | None = getattr(self, name)
            both = (of_lists if name == "lister" else general, own)
            specs = tuple(spec for spec in both if spec is not None and spec != SamplingSpec())
            found |= dict.fromkeys(agents, specs) if specs else {}
        return found


def read_parameters(given: Mapping[str, Any], where: str = "parameters") -> Parameters:
    """Read parameters that are not from a file: those of all agents, and those of single ones as mappings.

    Raises:
        InputError: a name or a value cannot be used.
    """
    try:
        return Parameters.model_validate(_write_none(given))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        *_, word = (
            part for part in first["loc"] if part in Parameters.model_fields or part == first["loc"][0]
        )
        if first["type"] == "extra_forbidden":
            word = str(first["loc"][-1])
            what = f"There is no parameter {word!r}.{suggest_name(word, list(Parameters.model_fields))}"
        else:
            what = f"{first['input']!r} is not a value for {word}.{_name_range(first)}"
        raise InputError(
            what,
            where=where,
            next=f"docs/models.md says what each takes: {', '.join(SamplingSpec.model_fields)}; none leaves one out.",
        ) from error


def _name_range(error: ErrorDetails) -> str:
    """Return the range that a number has to be in, as a sentence after a space; nothing for other errors."""
    words = {
        "less_than_equal": "at most {le:g}",
        "less_than": "less than {lt:g}",
        "greater_than_equal": "at least {ge:g}",
        "greater_than": "more than {gt:g}",
    }
    return f" It is {words[error['type']].format(**error.get('ctx', {}))}." if error["type"] in words else ""


def _write_none(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``given`` with Python's None as ``"none"`` for the parameters that can be left out."""
    written: dict[str, Any] = {}
    for name, value in given.items():
        if value is None and name in _OMITTABLE:
            written[name] = "none"
        elif name in AGENT_NAMES and isinstance(value, Mapping):
            written[name] = _write_none(cast("Mapping[str, Any]", value))
        else:
            written[name] = value
    return written


def merge_parameters(first: Parameters | None, second: Mapping[str, Any], where: str) -> Parameters | None:
    """Return ``first`` updated with ``second``. Raises InputError if the result is not valid."""
    merged = first.model_dump(mode="json", exclude_none=True) if first else {}
    for name, value in read_parameters(second, where).model_dump(mode="json", exclude_none=True).items():
        merged[name] = {**merged.get(name, {}), **value} if isinstance(value, dict) else value
    return read_parameters(merged, where) if merged else None


def apply_parameters(sampling: Sampling, specs: tuple[SamplingSpec, ...]) -> Sampling:
    """Return ``sampling`` changed by ``specs``; later ones take precedence."""
    for spec in specs:
        sampling = spec.apply(sampling)
    return sampling


class RecipeModels(BaseModel):
    """Models of a recipe's agents, where a command names no other."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    default: _Text | None = Field(default=None, description="Of all that have none of their own.")
    user: _Text | None = None
    assistant: _Text | None = None
    task: _Text | None = Field(default=None, description="Of task specifier and planner.")
    critic: _Text | None = None
    lister: _Text | None = Field(default=None, description="Of lists.")

    def by_agent(self) -> dict[str, str]:
        """Name of the model by agent, as sessions name agents."""
        named = {"user": self.user, "assistant": self.assistant, "critic": self.critic, "lister": self.lister}
        named |= {"task_specifier": self.task, "task_planner": self.task}
        return {agent: name for agent, name in named.items() if name is not None}
