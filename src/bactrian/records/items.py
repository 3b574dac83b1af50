"""A list that a model wrote, as far as it is known."""

from __future__ import annotations

from dataclasses import dataclass

from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class ItemList:
    """The items of an axis, as far as they are known."""

    id: str
    items: tuple[str, ...]
    complete: bool
    """False while some are missing; they were given up if no call brings new ones."""
    usage: Usage
    calls: int
