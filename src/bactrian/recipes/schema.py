"""What a recipe may say."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, LiteralString, Self
from unicodedata import normalize

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema, field_validator, model_validator
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from bactrian.records.candidate import CRITERIA, CriticSettings, Unreadable, read_search

_NAME = r"^[a-z][a-z0-9_]{0,63}$"
_MOST = 1_000_000
"""Items an axis may have."""
_Temperature = Annotated[float, Field(ge=0, le=5, strict=True)]
_Filled = Annotated[str, Field(pattern=r"\S")]
"""A text that is not blank."""
_Item = Annotated[str, Field(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]
"""A text that is not blank and holds no NUL."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


def _fault(what: LiteralString, *place: str | int, **values: object) -> PydanticCustomError:
    """A fault that is not where pydantic looks for it, but at ``place`` below."""
    return PydanticCustomError("placed", what, {"place": place, **values})


_NEEDS_ASK: JsonDict = {"required": ["ask"]}
_AXIS_RULES: JsonDict = {
    "anyOf": [{"required": [key]} for key in ("given", "file", "ask", "source")],
    "not": {"required": ["given", "file"]},
    "allOf": [
        {"if": {"properties": {"fresh": {"const": True}}, "required": ["fresh"]}, "then": _NEEDS_ASK},
        {
            "if": {"properties": {"per": {"minItems": 1}}, "required": ["per"]},
            "then": {"anyOf": [_NEEDS_ASK, {"required": ["source"]}]},
        },
        {
            "if": {"required": ["source"]},
            "then": {"not": {"anyOf": [{"required": [key]} for key in ("given", "file", "ask")]}},
        },
    ],
}
"""What the JSON schema can say of how the keys go together; the validators below say all of it."""


class Axis(_Part):
    """One dimension of the grid: a given list, a list asked of a model, or one that begins with given items."""

    model_config = ConfigDict(json_schema_extra=_AXIS_RULES)

    name: Annotated[
        str, Field(pattern=_NAME, description="Placeholder that stands for an item in templates.")
    ]
    count: Annotated[int, Field(gt=0, le=_MOST, strict=True, description="How many items.")]
    given: Annotated[
        tuple[_Item, ...] | None, Field(min_length=1, description="The items, without doubles.")
    ] = None
    file: Annotated[
        str | None,
        Field(description="A text file with one item a line, beside the recipe; read when the recipe is."),
    ] = None
    ask: Annotated[
        str | None,
        Field(description="Template of the question that gets the items: {{ count }} and the axes in `per`."),
    ] = None
    source: Annotated[
        str | None,
        Field(
            min_length=1,
            description="A list source that a package registers, or that the program passes; instead of `ask`.",
        ),
    ] = None
    per: Annotated[
        tuple[str, ...], Field(description="Earlier axes; the list is made once for each combination.")
    ] = ()
    each: Annotated[
        bool, Field(strict=True, description="Ask for one item at a time instead of for a list.")
    ] = False
    fresh: Annotated[bool, Field(strict=True, description="Ask for the list although one is given.")] = False
    temperature: Annotated[_Temperature | None, Field(description="Of the answers to `ask`.")] = None
    max_tokens: Annotated[
        int,
        Field(
            gt=0, strict=True, description="Longest answer to `ask`; a model with a small window gets less."
        ),
    ] = 4096

    @property
    def items(self) -> tuple[str, ...] | None:
        """The items where they are given; None where a model is asked for them, or for some of them."""
        return self.first if len(self.first) == self.count else None

    @property
    def first(self) -> tuple[str, ...]:
        """The items that are given and count."""
        return () if self.given is None or self.fresh else self.given[: self.count]

    @field_validator("given")
    @classmethod
    def _distinct_items(cls, items: tuple[str, ...] | None) -> tuple[str, ...] | None:
        seen: dict[str, int] = {}
        for position, item in enumerate(items or (), start=1):
            if not item.strip() or "\0" in item:
                raise ValueError(f"item {position} is empty or holds a NUL")
            bare = normalize("NFC", item.strip())
            if bare in seen:
                raise ValueError(f"items {seen[bare]} and {position} are both {bare!r}")
            seen[bare] = position
        return items

    @field_validator("per")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for position, name in enumerate(names):
            if name in names[:position]:
                raise ValueError(f"{name!r} is named twice")
        return names

    @model_validator(mode="after")
    def _has_a_source(self) -> Self:
        if self.given is not None and self.file is not None:
            raise _fault("an axis has either `given` or `file`", "file")
        if self.source is not None and (
            self.given is not None or self.file is not None or self.ask is not None
        ):
            raise _fault("an axis with a `source` has no `given`, `file` or `ask`", "source")
        if self.given is None and self.file is None and self.ask is None and self.source is None:
            raise ValueError("an axis needs `given`, `file` or `ask`, or a `source`")
        if self.fresh and self.ask is None:
            raise _fault("`fresh` needs an `ask`", "fresh")
        if self.given is not None and self.ask is None and len(self.given) < self.count:
            raise _fault(
                "`count` is {count}, {given} items are given, and no `ask` can get more",
                "count",
                count=self.count,
                given=len(self.given),
            )
        if self.per and self.ask is None and self.source is None:
            raise _fault("`per` needs an `ask` or a `source`", "per")
        return self


