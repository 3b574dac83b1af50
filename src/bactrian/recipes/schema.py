"""The schema of a recipe, of its axes, and of its jobs: one table for each built-in kind."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from itertools import pairwise
from math import prod
from typing import Annotated, Any, ClassVar, Literal, LiteralString, Self, cast
from unicodedata import normalize

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    JsonValue,
    PrivateAttr,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError

from bactrian.errors import InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.recipes.parameters import Parameters, RecipeModels, merge_parameters, parse_endings
from bactrian.records.turn import CRITERIA, CriticSettings, Unreadable, read_search

# Axes of a recipe: lists of items that are combined.


_NAME = r"^[a-z][a-z0-9_]{0,63}$"
_MOST = 1_000_000  # Maximum number of items of an axis
Temperature = Annotated[float, Field(ge=0, le=5, strict=True)]
Filled = Annotated[str, Field(pattern=r"\S")]  # A text that is not blank
# A text that is not blank and contains no NUL.
_Item = Annotated[str, Field(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]


_ROW: TypeAdapter[list[str]] = TypeAdapter(list[str])


class Part(BaseModel):
    """A table of a recipe or of a society: immutable, without unknown keys. The text below a field describes it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        written = handler(schema)
        properties = handler.resolve_ref_schema(written)["properties"]
        for name, text in _read_descriptions(cls).items():
            properties[cls.model_fields[name].alias or name]["description"] = text
        return written


def _read_descriptions(part: type[Part]) -> dict[str, str]:
    """Return the texts below the fields: pydantic's own way would read the source at each start of the program."""
    texts: dict[str, str] = {}
    for model in reversed(part.__mro__):
        module = inspect.getmodule(model) if issubclass(model, Part) else None
        for node in ast.parse(inspect.getsource(module)).body if module else ():
            if isinstance(node, ast.ClassDef) and node.name == model.__name__:
                for field, text in pairwise(node.body):
                    match field, text:
                        case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(said))):
                            texts[name] = " ".join(said.split())
                        case _:
                            pass
    return texts


def make_fault(what: LiteralString, *path: str | int, **values: object) -> PydanticCustomError:
    """Return a validation error at ``path`` below the table that pydantic validates."""
    return PydanticCustomError("placed", what, {"place": path, **values})


LIST_FILE = "file:"  # Prefix of a source that is a file; the template of its path follows


_COUNTED: dict[str, JsonValue] = {
    "required": ["name"],
    "anyOf": [
        {"required": ["count"]},
        *({"required": [given], "not": {"required": ["ask"]}} for given in ("given", "file")),
    ],
}
"""What the JSON schema says of the count that an axis need not give."""


