"""Axes of a recipe: lists of items that are combined."""

from __future__ import annotations

from typing import Annotated, LiteralString, Self
from unicodedata import normalize

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

_NAME = r"^[a-z][a-z0-9_]{0,63}$"
_MOST = 1_000_000
"""Maximum number of items of an axis."""
Temperature = Annotated[float, Field(ge=0, le=5, strict=True)]
Filled = Annotated[str, Field(pattern=r"\S")]
"""A text that is not blank."""
_Item = Annotated[str, Field(pattern=r"^[^\x00]*[^\s\x00][^\x00]*$")]
"""A text that is not blank and contains no NUL."""


_ROW: TypeAdapter[list[str]] = TypeAdapter(list[str])


class Part(BaseModel):
    """A table of a recipe or of a society: immutable, without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def make_fault(what: LiteralString, *place: str | int, **values: object) -> PydanticCustomError:
    """Return a validation error at ``place`` below the table that pydantic validates."""
    return PydanticCustomError("placed", what, {"place": place, **values})


_NEEDS_ASK: JsonDict = {"required": ["ask"]}
_AXIS_RULES: JsonDict = {
    "anyOf": [{"required": [key]} for key in ("given", "file", "ask", "source")],
    "not": {"required": ["given", "file"]},
    "allOf": [
        {"if": {"properties": {"fresh": {"const": True}}, "required": ["fresh"]}, "then": _NEEDS_ASK},
        {
            "if": {"properties": {"per": {"minItems": 1}}, "required": ["per"]},
            "then": {"anyOf": [_NEEDS_ASK, {"required": ["source"]}, {"required": ["file"]}]},
        },
        {
            "if": {"required": ["source"]},
            "then": {"not": {"anyOf": [{"required": [key]} for key in ("given", "file", "ask")]}},
        },
    ],
}
"""The rules between keys that JSON schema can express; the validators below check all rules."""


LIST_FILE = "file:"
"""Prefix of a source that is a file; the template of its path follows."""


class Axis(Part):
    """One dimension of the grid: a given list, a list requested from a model, or given items that a model extends."""

    model_config = ConfigDict(json_schema_extra=_AXIS_RULES)

    name: Annotated[str, Field(pattern=_NAME, description="Placeholder of an item in templates.")]
    count: Annotated[int, Field(gt=0, le=_MOST, strict=True, description="Number of items.")]
    given: Annotated[
        tuple[_Item, ...] | None, Field(min_length=1, description="The items, without duplicates.")
    ] = None
    file: Annotated[
        str | None,
        Field(
            description="A text file beside the recipe with one item per line; with axes of `per` in its name, one "
            "file per combination."
        ),
    ] = None
    ask: Annotated[
        str | None,
        Field(description="Template of the question for the items: {{ count }} and the axes in `per`."),
    ] = None
    source: Annotated[
        str | None,
        Field(
            min_length=1,
            description="Name of a list source that a package registers or the program passes; instead of `ask`.",
        ),
    ] = None
    per: Annotated[
        tuple[str, ...], Field(description="Earlier axes; one list is made per combination of their items.")
    ] = ()
    each: Annotated[
        bool, Field(strict=True, description="Ask for one item at a time instead of for a list.")
    ] = False
    earlier: Annotated[
        int | None,
        Field(
            ge=0,
            strict=True,
            description="Number of existing items that a question lists, the newest. Default: 40 for a list, "
            "0 if items are requested one at a time.",
        ),
    ] = None
    fresh: Annotated[
        bool, Field(strict=True, description="Ask the model for the list even if one is given.")
    ] = False
    temperature: Annotated[Temperature | None, Field(description="Temperature of the answers to `ask`.")] = (
        None
    )
    max_tokens: Annotated[
        int,
        Field(
            gt=0,
            strict=True,
            description="Maximum tokens of an answer to `ask`; less if the model's context window is small.",
        ),
    ] = 4096
    columns: Annotated[
        tuple[str, ...] | None,
        Field(
            min_length=1,
            description="Names of the values in each item, which is then a JSON array of texts. `--jobs` sets it.",
        ),
    ] = None

    @property
    def names(self) -> tuple[str, ...]:
        """The placeholders of an item: its name, or its columns."""
        return self.columns or (self.name,)

    @property
    def shown(self) -> int:
        """Number of existing items that a question lists."""
        # New recipes with `each` set 0; runs of earlier versions lack the key and listed 40 there, too.
        return 40 if self.earlier is None else self.earlier

    @property
    def items(self) -> tuple[str, ...] | None:
        """The items if all are given; None if a model is asked for them or for some of them."""
        return self.first if len(self.first) == self.count else None

    @property
    def first(self) -> tuple[str, ...]:
        """The given items, up to the axis's count."""
        return () if self.given is None or self.fresh else self.given[: self.count]

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
