"""The conversations before and after one, in the order of the list from which the reader came."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from bactrian.explore.filters import ListFilter
from bactrian.explore.index.lists import (
    MOST_RANKED,
    SORT_COLUMNS,
    choose_sort,
    count_sessions,
    rank_rows,
    select_rows,
)
from bactrian.explore.index.side import read_side_file

Place = tuple[str, str]
"""The name of a data set, and the id of a conversation."""
FoundRow = tuple[str, int]
"""The name of a data set, and the row of a conversation."""
_BEYOND = 1 << 62
"""More than any row."""
_SIGNS = {1: ">", -1: "<"}
_ORDERS = {1: "ASC", -1: "DESC"}


def find_neighbours(
    sides: Mapping[str, Path], list_filter: ListFilter, data: str, row: int
) -> tuple[Place | None, Place | None]:
    """Return the conversations before and after ``row`` of the data set ``data`` in the list of a filter.

    Args:
        sides: Side files by name of the data set, in the order of the list.
        list_filter: The filter and the order.
        data: One of the names.
        row: The conversation. It need not fit the filter, unless the list is ranked.
    """
    with ExitStack() as stack:
        opened = {name: stack.enter_context(read_side_file(path)) for name, path in sides.items()}
        sort = list_filter.sort
        if sort == "best":  # Only then does it depend on the count.
            sort = choose_sort(
                list_filter, sum(count_sessions(side, list_filter) for side in opened.values())
            )
        if sort == "best":
            near = _find_ranked(opened, list_filter, (data, row))
        else:
            near = tuple(_find_next(opened, list_filter, sort, (data, row), way) for way in (-1, 1))
        before, after = (one and (one[0], _read_id(opened[one[0]], one[1])) for one in near)
    return before, after


def _find_ranked(
    opened: Mapping[str, sqlite3.Connection], list_filter: ListFilter, here: FoundRow
) -> tuple[FoundRow | None, FoundRow | None]:
    ranked = [None, *rank_rows(opened, list_filter, MOST_RANKED), None]
    if here not in ranked:
        return None, None
    at = ranked.index(here)
    return ranked[at - 1], ranked[at + 1]


def _find_next(
    opened: Mapping[str, sqlite3.Connection], list_filter: ListFilter, sort: str, here: FoundRow, way: int
) -> FoundRow | None:
    """Return the next conversation in the list; with ``way`` -1, the one before."""
    column, descending = SORT_COLUMNS[sort]
    turned = -way if descending else way
    by_row = column == "facts.row"  # Then the list contains one data set after the other.
    along = turned if by_row else way
    (value,) = opened[here[0]].execute(f"SELECT {column} FROM facts WHERE row = ?", here[1:]).fetchone()  # noqa: S608
    places = {name: along * place for place, name in enumerate(opened)}
    found: list[tuple[float, int, FoundRow]] = []
    for name, side in opened.items():
        # Of the conversations that are equal in the order, those of later data sets come after all of this one.
        distance = places[name] - places[here[0]]
        bound = here[1] if distance == 0 else along * (-_BEYOND if distance > 0 else _BEYOND)
        condition, values = f"facts.row {_SIGNS[along]} ?", [bound]
        if not by_row:
            condition = f"({column} {_SIGNS[turned]} ? OR ({column} = ? AND {condition}))"
            values = [value, value, bound]
        source, parameters = select_rows(list_filter, condition)
        query = (
            f"SELECT {column}, facts.row {source} ORDER BY {column} {_ORDERS[turned]}, facts.row {_ORDERS[along]}"
            " LIMIT 1"
        )
        for at, row in side.execute(query, [*parameters, *values]):
            found.append((0 if by_row else turned * at, places[name], (name, row)))
    return min(found)[2] if found else None


def _read_id(side: sqlite3.Connection, row: int) -> str:
    return side.execute("SELECT id FROM heads WHERE row = ?", (row,)).fetchone()[0]