class Axis(Part):
    """One dimension of the grid: a given list, a list requested from a model, or given items that a model extends."""

    model_config = ConfigDict(json_schema_extra=_COUNTED)

    name: Annotated[str, Field(pattern=_NAME)]
    """Placeholder of an item in templates."""
    count: Annotated[int, Field(gt=0, le=_MOST, strict=True)]
    """Number of items. Default: all that are given, if no `ask` gets more."""
    given: Annotated[tuple[_Item, ...] | None, Field(min_length=1)] = None
    """The items, without duplicates."""
    file: str | None = None
    """A text file beside the recipe with one item per line; with axes of `per` in its name, one file per
    combination."""
    ask: str | None = None
    """Template of the question for the items: {{ count }} and the axes in `per`."""
    source: Annotated[str | None, Field(min_length=1)] = None
    """Name of a list source that a package registers or the program passes; instead of `ask`."""
    per: tuple[str, ...] = ()
    """Earlier axes; one list is made per combination of their items."""
    each: Annotated[bool, Field(strict=True)] = False
    """Ask for one item at a time instead of for a list."""
    earlier: Annotated[int | None, Field(ge=0, strict=True)] = None
    """Number of existing items that a question lists, the newest. Default: 40 for a list, 0 if items are
    requested one at a time."""
    fresh: Annotated[bool, Field(strict=True)] = False
    """Ask the model for the list even if one is given."""
    temperature: Temperature | None = None
    """Temperature of the answers to `ask`."""
    max_tokens: Annotated[int, Field(gt=0, strict=True)] = 4096
    """Maximum tokens of an answer to `ask`; less if the model's context window is small."""
    columns: Annotated[tuple[str, ...] | None, Field(min_length=1)] = None
    """Names of the values in each item, which is then a JSON array of texts. `--jobs` sets it."""

    @property
    def names(self) -> tuple[str, ...]:
        """The placeholders of an item: its name, or its columns."""
        return self.columns or (self.name,)

    @property
    def shown(self) -> int:
        """Number of existing items that a question lists."""
        if self.earlier is not None:
            return self.earlier
        return 0 if self.each else 40

    @property
    def items(self) -> tuple[str, ...] | None:
        """The items if all are given; None if a model is asked for them or for some of them."""
        return self.first if len(self.first) == self.count else None

    @property
    def first(self) -> tuple[str, ...]:
        """The given items, up to the axis's count."""
        return () if self.given is None or self.fresh else self.given[: self.count]

    @model_validator(mode="before")
    @classmethod
    def _count_given(cls, content: Any) -> Any:
        match content:
            case {"given": [_, *_] as given} if "count" not in content and content.get("ask") is None:
                return {**content, "count": len(given)}
            case _:
                return content

    @field_validator("given")
    @classmethod
    def _distinct_items(cls, items: tuple[str, ...] | None) -> tuple[str, ...] | None:
        seen: dict[str, int] = {}
        for position, item in enumerate(items or (), start=1):
            if not item.strip() or "\0" in item:
                raise ValueError(f"item {position} is empty or contains a NUL character")
            bare = normalize("NFC", item.strip())
            if bare in seen:
                raise ValueError(f"items {seen[bare]} and {position} are both {bare!r}")
            seen[bare] = position
        return items

    @model_validator(mode="after")
    def _has_rows(self) -> Self:
        for item in (self.given or ()) if self.columns else ():
            try:
                row = _ROW.validate_json(item)
            except ValidationError as error:
                raise make_fault(
                    "an item of an axis with `columns` is a JSON array of texts", "given"
                ) from error
            if len(row) != len(self.columns or ()):
                raise make_fault("an item has another number of values than `columns`", "given")
        return self

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
            raise make_fault("an axis has either `given` or `file`", "file")
        asks = self.ask is not None and not (self.source or "").startswith(LIST_FILE)
        if self.source is not None and (self.given is not None or self.file is not None or asks):
            raise make_fault("an axis with a `source` has no `given`, `file` or `ask`", "source")
        if self.given is None and self.file is None and self.ask is None and self.source is None:
            raise ValueError("an axis needs `given`, `file` or `ask`, or a `source`")
        if self.fresh and self.ask is None:
            raise make_fault("`fresh` needs an `ask`", "fresh")
        if self.given is not None and self.ask is None and len(self.given) < self.count:
            raise make_fault(
                "`count` is {count}, {given} items are given, and no `ask` can get more",
                "count",
                count=self.count,
                given=len(self.given),
            )
        if self.per and self.ask is None and self.source is None:
            raise make_fault("`per` needs an `ask` or a `source`", "per")
        return self


class CriticSpec(Part):
    """Who chooses each turn of a role-play among several proposals (paper, section 3.2)."""

    role: Annotated[str, Field(min_length=1)]
    """Template of the critic's role."""
    proposals: Annotated[int, Field(gt=0, le=100, strict=True)] = 3
    """Proposals for each turn."""
    rounds: Annotated[int, Field(gt=0, strict=True)] = 1
    """Rounds of proposals for a turn; feedback begins another."""
    criteria: Annotated[str, Field(min_length=1)] = CRITERIA
    """Template: what the critic looks for."""
    unreadable: Unreadable = "first"
    """After a choice that cannot be read, twice: the first proposal, or failure."""
    search: Annotated[str | None, Field(pattern="^beam:[1-9]\\d?x[1-9]\\d?$")] = None
    """beam:WIDTHxDEPTH: lines that are kept alive, and turns that are looked ahead."""

    @model_validator(mode="after")
    def _is_a_search(self) -> Self:
        if self.search is not None and read_search(self.search) != (1, 1) and self.rounds > 1:
            raise make_fault("a search has one round of proposals a turn", "rounds")
        return self