class RolePlay(_Part):
    """Each job is a conversation of two agents (paper, section 3)."""

    kind: ClassVar[Literal["role_play"]] = "role_play"
    assistant: Annotated[_Filled, Field(description="Template of the assistant role.")]
    user: Annotated[_Filled, Field(description="Template of the user role.")]
    idea: Annotated[_Filled, Field(description="Template of the idea.")]
    assistant_description: Annotated[str, Field(description="Template: who the assistant is.")] = ""
    user_description: Annotated[str, Field(description="Template: who the user is.")] = ""
    prompts: Annotated[
        str | None,
        Field(description="Prompt pack: a name or a file. Default: the one that suits the models."),
    ] = None
    specify: Annotated[bool, Field(strict=True, description="Make the idea concrete first.")] = True
    word_limit: Annotated[int, Field(gt=0, strict=True, description="Words of the specified task.")] = 50
    plan: Annotated[bool, Field(strict=True, description="Divide the task into subtasks first.")] = False
    protocol: Annotated[
        Literal["free", "enforced"] | None,
        Field(description="Default: enforced if the built-in model plays both, else free."),
    ] = None
    endings: Annotated[
        Literal["default", "paper"],
        Field(description="The paper's endings, or also the one for repeat loops."),
    ] = "default"
    max_messages: Annotated[
        int | None,
        Field(gt=0, strict=True, description="Default: 40, or 12 if the built-in model plays both."),
    ] = None
    temperature: Annotated[
        _Temperature | None,
        Field(description="Of both agents. Default: 0.2; the built-in model has its own."),
    ] = None
    specify_temperature: Annotated[
        _Temperature | None, Field(description="Of the task specifier. Default: 1.4, likewise.")
    ] = None
    language: Annotated[str | None, Field(description="Language in which to answer.")] = None
    needs_code: Annotated[
        bool, Field(strict=True, description="A solution without code is a fault, which the analysis finds.")
    ] = False
    preamble: Annotated[
        str, Field(description="Put before both agents' system prompts. Only where `red_team` is true.")
    ] = ""


_CRITIC_RULES: JsonDict = {
    "if": {
        "properties": {"search": {"type": "string", "not": {"const": "beam:1x1"}}},
        "required": ["search"],
    },
    "then": {"properties": {"rounds": {"maximum": 1}}},
}


