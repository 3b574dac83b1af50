"""The schema of a recipe."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    PrivateAttr,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict, JsonValue

from bactrian.recipes.axis import Axis, Part, make_fault
from bactrian.recipes.parameters import Parameters, RecipeModels, merge_parameters
from bactrian.records.candidate import CRITERIA, CriticSettings, Unreadable, read_search

_CRITIC_RULES: JsonDict = {
    "if": {
        "properties": {"search": {"type": "string", "not": {"const": "beam:1x1"}}},
        "required": ["search"],
    },
    "then": {"properties": {"rounds": {"maximum": 1}}},
}


class CriticSpec(Part):
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


class JobSpec(Part):
    """What each job of a recipe does: one table of the recipe. A kind of job has a subclass of it."""

    key: ClassVar[str]
    """Name of the table."""
    templates: ClassVar[tuple[str, ...]] = ()
    """Keys whose texts are templates over the axes."""
    placeholders: ClassVar[frozenset[str]] = frozenset()
    """Placeholders of the templates, beside the axes."""
    takes: ClassVar[frozenset[str]] = frozenset()
    """Tables that a recipe may have beside it: ``critic`` and ``tools``."""
    later_axes: ClassVar[tuple[str, ...]] = ()
    """Axes beside the recipe's own, whose items are known when a run is prepared."""
    recipe_rules: ClassVar[tuple[JsonDict, ...]] = ()
    """What the JSON schema can say of :meth:`check`."""

    def check(self, recipe: Recipe) -> None:
        """Check what lies between this table and the rest of the recipe.

        Raises:
            PydanticCustomError: with the place, as :func:`make_fault` makes it.
        """


_TAKEN = ("count", "language_name")
"""Placeholders that are not axes."""


def _add_rules(schema: JsonDict, model: type[Recipe]) -> None:
    """Add the rules for combining tables to the JSON schema."""
    specs = model.specs.values()
    rules: list[JsonDict] = [rule for spec in specs for rule in spec.recipe_rules]
    for table in _BESIDE:
        owners: list[JsonValue] = [{"required": [spec.key]} for spec in specs if table in spec.takes]
        rules.append({"if": {"required": [table]}, "then": {"anyOf": owners}})
    schema["oneOf"] = [{"required": [key]} for key in model.specs]
    schema["not"] = {"required": list(_BESIDE), "properties": {"critic": _CRITIC_RULES["if"]}}
    schema["allOf"] = list(rules)


_BESIDE = ("critic", "tools")
"""Tables that a recipe may have beside that of its jobs; a searching critic excludes tools."""


class Recipe(Part):
    """Axes, and what to do at each of their combinations.

    A recipe that was read has a field more for each kind of job (``recipes/registry.py``), one of which is given.
    """

    model_config = ConfigDict(json_schema_extra=_add_rules)

    specs: ClassVar[Mapping[str, type[JobSpec]]] = {}
    """The kinds of jobs that it may have, by the name of their table."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,63}$")]
    description: str = ""
    red_team: Annotated[
        bool,
        Field(
            strict=True, description="Made to study misuse: needs an acknowledgement, and marks all it makes."
        ),
    ] = False
    axes: Annotated[tuple[Axis, ...], Field(min_length=1)]
    critic: CriticSpec | None = None
    tools: RolePlayTools | None = None
    models: Annotated[
        RecipeModels | None, Field(description="Of its agents, where the command names no others.")
    ] = None
    parameters: Annotated[
        Parameters | None, Field(description="Sampling of all agents, and of single ones.")
    ] = None
    _folder: str = PrivateAttr("")

    @property
    def folder(self) -> str:
        """The folder of its file, in which the files of lists are; empty for the current one."""
        return self._folder

    def place_in(self, folder: str) -> Self:
        """Return the recipe as one of ``folder``. A run does not keep it, so that both can be moved."""
        placed = self.model_copy()
        placed._folder = folder
        return placed

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

    def with_parameters(self, given: Mapping[str, Any], where: str) -> Self:
        """Return the recipe with the user's parameters, which take precedence over its own."""
        return self.model_copy(update={"parameters": merge_parameters(self.parameters, given, where)})

    def with_list_sources(self, names: Mapping[str, str]) -> Self:
        """Return the recipe with list sources for some axes. ``names`` contains the source's name by axis."""
        own = {"given": None, "file": None, "ask": None, "fresh": False}
        axes = (
            axis.model_copy(update={**own, "source": names[axis.name]}) if axis.name in names else axis
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
            raise make_fault("a search tries out turns that are never said, so it cannot use tools", "tools")
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
