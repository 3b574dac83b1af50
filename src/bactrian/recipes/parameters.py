"""Sampling parameters and endings of agents, as a recipe, a society or the user gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from bactrian.errors import InputError
from bactrian.files.plugins import list_plugins
from bactrian.files.toml import suggest_name
from bactrian.options import Nothing, SamplingSpec
from bactrian.records.turn import Sampling

_Text = Annotated[str, Field(min_length=1)]
_OMITTABLE = frozenset(
    name for name, field in SamplingSpec.model_fields.items() if Nothing in get_args(field.annotation)
)
# Agents that can have parameters of their own, and the agents of a session that each name covers.
AGENT_NAMES: Mapping[str, tuple[str, ...]] = {
    "user": ("user",),
    "assistant": ("assistant", "translator"),
    "task": ("task_specifier", "task_planner"),
    "critic": ("critic",),
    "lister": ("lister",),
}
# Parameters of all agents that do not apply to the lister: they describe a turn, and an axis describes a
# list.
_OF_TURNS = ("max_tokens", "stop", "seed")


class Parameters(SamplingSpec):
    """Parameters of all agents, and of single agents in tables of their own."""

    user: SamplingSpec | None = None
    assistant: SamplingSpec | None = None
    task: SamplingSpec | None = Field(default=None, description="Of task specifier and planner.")
    critic: SamplingSpec | None = None
    lister: SamplingSpec | None = Field(default=None, description="Of lists.")

    def by_agent(self) -> dict[str, tuple[SamplingSpec, ...]]:
        """Return what applies to each agent, the general parameters first; agents without any are left out."""
        general = SamplingSpec(**{name: getattr(self, name) for name in SamplingSpec.model_fields})
        of_lists = general.model_copy(update=dict.fromkeys(_OF_TURNS))
        by_agent: dict[str, tuple[SamplingSpec, ...]] = {}
        for name, agents in AGENT_NAMES.items():
            special: SamplingSpec | None = getattr(self, name)
            both = (of_lists if name == "lister" else general, special)
            specs = tuple(spec for spec in both if spec is not None and spec != SamplingSpec())
            by_agent |= dict.fromkeys(agents, specs) if specs else {}
        return by_agent


def read_parameters(values: Mapping[str, Any], where: str = "parameters") -> Parameters:
    """Read parameters that are not from a file: those of all agents, and those of single agents as mappings.

    Raises:
        InputError: a name or a value cannot be used.
    """
    try:
        return Parameters.model_validate(_write_none(values))
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
            next=f"Known: {', '.join(SamplingSpec.model_fields)}; none leaves one out (`bactrian help models.md`).",
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


def _write_none(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``values`` with Python's None as ``"none"`` for the parameters that can be left out."""
    written: dict[str, Any] = {}
    for name, value in values.items():
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


# Which endings a session may have, as text: ``paper``, or ``task_done,user_no_instruct=3,max_messages=40``.


GROUP = "bactrian.endings"  # Entry points of other packages: an ending by its code
# The sets that have a name, with their endings in the order in which they are asked.
SETS: dict[str, tuple[str, ...]] = {
    "paper": ("task_done", "assistant_instruct", "user_no_instruct", "max_messages"),
    "default": ("task_done", "assistant_instruct", "user_no_instruct", "repeat_loop", "max_messages"),
    "camel": ("user_no_instruct", "assistant_instruct", "repeat_words", "task_done", "max_messages"),
}
# The endings of this program by code, and how often in a row each has to show; None for one that counts
# nothing.
THRESHOLDS: dict[str, int | None] = {
    "task_done": None,
    "refused": None,
    "assistant_instruct": 1,
    "user_no_instruct": 3,
    "repeat_loop": 4,
    "repeat_words": 4,
    "max_messages": 40,
}
_MOST = 1_000_000
_ITEM = re.compile(r"(-?)([a-z][a-z0-9_]{0,63})(?:=(\d{1,7}))?")


@dataclass(frozen=True, slots=True)
class EndingList:
    """A list of endings, read and checked."""

    codes: tuple[str, ...]  # In the order in which they are asked; those of other packages too
    thresholds: tuple[tuple[str, int], ...] = ()  # Those that were given, by code
    substrings: bool = False  # True for CAMEL's rules, which look for substrings

    @property
    def text(self) -> str:
        """The same list in one way of writing."""
        counts = dict(self.thresholds)
        listed = [f"{code}={counts[code]}" if code in counts else code for code in self.codes]
        return ",".join(["camel:"] * self.substrings + listed)

    @property
    def max_messages(self) -> int | None:
        """Messages at which the session ends; None if the list leaves it open."""
        return dict(self.thresholds).get("max_messages")


def parse_endings(text: str) -> EndingList:
    """Read a list of endings: names of sets, codes, ``code=threshold`` and ``-code``, separated by commas.

    A list of codes alone means these and no others.

    Raises:
        InputError: an item is not an ending, or its threshold does not fit.
    """
    codes: list[str] = []
    counts: dict[str, int] = {}
    substrings = False
    for item in filter(None, re.split(r"[,\s]+", text.strip())):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise _refuse(f"{item!r} is not an ending.")
        drop, code, count = match.groups()
        if code in SETS and not drop and count is None:
            substrings = substrings or code == "camel"
            codes += [each for each in SETS[code] if each not in codes]
            continue
        if code not in THRESHOLDS and code not in list_plugins(GROUP):
            known = [*SETS, *THRESHOLDS, *list_plugins(GROUP)]
            raise _refuse(f"There is no ending {code!r}.{suggest_name(code, known)}")
        if drop:
            if code not in codes:
                raise _refuse(f"{item!r} leaves out an ending that is not in the list.")
            codes.remove(code)
            continue
        if count is not None:
            if THRESHOLDS.get(code) is None or not 0 < int(count) <= _MOST:
                raise _refuse(f"{item!r}: this threshold does not fit.")
            counts[code] = int(count)
        if code not in codes:
            codes.append(code)
    if not codes:
        raise _refuse("The list of endings is empty.")
    return EndingList(
        tuple(codes), tuple((code, counts[code]) for code in codes if code in counts), substrings
    )


def _refuse(what: str) -> InputError:
    known = [f"{code}={count}" if count else code for code, count in THRESHOLDS.items()]
    return InputError(
        what,
        option="endings",
        next=f"Sets: {', '.join(SETS)}. Endings, with their thresholds: `{', '.join([*known, *list_plugins(GROUP)])}`.",
    )