class CriticSpec(_Part):
    """Who chooses each turn of a role-play among several proposals (paper, section 3.2)."""

    model_config = ConfigDict(json_schema_extra=_CRITIC_RULES)

    role: Annotated[str, Field(min_length=1, description="Template of the critic's role.")]
    proposals: Annotated[int, Field(gt=0, le=100, strict=True, description="Proposals for each turn.")] = 3
    rounds: Annotated[
        int,
        Field(gt=0, strict=True, description="Rounds of proposals for a turn; feedback begins another."),
    ] = 1
    criteria: Annotated[str, Field(min_length=1, description="Template: what the critic looks for.")] = (
        CRITERIA
    )
    unreadable: Annotated[
        Unreadable,
        Field(description="After a choice that cannot be read, twice: the first proposal, or failure."),
    ] = "first"
    search: Annotated[
        str | None,
        Field(
            pattern=r"^beam:[1-9]\d?x[1-9]\d?$",
            description="beam:WIDTHxDEPTH: lines that are kept alive, and turns that are looked ahead.",
        ),
    ] = None

    @model_validator(mode="after")
    def _is_a_search(self) -> Self:
        if self.search is not None and read_search(self.search) != (1, 1) and self.rounds > 1:
            raise _fault("a search has one round of proposals a turn", "rounds")
        return self


def to_critic_settings(critic: CriticSpec) -> CriticSettings:
    """The critic that a recipe or a society asks for."""
    width, depth = read_search(critic.search) if critic.search else (1, 1)
    return CriticSettings(
        critic.role, critic.proposals, critic.rounds, critic.criteria, critic.unreadable, width, depth
    )


_ONE_OR_SEVERAL = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
)


class ToolsSpec(_Part):
    """What an agent may call in the course of its turn."""

    # Left out of what is frozen: what counts is what they offer, and a file may lie elsewhere tomorrow.
    python: Annotated[
        tuple[str, ...],
        _ONE_OR_SEVERAL,
        Field(exclude=True, description="FILE.py or FILE.py:NAME,NAME, beside this file."),
    ] = ()
    mcp: Annotated[
        tuple[str, ...],
        _ONE_OR_SEVERAL,
        Field(exclude=True, description="Command lines of MCP servers, run in this folder."),
    ] = ()
    rounds: Annotated[
        int, Field(gt=0, le=100, strict=True, description="Replies of a turn that may call tools.")
    ] = 8
    seconds: Annotated[float, Field(gt=0, description="Longest time for one call.")] = 30.0
    characters: Annotated[int, Field(gt=0, strict=True, description="Longest result; more is cut.")] = 4000

    @field_validator("python", "mcp", mode="before")
    @classmethod
    def _one_or_several(cls, given: object) -> object:
        return (given,) if isinstance(given, str) else given


class RolePlayTools(ToolsSpec):
    """What one side of a role-play may call in the course of its turn."""

    agent: Annotated[Literal["assistant", "user"], Field(description="Who may call them.")] = "assistant"


class Answer(_Part):
    """Each job is one question and its answer (the paper's science data sets)."""

    kind: ClassVar[Literal["answer"]] = "answer"
    role: Annotated[_Filled, Field(description="Role that answers, for example Physicist.")]
    system: Annotated[_Filled, Field(description="Template of its system prompt.")]
    question: Annotated[_Filled, Field(description="Template of the question.")]
    temperature: _Temperature | None = None
    max_tokens: Annotated[int, Field(gt=0, strict=True)] = 2048


class Translate(_Part):
    """Each job is a conversation of another run in another language. The axis gives the languages."""

    kind: ClassVar[Literal["translate"]] = "translate"
    source: Annotated[str, Field(description="The run to translate. Set it with --set source=RUN.")] = ""
    languages: Annotated[dict[str, str], Field(description="Name of the language, by item of the axis.")]
    system: Annotated[
        _Filled, Field(description="Template of the translator's prompt; {{ language }} is its name.")
    ]
    temperature: _Temperature | None = None
    max_tokens: Annotated[int, Field(gt=0, strict=True)] = 4096


