"""Remaining cost of a run's lists: assumed first, then measured on finished lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from bactrian.models.wrappers.budget import Price
from bactrian.recipes.axis import Axis
from bactrian.records.run import ItemList
from bactrian.records.usage import Usage

_ITEM = 15
"""Tokens of an item in a list; of one that is asked for alone, ten times as many."""
_LIST_PROMPT = 80
_SHOWN_ITEM = 50
"""Tokens of an earlier item in a question; longer ones are cut there."""


@dataclass(slots=True)
class AxisCosts:
    """The questions for the lists of one axis: one for each list, or one for each item."""

    left: int
    assumed: Usage
    """Of one question."""
    each: bool
    """True if each item is a question."""
    asked: int = 0
    """Questions whose usage is known."""
    used: Usage = Usage()

    def finish(self, items: ItemList) -> None:
        """Count a finished list; a copied one shows no cost."""
        questions = len(items.items) if self.each else 1
        self.left = max(0, self.left - questions)
        if items.calls:
            self.asked += questions
            self.used += items.usage

    def estimate(self) -> Usage:
        """Return the cost of all remaining questions together."""
        if not self.asked:
            return Usage(self.left * self.assumed.prompt, self.left * self.assumed.completion)
        share = self.left / self.asked
        return Usage(round(share * self.used.prompt), round(share * self.used.completion))


@dataclass(slots=True)
class ListCosts:
    """The remaining cost of a run's lists."""

    axes: dict[str, AxisCosts] = field(default_factory=dict[str, AxisCosts])
    price: Price | None = None
    """Of the model that is asked for lists; None if it is unknown."""

    def finish(self, items: ItemList) -> None:
        """Count a finished list."""
        if (axis := self.axes.get(items.id.partition("@")[0])) is not None:
            axis.finish(items)

    def estimate(self) -> Usage:
        """Return the tokens of all remaining questions."""
        return sum((axis.estimate() for axis in self.axes.values()), Usage())

    def count_calls(self) -> int:
        """Return the number of questions that are left."""
        return sum(axis.left for axis in self.axes.values())


def estimate_lists(axes: Sequence[Axis], size: int, *, spread: bool, price: Price | None = None) -> ListCosts:
    """Return the cost of all lists that ``size`` jobs need.

    Jobs that are ``spread`` need as many different lists as possible, and the first items of each.
    """
    return ListCosts(dict(_expect_axes(axes, size, spread=spread)), price)


def _expect_axes(axes: Sequence[Axis], size: int, *, spread: bool) -> Iterator[tuple[str, AxisCosts]]:
    for position, axis in enumerate(axes):
        if axis.items is not None or axis.ask is None or axis.source is not None:
            continue
        below = prod(other.count for other in axes[position:])
        most = prod(other.count for other in axes if other.name in axis.per)
        lists = min(most, size if spread else -(-size // below))
        if not axis.each:
            yield axis.name, AxisCosts(lists, Usage(_LIST_PROMPT, axis.count * _ITEM), each=False)
            continue
        # Only the items that are needed are requested.
        needed = size if spread else -(-size // (below // axis.count))
        tokens = _ITEM * 10
        shown = round(_count_shown(axis) * min(tokens, _SHOWN_ITEM))
        yield (
            axis.name,
            AxisCosts(min(lists * axis.count, needed), Usage(_LIST_PROMPT + shown, tokens), each=True),
        )


def _count_shown(axis: Axis) -> float:
    """Return how many earlier items a question for one more lists, on average."""
    return sum(min(position, axis.shown) for position in range(axis.count)) / axis.count