def to_critic_settings(critic: CriticSpec) -> CriticSettings:
    """Return the settings of the critic that a recipe or a society describes."""
    width, depth = read_search(critic.search) if critic.search else (1, 1)
    return CriticSettings(
        critic.role, critic.proposals, critic.rounds, critic.criteria, critic.unreadable, width, depth
    )


_ONE_OR_SEVERAL = WithJsonSchema(
    {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
)


class ToolsSpec(Part):
    """What an agent may call in the course of its turn."""

    # Not stored with a run: what the tools offer is stored, and a file may be moved.
    python: Annotated[tuple[str, ...], _ONE_OR_SEVERAL, Field(exclude=True)] = ()
    """FILE.py or FILE.py:NAME,NAME, beside this file."""
    mcp: Annotated[tuple[str, ...], _ONE_OR_SEVERAL, Field(exclude=True)] = ()
    """Command lines of MCP servers, run in this folder."""
    image: Annotated[str | None, Field(min_length=1, exclude=True)] = None
    """An embodied agent can draw: `svg` for pictures by rules, or a model with an images endpoint."""
    rounds: Annotated[int, Field(gt=0, le=100, strict=True)] = 8
    """Replies of a turn that may call tools."""
    seconds: Annotated[float, Field(gt=0)] = 30.0
    """Longest time for one call."""
    characters: Annotated[int, Field(gt=0, strict=True)] = 4000
    """Longest result; more is cut."""

    @field_validator("python", "mcp", mode="before")
    @classmethod
    def _one_or_several(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


class RolePlayTools(ToolsSpec):
    """What one side of a role-play may call in the course of its turn."""

    agent: Literal["assistant", "user"] = "assistant"
    """Who may call them."""


class JobSpec(Part):
    """What each job of a recipe does: one table of the recipe. A kind of job has a subclass of it."""

    key: ClassVar[str]  # Name of the table
    templates: ClassVar[tuple[str, ...]] = ()  # Keys whose texts are templates over the axes
    placeholders: ClassVar[frozenset[str]] = frozenset()  # Placeholders of the templates, beside the axes
    # Tables that a recipe may have beside it: `critic` and `tools`.
    takes: ClassVar[frozenset[str]] = frozenset()
    # Axes beside the recipe's own, whose items are known when a run is prepared.
    later_axes: ClassVar[tuple[str, ...]] = ()

    def check(self, recipe: Recipe) -> None:
        """Check what lies between this table and the rest of the recipe.

        Raises:
            PydanticCustomError: with the path, as :func:`make_fault` makes it.
        """


_TAKEN = ("count", "language_name")  # Placeholders that are not axes


# Tables that a recipe may have beside that of its jobs; a searching critic excludes tools.
_BESIDE = ("critic", "tools")


class Recipe(Part):
    """Axes, and what to do at each of their combinations.

    A recipe that was read has a field more for each kind of job, one of which is given.
    """

    # The kinds of jobs that it may have, by the name of their table.
    specs: ClassVar[Mapping[str, type[JobSpec]]] = {}

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    description: str = ""
    red_team: Annotated[bool, Field(strict=True)] = False
    """Made to study misuse: needs an acknowledgement, and marks all it makes."""
    axes: Annotated[tuple[Axis, ...], Field(min_length=1)]
    critic: CriticSpec | None = None
    tools: RolePlayTools | None = None
    models: RecipeModels | None = None
    """Of its agents, where the command names no others."""
    parameters: Parameters | None = None
    """Sampling of all agents, and of single ones."""
    _folder: str = PrivateAttr("")

    @property
    def folder(self) -> str:
        """The folder of its file, in which the files of lists are; empty for the current one."""
        return self._folder

    def with_folder(self, folder: str) -> Self:
        """Return the recipe with the folder of its file, which a run does not keep, so that both can be moved."""
        placed = self.model_copy()
        placed._folder = folder
        return placed

    def __reduce__(self) -> tuple[Any, ...]:
        # The class of a recipe that was read is made when it is read, so that pickle cannot find it.

        return restore_recipe, (self.job.key, self.__getstate__())

    @property
    def job(self) -> JobSpec:
        """What is done at each combination."""
        return next(job for key in self.specs if (job := getattr(self, key)) is not None)

    @property
    def size(self) -> int:
        """Jobs of the whole grid, as far as the recipe knows its axes (:attr:`JobSpec.later_axes`)."""
        return prod(axis.count for axis in self.axes)

    def content(self) -> dict[str, Any]:
        """Return the content of the recipe, as a run stores it."""
        return self.model_dump(mode="json", exclude_none=True)

    def with_parameters(self, values: Mapping[str, Any], where: str) -> Self:
        """Return the recipe with the user's parameters, which take precedence over its own."""
        return self.model_copy(update={"parameters": merge_parameters(self.parameters, values, where)})

    def with_list_sources(self, names: Mapping[str, str]) -> Self:
        """Return the recipe with list sources for some axes. ``names`` contains the source's name by axis."""
        cleared = {"given": None, "file": None, "ask": None, "fresh": False}
        axes = (
            axis.model_copy(update={**cleared, "source": names[axis.name]}) if axis.name in names else axis
            for axis in self.axes
        )
        return self.model_copy(update={"axes": tuple(axes)})

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if sum(getattr(self, key) is not None for key in self.specs) != 1:
            *first, last = (f"[{key}]" for key in self.specs)
            raise ValueError(f"a recipe has exactly one of {', '.join(first)} and {last}")
        job = self.job
        for table in _BESIDE:
            if getattr(self, table) is not None and table not in job.takes:
                raise make_fault("a recipe with [{key}] cannot have one", table, key=job.key)
        if self.tools is not None and self.critic is not None and to_critic_settings(self.critic).searches:
            raise make_fault("a search tries turns that are never spoken, so it cannot use tools", "tools")
        job.check(self)
        return self

    @model_validator(mode="after")
    def _axes_have_names(self) -> Self:
        names: list[str] = []
        for number, axis in enumerate(self.axes):
            if axis.name in (*names, *_TAKEN):
                raise make_fault("the name {taken} is taken", "axes", number, "name", taken=repr(axis.name))
            for name in axis.per:
                if name not in names:
                    raise make_fault(
                        "{unknown} is not an earlier axis",
                        *("axes", number, "per"),
                        unknown=repr(name),
                        word=name,
                        known=tuple(names),
                    )
            names.append(axis.name)
        return self


# The jobs.


def _join(value: object) -> object:
    match value:
        case list() | tuple():
            return ",".join(map(str, cast("Sequence[object]", value)))
        case _:
            return value


def _check_endings(text: str) -> str:
    try:
        parse_endings(text)
    except InputError as error:
        raise ValueError(f"{error.what} {error.next or ''}".rstrip(" .")) from error
    return text


# `default`, `paper`, `camel`, or a list of endings with their thresholds.
EndingText = Annotated[
    str,
    BeforeValidator(_join),
    AfterValidator(_check_endings),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]


class RolePlay(JobSpec):
    """Each job is a conversation of two agents (paper, section 3)."""

    key: ClassVar[str] = "role_play"
    templates: ClassVar[tuple[str, ...]] = (
        "assistant",
        "user",
        "idea",
        "assistant_description",
        "user_description",
    )
    takes: ClassVar[frozenset[str]] = frozenset({"critic", "tools"})
    assistant: Filled
    """Template of the assistant role."""
    user: Filled
    """Template of the user role."""
    idea: Filled
    """Template of the idea."""
    assistant_description: str = ""
    """Template: who the assistant is."""
    user_description: str = ""
    """Template: who the user is."""
    prompts: str | None = None
    """Prompt pack: a name or a file. Default: the pack that suits the models."""
    specify: Annotated[bool, Field(strict=True)] = True
    """Make the idea concrete first."""
    word_limit: Annotated[int, Field(gt=0, strict=True)] = 50
    """Words of the specified task."""
    plan: Annotated[bool, Field(strict=True)] = False
    """Divide the task into subtasks first."""
    protocol: Literal["free", "enforced"] | None = None
    """Default: enforced if the built-in model plays both, else free."""
    endings: EndingText = "default"
    """default, paper, camel, or endings one by one, as in task_done,user_no_instruct=3,max_messages=40."""
    max_messages: Annotated[int | None, Field(gt=0, strict=True)] = None
    """Default: 40, or 8 if the built-in model plays both."""
    temperature: Temperature | None = None
    """Of both agents. Default: 0.2; the built-in model has its own."""
    specify_temperature: Temperature | None = None
    """Of the task specifier. Default: 1.4, likewise."""
    language: str | None = None
    """Language in which to answer."""
    needs_code: Annotated[bool, Field(strict=True)] = False
    """A solution without code is a fault, which the analysis finds."""
    embodied: bool | None = None
    """The assistant acts by Python that it writes, run in a sandbox; its tools are the actions. Needs
    --run-code."""
    preamble: str = ""
    """Put before each prompt of its conversations and the questions for lists. Only where `red_team` is
    true."""

    @property
    def longest(self) -> int | None:
        """Messages at which a session ends, by ``max_messages`` or by the list of endings."""
        return self.max_messages or parse_endings(self.endings).max_messages

    def check(self, recipe: Recipe) -> None:
        """Check that only red-team recipes have a preamble, and that limits, critic and tools fit together."""
        if self.embodied and recipe.critic is not None:
            raise make_fault("an embodied assistant has no critic", self.key, "embodied")
        if self.embodied and self.protocol == "enforced":
            raise make_fault(
                "an embodied assistant cannot be held to the enforced protocol", self.key, "embodied"
            )
        if self.embodied and recipe.tools is not None and recipe.tools.agent != "assistant":
            raise make_fault("only the embodied assistant has tools", self.key, "embodied")
        listed = parse_endings(self.endings).max_messages
        if listed is not None and self.max_messages not in (None, listed):
            raise make_fault("`endings` has another limit of messages", self.key, "max_messages")
        if self.preamble and not recipe.red_team:
            raise make_fault("this is only for a recipe with red_team = true", self.key, "preamble")


class Answer(JobSpec):
    """Each job is one question and its answer (the paper's science data sets)."""

    key: ClassVar[str] = "answer"
    templates: ClassVar[tuple[str, ...]] = ("system", "question")

    role: Filled
    """Role that answers, for example Physicist."""
    system: Filled
    """Template of its system prompt."""
    question: Filled
    """Template of the question."""
    temperature: Temperature | None = None
    max_tokens: Annotated[int, Field(gt=0, strict=True)] = 2048


class Translate(JobSpec):
    """Each job is a conversation of another run in another language. The axis gives the languages."""

    key: ClassVar[str] = "translate"
    templates: ClassVar[tuple[str, ...]] = ("system",)
    placeholders: ClassVar[frozenset[str]] = frozenset({"language_name"})
    later_axes: ClassVar[tuple[str, ...]] = ("source",)

    source: str = ""
    """The run to translate. Set it with --set source=RUN."""
    languages: dict[str, str]
    """Name of the language, by item of the axis."""
    system: Filled
    """Template of the translator's prompt; {{ language }} is its name."""
    temperature: Temperature | None = None
    max_tokens: Annotated[int, Field(gt=0, strict=True)] = 4096

    def check(self, recipe: Recipe) -> None:
        """Check that the only axis is the language, and that its items are given."""
        axes = recipe.axes
        if len(axes) != 1 or axes[0].name != "language":
            raise make_fault("a translation has one axis, and its name is language", "axes", 0, "name")
        if axes[0].items is None:
            raise make_fault("the languages of a translation are given", "axes", 0, "given")


class SocietyJob(JobSpec):
    """Each job is a society at work: several agents, or several conversations one after another."""

    key: ClassVar[str] = "society"
    templates: ClassVar[tuple[str, ...]] = ("task",)

    file: Filled
    """A society's name or .toml file."""
    task: Filled
    """Template of its task."""
    prompts: str | None = None
    """Prompt pack of its role-plays. Default: the pack that suits the models."""
    protocol: Literal["free", "enforced"] | None = None
    """Default: enforced if its models are in this process, else free."""
    endings: EndingText = "default"
    """Of its role-plays."""
    max_messages: Annotated[int | None, Field(gt=0, strict=True)] = None
    """Of each stage. Default: what the society says."""
    language: str | None = None
    """Language in which to answer."""


# The kinds of jobs that a recipe can have: the built-in ones, and those of installed packages.


# Entry-point group: a kind of job by the name of its table, an object whose `spec` is a `JobSpec` class.
JOBS = "bactrian.jobs"
BUILT_IN: tuple[type[JobSpec], ...] = (RolePlay, Answer, Translate, SocietyJob)


def find_recipe_model(keys: Collection[str] | None = None) -> type[Recipe]:
    """Return the model of a recipe whose tables are ``keys``; None for one that knows every kind of job.

    A package is loaded only for a recipe that has a table of its name, so that a broken one disturbs no others.

    Raises:
        InputError: a package that registers one of them cannot be used.
    """
    built_in = {spec.key for spec in BUILT_IN}
    others = [name for name in list_plugins(JOBS) if name not in built_in and (keys is None or name in keys)]
    return _build_recipe_model((*BUILT_IN, *map(_load_spec, others)))


def restore_recipe(key: str, state: dict[Any, Any]) -> Recipe:
    """Make a recipe again that another process of the program has read; its jobs are of the kind ``key``."""
    model = find_recipe_model([key])
    recipe = model.__new__(model)
    recipe.__setstate__(state)
    return recipe


def build_recipe(
    name: str, axes: Mapping[str, Sequence[str]], job: Mapping[str, Mapping[str, Any]], description: str = ""
) -> Recipe:
    """Return a recipe whose axes have these items, with the table of its job."""
    rows = [{"name": key, "given": list(items), "count": len(items)} for key, items in axes.items()]
    content = {"name": name, "description": description, "axes": rows, **job}
    return find_recipe_model(list(job)).model_validate(content)


def _load_spec(name: str) -> type[JobSpec]:
    spec: object = getattr(load_plugin(JOBS, name), "spec", None)
    if not (isinstance(spec, type) and issubclass(spec, JobSpec)) or spec.key != name:
        raise InputError(
            f"What a package registers as {name!r} under {JOBS!r} is not a kind of job.",
            where=name,
            next=f"Register a JobKind, whose spec is a JobSpec with the key {name!r}.",
        )
    if name in Recipe.model_fields:
        raise InputError(
            f"A package registers a kind of job as {name!r}, which is another key of every recipe.",
            where=name,
            next="Give it another name.",
        )
    return spec


@cache
def _build_recipe_model(specs: tuple[type[JobSpec], ...]) -> type[Recipe]:
    fields: dict[str, Any] = {spec.key: (spec | None, None) for spec in specs}
    model = create_model("Recipe", __base__=Recipe, __doc__=Recipe.__doc__, **fields)
    model.specs = {spec.key: spec for spec in specs}
    return model