class SocietyJob(_Part):
    """Each job is a society at work: several agents, or several conversations one after another."""

    kind: ClassVar[Literal["society"]] = "society"
    file: Annotated[_Filled, Field(description="A society's name or .toml file.")]
    task: Annotated[_Filled, Field(description="Template of its task.")]
    prompts: Annotated[
        str | None,
        Field(description="Prompt pack of its role-plays. Default: the one that suits the models."),
    ] = None
    protocol: Annotated[
        Literal["free", "enforced"] | None,
        Field(description="Default: enforced if its models are in this process, else free."),
    ] = None
    endings: Annotated[Literal["default", "paper"], Field(description="Of its role-plays.")] = "default"
    max_messages: Annotated[
        int | None, Field(gt=0, strict=True, description="Of each stage. Default: what the society says.")
    ] = None
    language: Annotated[str | None, Field(description="Language in which to answer.")] = None


Leaf = RolePlay | Answer | Translate | SocietyJob
LEAVES = ("role_play", "answer", "translate", "society")
"""The tables of which a recipe has one."""
_TAKEN = ("count", "language_name")
"""Placeholders that are no axis."""


_RECIPE_RULES: JsonDict = {
    "oneOf": [{"required": [leaf]} for leaf in LEAVES],
    "dependentRequired": {"critic": ["role_play"], "tools": ["role_play"]},
    "not": {"required": ["critic", "tools"], "properties": {"critic": _CRITIC_RULES["if"]}},
    "anyOf": [
        {"properties": {"red_team": {"const": True}}, "required": ["red_team"]},
        {"properties": {"role_play": {"properties": {"preamble": {"const": ""}}}}},
    ],
}


class Recipe(_Part):
    """Axes, and what to do at each of their combinations."""

    model_config = ConfigDict(json_schema_extra=_RECIPE_RULES)

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    description: str = ""
    red_team: Annotated[
        bool,
        Field(
            strict=True, description="Made to study misuse: needs an acknowledgement, and marks all it makes."
        ),
    ] = False
    axes: Annotated[tuple[Axis, ...], Field(min_length=1)]
    role_play: RolePlay | None = None
    critic: CriticSpec | None = None
    tools: RolePlayTools | None = None
    answer: Answer | None = None
    translate: Translate | None = None
    society: SocietyJob | None = None

    @property
    def leaf(self) -> Leaf:
        """What is done at each combination."""
        leaf = self.role_play or self.answer or self.translate or self.society
        assert leaf is not None
        return leaf

    @property
    def size(self) -> int:
        """Jobs of the whole grid; for a translation, those for each conversation."""
        size = 1
        for axis in self.axes:
            size *= axis.count
        return size

    def content(self) -> dict[str, Any]:
        """All that the recipe says, as it is frozen in a run."""
        return self.model_dump(mode="json", exclude_none=True)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if sum(getattr(self, leaf) is not None for leaf in LEAVES) != 1:
            raise ValueError("a recipe has exactly one of [role_play], [answer], [translate] and [society]")
        if self.critic is not None and self.role_play is None:
            raise _fault("only a recipe that role-plays has one", "critic")
        if self.tools is not None and self.role_play is None:
            raise _fault("only a recipe that role-plays has them", "tools")
        if self.tools is not None and self.critic is not None and to_critic_settings(self.critic).searches:
            raise _fault("a search tries out turns that are never said, so it cannot use tools", "tools")
        if self.role_play and self.role_play.preamble and not self.red_team:
            raise _fault("this is only for a recipe with red_team = true", "role_play", "preamble")
        if self.translate and (len(self.axes) != 1 or self.axes[0].name != "language"):
            raise _fault("a translation has one axis, and its name is language", "axes", 0, "name")
        if self.translate and self.axes[0].items is None:
            raise _fault("the languages of a translation are given", "axes", 0, "given")
        return self

    @model_validator(mode="after")
    def _axes_have_names(self) -> Self:
        names: list[str] = []
        for number, axis in enumerate(self.axes):
            if axis.name in (*names, *_TAKEN):
                raise _fault("the name {taken} is taken", "axes", number, "name", taken=repr(axis.name))
            for name in axis.per:
                if name not in names:
                    raise _fault(
                        "{unknown} is no earlier axis",
                        *("axes", number, "per"),
                        unknown=repr(name),
                        word=name,
                        known=tuple(names),
                    )
            names.append(axis.name)
        return self
