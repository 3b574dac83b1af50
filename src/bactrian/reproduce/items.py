"""The tables and figures of the paper as data: ``items.toml``."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from typing import Literal

from bactrian.errors import InputError
from bactrian.files.toml import suggest_name
from bactrian.recipes.load import load_recipe
from bactrian.recipes.schema import Part, Recipe

Action = Literal["compare"]


class PaperRun(Part):
    """A run of conversations that items share."""

    title: str
    recipe: str
    settings: tuple[str, ...] = ()
    whole: int  # Conversations of the paper's data set

    def load(self) -> Recipe:
        """Return its recipe."""
        return load_recipe(self.recipe, self.settings)


class ItemStep(Part):
    """A step of an item: what is done, and with what."""

    do: Action
    run: str = ""  # A run of conversations
    tasks: int = 0  # At scale 1
    other: str = ""  # The way of solving that role-plays are compared with


class PaperItem(Part):
    """A table or figure of the paper."""

    name: str
    title: str
    section: str
    steps: tuple[ItemStep, ...]
    paper: str = ""  # What the paper reports, where it is no number
    differs: str = ""  # What is done in another way here
    needs: str = ""  # Besides a model

    @property
    def label(self) -> str:
        """The name as the paper writes it: ``Table 1``."""
        kind = self.name.rstrip("0123456789")
        return f"{kind.capitalize()} {self.name.removeprefix(kind)}"


class Paper(Part):
    """All items, and the runs that they share."""

    runs: dict[str, PaperRun]
    items: tuple[PaperItem, ...]

    def find(self, name: str) -> tuple[PaperItem, ...]:
        """Return the item of this name, or all items for ``all``.

        Raises:
            InputError: there is no such item.
        """
        names = [item.name for item in self.items]
        if name == "all":
            return self.items
        if name not in names:
            raise InputError(
                f"The paper has no {name!r} that can be made.{suggest_name(name, names)}",
                where="ITEM",
                next="`bactrian reproduce` lists its tables and figures.",
            )
        return (self.items[names.index(name)],)


@cache
def load_paper_items() -> Paper:
    """Return the tables and figures of the paper."""
    text = files("bactrian.reproduce").joinpath("items.toml").read_text("utf-8")
    return Paper.model_validate(tomllib.loads(text))
