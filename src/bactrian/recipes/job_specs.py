"""The schema of a recipe's jobs: one table for each built-in kind."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, cast

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema, create_model

from bactrian.errors import InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.recipes.parameters import parse_endings
from bactrian.recipes.schema import Filled, JobSpec, Recipe, Temperature, make_fault


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
        raise ValueError(f"{error.what} {error.next or ''}".strip()) from error
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
