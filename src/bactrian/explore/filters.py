"""The filter of a list of conversations. Every filter is a link: it is read from an address and written into one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self, cast
from urllib.parse import urlencode

from bactrian.errors import InputError
from bactrian.explore.index.side import read_polygon
from bactrian.explore.index.words import read_search, write_match

SORTS: Mapping[str, str] = {
    "": "Order of the run",
    "newest": "Newest first",
    "longest": "Most messages",
    "findings": "Most findings",
    "cost": "Highest cost",
    "best": "Best match",
}
"""Names of the orders by their word in an address."""
_MARKED = (
    "facts.row IN (SELECT row FROM marks WHERE mark = ?"
    " UNION ALL SELECT row FROM facts WHERE mark IS NOT NULL AND ? = 'red-team')"
)
"""A person gave the mark, or, for what was made to study misuse, the recipe."""
_LONGEST = 1000
"""Characters of a search or another value."""


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Conditions on conversations. Empty values do not restrict."""

    q: str = ""
    """Words and phrases to be found."""
    data: tuple[str, ...] = ()
    """Names of data sets."""
    assistant: str = ""
    user: str = ""
    task: str = ""
    """The original task."""
    language: str = ""
    ending: tuple[str, ...] = ()
    """Codes, of which one must hold."""
    behaviour: tuple[str, ...] = ()
    """Codes, which must all have been found."""
    mark: str = ""
    """A mark that it has; after a minus sign, one that it does not have."""
    least: int | None = None
    """Messages, at least."""
    most: int | None = None
    cost: float | None = None
    """US dollars, at least."""
    ids: tuple[str, ...] = ()
    """Sessions by id."""
    topic: str = ""
    """A topic of a map: ``task:3``."""
    area: str = ""
    """A polygon on a map: ``task:x,y;x,y;x,y``."""
    sort: str = ""
    after: str = ""
    """Where the page begins: the key of the last conversation of the page before."""

    @classmethod
    def read(cls, query: Any) -> Self:
        """Read a filter from the parameters of an address.

        Raises:
            InputError: a number is not one, or the order is unknown.
        """
        values: dict[str, Any] = {}
        for name in (field.name for field in fields(cls)):
            given = [one[:_LONGEST] for one in query.getlist(name) if one]
            if not given:
                continue
            if name in ("data", "ending", "behaviour", "ids"):
                values[name] = tuple(dict.fromkeys(given))
            elif name in ("least", "most", "cost"):
                values[name] = _read_number(name, given[-1])
            else:
                values[name] = given[-1]
        made = cls(**values)
        _check_area(made.area)
        if made.sort not in SORTS:
            raise InputError(
                f"{made.sort!r} is not an order.", where="sort", next=f"Orders: {', '.join(SORTS)}."
            )
        return made

    def write(self, **changes: Any) -> str:
        """Return the filter, with changes, as the query of an address. A changed filter begins at its first page."""
        changes.setdefault("after", "")
        changed = replace(self, **changes)
        pairs: list[tuple[str, str]] = []
        for name in (field.name for field in fields(changed)):
            value = getattr(changed, name)
            given = cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,)
            pairs += [(name, str(one)) for one in given if one not in ("", None)]
        return f"?{urlencode(pairs)}" if pairs else "?"

    @property
    def conditions(self) -> dict[str, Any]:
        """The restricting parts by name, without the search, the data sets and the order."""
        names = [one.name for one in fields(self) if one.name not in ("q", "data", "sort", "after")]
        return {name: value for name in names if (value := getattr(self, name)) not in ("", (), None)}

    @property
    def is_empty(self) -> bool:
        """True if it restricts nothing."""
        return not self.conditions and not self.match

    @property
    def match(self) -> str | None:
        """The search, for the full-text index; None without one."""
        return write_match(read_search(self.q))

    def to_sql(self) -> tuple[list[str], list[Any]]:
        """Return conditions on ``facts`` and their parameters."""
        where: list[str] = []
        values: list[Any] = []
        for column in ("assistant", "user", "language"):
            if given := getattr(self, column):
                where.append(f"facts.{column} = ?")
                values.append(given)
        if self.task:
            where.append("facts.task = (SELECT no FROM tasks WHERE text = ?)")
            values.append(self.task)
        if self.ending:
            where.append(f"facts.ending IN ({_mark(self.ending)})")
            values += self.ending
        for code in self.behaviour:
            where.append("facts.row IN (SELECT row FROM shown WHERE behaviour = ?)")
            values.append(code)
        if self.mark:
            name = self.mark.removeprefix("-")
            where.append(_MARKED if name == self.mark else f"NOT {_MARKED}")
            values += [name, name]
        if self.ids:
            where.append(f"facts.row IN (SELECT row FROM heads WHERE id IN ({_mark(self.ids)}))")  # noqa: S608
            values += self.ids
        if self.topic:
            what, _, number = self.topic.partition(":")
            where.append("facts.row IN (SELECT row FROM points WHERE what = ? AND topic = ?)")
            values += [what, int(number) if number.isdecimal() else -1]
        if self.area:
            what, _, corners = self.area.partition(":")
            where.append("facts.row IN (SELECT row FROM points WHERE what = ? AND inside(x, y, ?))")
            values += [what, corners]
        for column, sign, limit in (
            ("turns", ">=", self.least),
            ("turns", "<=", self.most),
            ("cost", ">=", self.cost),
        ):
            if limit is not None:
                where.append(f"facts.{column} {sign} ?")
                values.append(limit)
        return where, values


def _check_area(area: str) -> None:
    if not area:
        return
    try:
        read_polygon(area.partition(":")[2])
    except ValueError as error:
        raise InputError("This is not a polygon.", where="area", next="Draw it on the map again.") from error


def _mark(values: tuple[str, ...]) -> str:
    return ", ".join("?" * len(values))


def _read_number(name: str, text: str) -> float | int:
    try:
        value = float(text) if name == "cost" else int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << 53:
        raise InputError(f"{text!r} is not a number of this kind.", where=name, next="Give a whole number.")
    return value
