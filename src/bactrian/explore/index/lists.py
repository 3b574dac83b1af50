"""Pages of a list, and counts, from the side files of one or more data sets."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from heapq import merge
from itertools import islice
from pathlib import Path
from typing import Any, cast

from bactrian.explore.filters import ListFilter
from bactrian.explore.index.side import read_side_file

PAGE = 50
"""Conversations on a page."""
MOST_COUNTED = 20_000
"""A count stops here; a search with more hits is not sorted by rank."""
MOST_RANKED = 20 * PAGE
"""Conversations of a search sorted by rank."""
_ANY_FACT = "facts.row = facts.row"
"""A condition that always holds, for queries that need the facts of each session."""
SORT_COLUMNS: Mapping[str, tuple[str, bool]] = {
    "": ("facts.row", False),
    "newest": ("facts.row", True),
    "longest": ("facts.turns", True),
    "findings": ("facts.findings", True),
    "cost": ("facts.cost", True),
}
"""Column to sort by, and True for descending, by the word for the order."""


@dataclass(frozen=True, slots=True)
class ListedSession:
    """A conversation in a list."""

    data: str
    """Name of the data set."""
    row: int
    id: str
    assistant: str
    user: str
    task: str
    kind: str
    language: str | None
    ending: str
    turns: int
    tokens: int
    cost: float | None
    findings: int | None
    """None while behaviours have not been looked for."""
    behaviours: tuple[str, ...]
    marks: tuple[str, ...]
    red: bool
    """True for a session made to study misuse."""
    created: float


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a list."""

    sessions: tuple[ListedSession, ...]
    after: str
    """The key at which the next page begins; empty on the last page."""
    count: int
    """Conversations that fit the filter, at most :data:`MOST_COUNTED` + 1."""
    sort: str
    """The order, which differs from the requested one if there were too many hits to rank."""

    @property
    def counted(self) -> bool:
        """True if ``count`` is complete."""
        return self.count <= MOST_COUNTED


def read_list(sides: Mapping[str, Path], list_filter: ListFilter) -> ListPage:
    """Return a page of the conversations that fit.

    Args:
        sides: Side files by name of the data set, in the order of the list.
        list_filter: The filter, the order and the beginning of the page.

    Raises:
        TooSlow: a query ran too long.
    """
    with ExitStack() as stack:
        opened = {name: stack.enter_context(read_side_file(path)) for name, path in sides.items()}
        count = sum(count_sessions(side, list_filter) for side in opened.values())
        sort = choose_sort(list_filter, count)
        if sort == "best":
            found, after = _read_ranked(opened, list_filter)
        else:
            found, after = _read_sorted(opened, list_filter, sort)
        sessions = tuple(_read_head(opened[name], name, row) for name, row in found)
    return ListPage(sessions, after, count, sort)


def choose_sort(list_filter: ListFilter, count: int) -> str:
    """Return the order of a list: another one than was asked for if there is nothing to rank, or too much."""
    if list_filter.sort == "best" and (list_filter.match is None or count > MOST_COUNTED):
        return "newest" if list_filter.match else ""
    return list_filter.sort


def count_sessions(side: sqlite3.Connection, list_filter: ListFilter) -> int:
    """Count the conversations that fit, at most :data:`MOST_COUNTED` + 1; all of them without a filter."""
    if list_filter.is_empty:
        return side.execute("SELECT count(*) FROM facts").fetchone()[0]
    source, values = select_rows(list_filter)
    query = f"SELECT count(*) FROM (SELECT 1 {source} LIMIT {MOST_COUNTED + 1})"  # noqa: S608
    return side.execute(query, values).fetchone()[0]


def select_rows(list_filter: ListFilter, *more: str) -> tuple[str, list[Any]]:
    """Return FROM and WHERE of the sessions that fit, and the parameters."""
    where, values = list_filter.to_sql()
    if list_filter.match is None:
        source = "FROM facts"
    elif where or any("facts." in one for one in more):
        # CROSS JOIN keeps the order: hits come sorted by row, so that a page needs only its own.
        source = "FROM words CROSS JOIN facts ON facts.row = words.rowid"
    else:
        source = "FROM words"
    if list_filter.match is not None:
        where, values = ["words MATCH ?", *where], [list_filter.match, *values]
    conditions = [*where, *more]
    return f"{source}{' WHERE ' if conditions else ''}{' AND '.join(conditions)}", values


