"""The tables and figures of the paper as data: ``items.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from pydantic import Field

from bactrian.errors import InputError
from bactrian.recipes.load import load_recipe, read_recipe_content
from bactrian.recipes.schema import Part, Recipe

Action = Literal[
    "behaviours",
    "compare",
    "converse",
    "elsewhere",
    "endings",
    "flakes",
    "humaneval",
    "map",
    "prompts",
    "questions",
    "settings",
    "stages",
]


class PaperRun(Part):
    """A run of conversations that items share."""

    title: str
    recipe: str = ""
    settings: tuple[str, ...] = ()
    # The recipe itself, if it is none of the built-in ones
    table: dict[str, Any] = Field(default_factory=dict[str, Any])
    origin: str = ""  # The run whose tasks it has

    def load(self) -> Recipe:
        """Return its recipe."""
        return read_recipe_content(self.table) if self.table else load_recipe(self.recipe, self.settings)


class PaperTraining(Part):
    """A training of an item: a recipe, and the runs that each of its stages learns from."""

    recipe: str
    settings: tuple[str, ...] = ()  # Changes to the recipe
    stages: dict[str, tuple[str, ...]]
    models: dict[str, str]  # The stages that are compared, the base among them, by the name they have there


class ItemStep(Part):
    """A step of an item: what is done, and with what."""

    do: Action
    run: str = ""  # A run of conversations
    runs: tuple[str, ...] = ()  # Several of them, side by side
    # What some of them, or the ways, are called here
    titles: dict[str, str] = Field(default_factory=dict[str, str])
    sessions: int = 0  # Of each run, at scale 1
    tasks: int = 0  # To compare, at scale 1
    other: str = ""  # The way of solving, or the run, that role-plays are compared with
    texts: str = ""  # What a map shows
    pack: str = ""
    engine: tuple[str, ...] = ()  # Names of the program's own prompts
    templates: tuple[str, ...] = ()  # Names of a pack's prompts
    recipe: str = ""  # Of conversations, or of a training
    # By the name of the folder
    trainings: dict[str, PaperTraining] = Field(default_factory=dict[str, PaperTraining])
    pairs: tuple[tuple[str, str], ...] = ()  # The trained models that are compared
    questions: tuple[str, ...] = ()  # Sets of questions
    acts: bool = False  # True if an agent acts by code
    reply_length: int = 0  # Longest answer of the built-in model, or one trained from it, in tokens
    temperatures: tuple[float, ...] = ()
    samples: int = 0
    printed: dict[str, float] = Field(default_factory=dict[str, float])  # The paper's numbers by name
    share: bool = True  # True if those are percentages
    commands: tuple[str, ...] = ()  # Of another program


class PaperItem(Part):
    """A table or figure of the paper."""

    name: str
    title: str
    section: str
    steps: tuple[ItemStep, ...]
    paper: str = ""  # What the paper reports, where it is no number
    differs: str = ""  # What is done in another way here
    needs: str = ""  # Besides a model
    chart: str = ""  # The measure that its chart compares, if that is not all shares

    @property
    def label(self) -> str:
        """The name as the paper writes it: ``Table 1``."""
        kind = self.name.rstrip("0123456789")
        return f"{kind.capitalize()} {self.name.removeprefix(kind)}"

    @property
    def is_judged(self) -> bool:
        """True if a model judges it."""
        return any(step.do in ("compare", "stages") for step in self.steps)


class Paper(Part):
    """All items, and the runs that they share."""

    runs: dict[str, PaperRun]
    items: tuple[PaperItem, ...]

    def find(self, name: str) -> tuple[PaperItem, ...]:
        """Return the item of this name, ``table1`` or ``Table 1``, or all items for ``all``.

        Raises:
            InputError: there is no such item.
        """
        wanted = "".join(name.lower().split())
        found = tuple(item for item in self.items if wanted in (item.name, "all"))
        if not found:
            raise InputError(
                f"The paper has no {name!r}.",
                where="ITEM",
                next="Name one of table1 to table9 and figure1 to figure20, or all of them with 'all'.",
            )
        return found


@cache
def load_paper_items() -> Paper:
    """Return the tables and figures of the paper."""
    text = files("bactrian.reproduce").joinpath("items.toml").read_text("utf-8")
    return Paper.model_validate(tomllib.loads(text))