def _read_sorted(
    sides: Mapping[str, sqlite3.Connection], list_filter: ListFilter, sort: str
) -> tuple[list[tuple[str, int]], str]:
    """Return the data sets and rows of a page, and the key of the next one."""
    column, descending = SORT_COLUMNS[sort]
    by_row = column == "facts.row"
    if by_row and list_filter.match is not None:
        column = "words.rowid"
    order, sign = ("DESC", "<") if descending else ("ASC", ">")
    turned = -1 if descending else 1
    cursor = _read_cursor(list_filter.after)
    names = list(sides)
    streams: list[list[tuple[float, int, int]]] = []
    for place, (_, side) in enumerate(sides.items()):
        more: list[str] = []
        values: list[Any] = []
        if cursor is not None:
            value, at, row = cursor
            if by_row:  # One data set after the other.
                if (place < at) != descending and place != at:
                    continue
                if place == at:
                    more, values = [f"{column} {sign} ?"], [row]
            else:
                row_column = "words.rowid" if list_filter.match is not None else "facts.row"
                last = row if place == at else (-1 if place > at else 1 << 62)
                more = [f"({column} {sign} ? OR ({column} = ? AND {row_column} > ?))"]
                values = [value, value, last]
        source, parameters = select_rows(list_filter, *more, *(() if by_row else (_ANY_FACT,)))
        row_column = "words.rowid" if list_filter.match is not None else "facts.row"
        tie = "" if by_row else f", {row_column}"
        query = f"SELECT {column}, {row_column} {source} ORDER BY {column} {order}{tie} LIMIT {PAGE + 1}"
        found = side.execute(query, [*parameters, *values])
        if by_row:
            streams.append([(turned * place, turned * row, place) for _, row in found])
        else:
            streams.append([(turned * value, place * (1 << 40) + row, place) for value, row in found])
    page = list(islice(merge(*streams), PAGE + 1))
    rows = [(place, abs(row) % (1 << 40)) for _, row, place in page]
    after = ""
    if len(page) > PAGE:
        place, row = rows[PAGE - 1]
        after = f"{turned * page[PAGE - 1][0]}~{place}~{row}"
    return [(names[place], row) for place, row in rows[:PAGE]], after


def _read_cursor(after: str) -> tuple[float, int, int] | None:
    try:
        value, place, row = after.split("~")
        return float(value), int(place), int(row)
    except ValueError:
        return None


def _read_ranked(
    sides: Mapping[str, sqlite3.Connection], list_filter: ListFilter
) -> tuple[list[tuple[str, int]], str]:
    skip = int(list_filter.after) if list_filter.after.isdecimal() else 0
    skip = min(skip, MOST_RANKED - PAGE)
    found = rank_rows(sides, list_filter, skip + PAGE + 1)
    more = len(found) > skip + PAGE and skip + PAGE < MOST_RANKED
    return found[skip : skip + PAGE], str(skip + PAGE) if more else ""


def rank_rows(
    sides: Mapping[str, sqlite3.Connection], list_filter: ListFilter, limit: int
) -> list[tuple[str, int]]:
    """Return the data sets and rows of the best hits of a search, the best first."""
    found: list[tuple[float, int, str]] = []
    for name, side in sides.items():
        source, values = select_rows(list_filter)
        query = f"SELECT words.rank, words.rowid {source} ORDER BY words.rank LIMIT {limit}"
        found += [(rank, row, name) for rank, row in side.execute(query, values)]
    return [(name, row) for _, row, name in sorted(found)[:limit]]


_HEAD = """
SELECT id, assistant, user, heads.task, kind, language, ending, turns, tokens, cost, findings, facts.mark, created
FROM facts JOIN heads USING (row) WHERE row = ?
"""


def _read_head(side: sqlite3.Connection, data: str, row: int) -> ListedSession:
    (*start, cost, findings, mark, created) = side.execute(_HEAD, (row,)).fetchone()
    shown = side.execute("SELECT DISTINCT behaviour FROM shown WHERE row = ?", (row,)).fetchall()
    marks = side.execute("SELECT mark FROM marks WHERE row = ?", (row,)).fetchall()
    return ListedSession(
        data,
        row,
        *cast("tuple[str, str, str, str, str, str | None, str, int, int]", tuple(start)),
        None if cost < 0 else cost,
        None if findings < 0 else findings,
        tuple(one for (one,) in shown),
        tuple(one for (one,) in marks),
        mark is not None,
        created,
    )


def count_values(
    sides: Sequence[Path], list_filter: ListFilter, column: str, limit: int = 200
) -> list[tuple[str, int]]:
    """Count the conversations that fit, by ending, behaviour, language, role or mark; the commonest first."""
    counts: dict[str, int] = {}
    for path in sides:
        with read_side_file(path) as side:
            if column in ("behaviour", "mark"):
                table = "shown" if column == "behaviour" else "marks"
                source, values = select_rows(list_filter, _ANY_FACT)
                inside = "" if list_filter.is_empty else f" WHERE row IN (SELECT facts.row {source})"
                query = f"SELECT {column}, count(DISTINCT row) FROM {table}{inside} GROUP BY {column}"  # noqa: S608
                rows = side.execute(query, values if inside else [])
            else:
                source, values = select_rows(list_filter, f"facts.{column} IS NOT NULL")
                query = f"SELECT facts.{column}, count(*) {source} GROUP BY facts.{column}"
                rows = side.execute(query, values)
            for value, count in rows:
                counts[value] = counts.get(value, 0) + count
    return sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:limit]


def count_total(sides: Iterable[Path], list_filter: ListFilter, *, searched: bool = False) -> int:
    """Count all conversations that fit, however many; only those that were searched for behaviours if asked."""
    total = 0
    for path in sides:
        with read_side_file(path) as side:
            source, values = select_rows(list_filter, *(("facts.seen_turns >= 0",) if searched else ()))
            total += side.execute(f"SELECT count(*) {source}", values).fetchone()[0]
    return total


def count_stages(sides: Iterable[Path]) -> tuple[int, int, int]:
    """Return the number of conversations, of those that the search lacks, and of those without behaviours yet."""
    sums = [0, 0, 0]
    for path in sides:
        with read_side_file(path) as side:
            query = (
                "SELECT (SELECT count(*) FROM facts), (SELECT count(*) FROM facts WHERE text_turns <> turns),"
                " (SELECT count(*) FROM facts WHERE seen_turns <> turns)"
            )
            sums = [have + more for have, more in zip(sums, side.execute(query).fetchone(), strict=True)]
    return sums[0], sums[1], sums[2]


def count_pairs(
    sides: Iterable[Path], list_filter: ListFilter, behaviours: Sequence[str]
) -> Iterator[tuple[str, str, int, int]]:
    """Yield assistant role, user role, conversations that show one of ``behaviours``, and all that were searched."""
    marks = ", ".join("?" * len(behaviours))
    for path in sides:
        with read_side_file(path) as side:
            source, values = select_rows(list_filter, _ANY_FACT)
            query = (
                "SELECT assistant, user,"  # noqa: S608
                f" sum(facts.row IN (SELECT row FROM shown WHERE behaviour IN ({marks}))), sum(seen_turns >= 0)"
                f" {source} GROUP BY assistant, user"
            )
            yield from side.execute(query, [*behaviours, *values])


def list_ids(path: Path, list_filter: ListFilter) -> list[str]:
    """Return the ids of all conversations that fit, in the order of the run."""
    with read_side_file(path, seconds=30) as side:
        source, values = select_rows(list_filter, _ANY_FACT)
        query = f"SELECT id FROM heads WHERE row IN (SELECT facts.row {source}) ORDER BY row"  # noqa: S608
        return [session for (session,) in side.execute(query, values)]
