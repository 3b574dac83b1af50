"""Lists of conversations: the filter, which an address contains, the pages of a list in its order, and counts.

Each run has an index of its own, its side file: it is built once, whichever runs are looked at together, and goes where
the run goes. A list over several runs asks each for what comes next, and sorts the answers.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import urlencode

from bactrian.errors import InputError
from bactrian.explore.search_words import read_search, write_match
from bactrian.explore.side_file import read_polygon, read_side_file

SORTS: Mapping[str, str] = {
    "": "Order of the run",
    "newest": "Newest first",
    "longest": "Most messages",
    "findings": "Most findings",
    "cost": "Highest cost",
    "best": "Best match",
}
"""Names of the orders by their word in an address."""
REPEATED = frozenset(("data", "ending", "behaviour", "ids"))
"""Conditions with several values."""
NUMBERS = frozenset(("least", "most", "cost"))
PAGE = 50
"""Conversations on a page."""
MOST_COUNTED = 20_000
"""A count stops here; a search with more hits is not sorted by rank."""
_MOST_RANKED = 20 * PAGE
"""Conversations of a search sorted by rank."""
_LONGEST = 1000
"""Characters of a search or another value."""
_MARKED = (
    "facts.row IN (SELECT row FROM marks WHERE mark = ?"
    " UNION ALL SELECT row FROM facts WHERE mark IS NOT NULL AND ? = 'red-team')"
)
"""A person gave the mark, or, for what was made to study misuse, the recipe."""
_SORT_COLUMNS: Mapping[str, tuple[str, bool]] = {
    "": ("row", False),
    "newest": ("row", True),
    "longest": ("turns", True),
    "findings": ("findings", True),
    "cost": ("cost", True),
}
"""Column to sort by, and True for descending, by the word for the order."""
_BEYOND = 1 << 62
"""More than any row."""

Address = tuple[str, str]
"""The name of a data set, and the id of a conversation."""
Place = tuple[float, int, int]
"""Where a conversation stands in a list: its value in the column of the order, the number of its data set, its row."""


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
    """Where the page begins: the place of the last conversation of the page before."""

    @classmethod
    def read(cls, query: Any) -> Self:
        """Read a filter from the parameters of an address.

        Raises:
            InputError: a number is not one, or the order is unknown.
        """
        values: dict[str, Any] = {}
        for name in (field.name for field in fields(cls)):
            texts = [text[:_LONGEST] for text in query.getlist(name) if text]
            if texts and name in REPEATED:
                values[name] = tuple(dict.fromkeys(texts))
            elif texts:
                values[name] = _read_number(name, texts[-1]) if name in NUMBERS else texts[-1]
        made = cls(**values)
        if made.area:
            try:
                read_polygon(made.area.partition(":")[2])
            except ValueError as error:
                raise InputError(
                    "This is not a polygon.", where="area", next="Draw it on the map again."
                ) from error
        if made.sort not in SORTS:
            raise InputError(
                f"{made.sort!r} is not an order.", where="sort", next=f"Orders: {', '.join(SORTS)}."
            )
        return made

    def write(self, **changes: Any) -> str:
        """Return the filter, with changes, as the query of an address. A changed filter begins at its first page."""
        return f"?{urlencode(replace(self, **{'after': '', **changes}).values, doseq=True)}"

    @property
    def values(self) -> dict[str, Any]:
        """What is not empty, by name."""
        return {
            field.name: value
            for field in fields(self)
            if (value := getattr(self, field.name)) not in ("", (), None)
        }

    @property
    def conditions(self) -> dict[str, Any]:
        """The restricting parts by name, without the search, the data sets and the order."""
        return {
            name: value for name, value in self.values.items() if name not in ("q", "data", "sort", "after")
        }

    @property
    def is_empty(self) -> bool:
        """True if it restricts nothing."""
        return not self.conditions and not self.match

    @property
    def match(self) -> str | None:
        """The search, for the full-text index; None without one."""
        return write_match(read_search(self.q))

    def to_sql(self) -> Iterator[tuple[str, Sequence[Any]]]:
        """Yield conditions on ``facts`` with their parameters."""
        for column in ("assistant", "user", "language"):
            if value := getattr(self, column):
                yield f"facts.{column} = ?", [value]
        if self.task:
            yield "facts.task = (SELECT no FROM tasks WHERE text = ?)", [self.task]
        if self.ending:
            yield f"facts.ending IN ({_mark(self.ending)})", self.ending
        for code in self.behaviour:
            yield "facts.row IN (SELECT row FROM shown WHERE behaviour = ?)", [code]
        if self.mark:
            name = self.mark.removeprefix("-")
            yield _MARKED if name == self.mark else f"NOT {_MARKED}", [name, name]
        if self.ids:
            yield f"facts.row IN (SELECT row FROM heads WHERE id IN ({_mark(self.ids)}))", self.ids  # noqa: S608
        if self.topic:
            what, _, number = self.topic.partition(":")
            values = [what, int(number) if number.isdecimal() else -1]
            yield "facts.row IN (SELECT row FROM points WHERE what = ? AND topic = ?)", values
        if self.area:
            what, _, corners = self.area.partition(":")
            yield "facts.row IN (SELECT row FROM points WHERE what = ? AND inside(x, y, ?))", [what, corners]
        limits = (("turns >=", self.least), ("turns <=", self.most), ("cost >=", self.cost))
        for column, limit in limits:
            if limit is not None:
                yield f"facts.{column} ?", [limit]


def _mark(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def _read_number(name: str, text: str) -> float | int:
    try:
        value = float(text) if name == "cost" else int(text)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << 53:
        raise InputError(f"{text!r} is not a number of this kind.", where=name, next="Give a whole number.")
    return value


def select_rows(list_filter: ListFilter, *more: str, reads_facts: bool = True) -> tuple[str, list[Any]]:
    """Return FROM and WHERE of the sessions that fit, and the parameters, to which those of ``more`` are added.

    Without ``reads_facts``, a search alone reads no facts: only ``words`` may then be selected.
    """
    conditions = [*list_filter.to_sql()]
    source, where, values = "FROM facts", [condition for condition, _ in conditions], list[Any]()
    if list_filter.match is not None:
        # CROSS JOIN keeps the order: hits come sorted by row, so that a page needs only its own.
        join = " CROSS JOIN facts ON facts.row = words.rowid" if where or reads_facts else ""
        source, where, values = f"FROM words{join}", ["words MATCH ?", *where], [list_filter.match]
    for _, parameters in conditions:
        values += parameters
    where += more
    return f"{source}{' WHERE ' if where else ''}{' AND '.join(where)}", values


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
    names = list(sides)
    with _open_sides(sides.values()) as opened:
        count = _count_up(opened, list_filter)
        sort = _choose_sort(list_filter, count)
        if sort == "best":
            skip = int(list_filter.after) if list_filter.after.isdecimal() else 0
            skip = min(skip, _MOST_RANKED - PAGE)
            places = _rank(opened, list_filter, min(skip + PAGE + 1, _MOST_RANKED))[skip:]
            after = str(skip + PAGE)
        else:
            places = _find_next(opened, list_filter, sort, _read_place(list_filter.after), PAGE + 1)
            after = "~".join(map(str, places[:PAGE][-1])) if places else ""
        sessions = tuple(_read_head(opened[data], names[data], row) for _, data, row in places[:PAGE])
    return ListPage(sessions, after if len(places) > PAGE else "", count, sort)


def find_neighbours(
    sides: Mapping[str, Path], list_filter: ListFilter, data: str, row: int
) -> tuple[Address | None, Address | None]:
    """Return the conversations before and after ``row`` of the data set ``data`` in the list of a filter.

    Args:
        sides: Side files by name of the data set, in the order of the list.
        list_filter: The filter and the order.
        data: One of the names.
        row: The conversation. It need not fit the filter, unless the list is ranked.
    """
    names = list(sides)
    number = names.index(data)
    with _open_sides(sides.values()) as opened:
        sort = list_filter.sort
        if sort == "best":  # Only then does it depend on the count.
            sort = _choose_sort(list_filter, _count_up(opened, list_filter))
        if sort == "best":
            ranked = [None, *_rank(opened, list_filter, _MOST_RANKED), None]
            here = next((at for at, place in enumerate(ranked) if place and place[1:] == (number, row)), None)
            near = (None, None) if here is None else (ranked[here - 1], ranked[here + 1])
        else:
            query = f"SELECT {_SORT_COLUMNS[sort][0]} FROM facts WHERE row = ?"  # noqa: S608
            (value,) = opened[number].execute(query, (row,)).fetchone()
            here = (value, number, row)
            near = tuple(
                next(iter(_find_next(opened, list_filter, sort, here, 1, way)), None) for way in (-1, 1)
            )
        before, after = (place and (names[place[1]], _read_id(opened[place[1]], place[2])) for place in near)
    return before, after


@contextmanager
def _open_sides(paths: Iterable[Path]) -> Generator[list[sqlite3.Connection]]:
    with ExitStack() as stack:
        yield [stack.enter_context(read_side_file(path)) for path in paths]


def _count_up(opened: Iterable[sqlite3.Connection], list_filter: ListFilter) -> int:
    """Count the conversations that fit, at most :data:`MOST_COUNTED` + 1 of a run; all of them without a filter."""
    query, values = "SELECT count(*) FROM facts", list[Any]()
    if not list_filter.is_empty:
        source, values = select_rows(list_filter, reads_facts=False)
        query = f"SELECT count(*) FROM (SELECT 1 {source} LIMIT {MOST_COUNTED + 1})"  # noqa: S608
    return sum(side.execute(query, values).fetchone()[0] for side in opened)


def _choose_sort(list_filter: ListFilter, count: int) -> str:
    """Return the order of a list: another one than was asked for if there is nothing to rank, or too much."""
    if list_filter.sort == "best" and (list_filter.match is None or count > MOST_COUNTED):
        return "newest" if list_filter.match else ""
    return list_filter.sort


def _find_next(
    opened: Sequence[sqlite3.Connection],
    list_filter: ListFilter,
    sort: str,
    start: Place | None,
    limit: int,
    way: int = 1,
) -> list[Place]:
    """Return the places that come after ``start`` in a list, the next one first; with ``way`` -1, those before it.

    Of conversations that are equal in the order, those of later data sets come after all of this one. In the order of
    the rows, the list contains one data set after the other.
    """
    column, descending = _SORT_COLUMNS[sort]
    by_row = column == "row"
    turned = -way if descending else way
    along = turned if by_row else way
    row = "facts.row" if list_filter.match is None else "words.rowid"
    order = f"{row} {_ORDERS[along]}"
    if not by_row:
        order = f"{column} {_ORDERS[turned]}, {order}"
    places: list[Place] = []
    for number, side in enumerate(opened):
        conditions, bounds = [f"{row} {_SIGNS[along]} ?"], list[float]()
        if start is not None:
            value, data, bound = start
            if number != data:
                bound = along * _BEYOND if along * number < along * data else along * -_BEYOND
            bounds = [bound]
            if not by_row:
                conditions = [f"({column} {_SIGNS[turned]} ? OR ({column} = ? AND {conditions[0]}))"]
                bounds = [value, value, bound]
        source, values = select_rows(list_filter, *(conditions if bounds else ()), reads_facts=not by_row)
        selected = row if by_row else column
        query = f"SELECT {selected}, {row} {source} ORDER BY {order} LIMIT {limit}"
        places += [(value, number, at) for value, at in side.execute(query, [*values, *bounds])]
    places.sort(key=lambda place: (0 if by_row else turned * place[0], along * place[1], along * place[2]))
    return places[:limit]


_SIGNS = {1: ">", -1: "<"}
_ORDERS = {1: "ASC", -1: "DESC"}


def _read_place(text: str) -> Place | None:
    try:
        value, data, row = text.split("~")
        return float(value), int(data), int(row)
    except ValueError:
        return None


def _rank(opened: Sequence[sqlite3.Connection], list_filter: ListFilter, limit: int) -> list[Place]:
    """Return the places of the best hits of a search, the best first."""
    source, values = select_rows(list_filter, reads_facts=False)
    query = f"SELECT words.rank, words.rowid {source} ORDER BY words.rank LIMIT {limit}"
    places = [
        (rank, number, row) for number, side in enumerate(opened) for rank, row in side.execute(query, values)
    ]
    return sorted(places)[:limit]


def _read_id(side: sqlite3.Connection, row: int) -> str:
    return side.execute("SELECT id FROM heads WHERE row = ?", (row,)).fetchone()[0]


_HEAD = """
SELECT id, assistant, user, heads.task, kind, language, ending, turns, tokens, cost, findings, facts.mark, created
FROM facts JOIN heads USING (row) WHERE row = ?
"""


def _read_head(side: sqlite3.Connection, data: str, row: int) -> ListedSession:
    (*start, cost, findings, mark, created) = side.execute(_HEAD, (row,)).fetchone()
    shown = side.execute("SELECT DISTINCT behaviour FROM shown WHERE row = ?", (row,))
    marks = side.execute("SELECT mark FROM marks WHERE row = ?", (row,))
    return ListedSession(
        data,
        row,
        *cast("tuple[str, str, str, str, str, str | None, str, int, int]", tuple(start)),
        None if cost < 0 else cost,
        None if findings < 0 else findings,
        tuple(code for (code,) in shown),
        tuple(name for (name,) in marks),
        mark is not None,
        created,
    )


def _query_all(sides: Iterable[Path], query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query to each side file."""
    for path in sides:
        with read_side_file(path) as side:
            yield from side.execute(query, values)


def count_values(
    sides: Iterable[Path], list_filter: ListFilter, column: str, limit: int = 200
) -> list[tuple[str, int]]:
    """Count the conversations that fit, by ending, behaviour, language, role or mark; the commonest first."""
    if column in ("behaviour", "mark"):
        table = "shown" if column == "behaviour" else "marks"
        source, values = ("", []) if list_filter.is_empty else select_rows(list_filter)
        inside = f" WHERE row IN (SELECT facts.row {source})" if source else ""
        query = f"SELECT {column}, count(DISTINCT row) FROM {table}{inside} GROUP BY {column}"  # noqa: S608
    else:
        source, values = select_rows(list_filter, f"facts.{column} IS NOT NULL")
        query = f"SELECT facts.{column}, count(*) {source} GROUP BY facts.{column}"
    counts: Counter[Any] = Counter()
    for value, count in _query_all(sides, query, values):
        counts[value] += count
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))[:limit]


def count_total(sides: Iterable[Path], list_filter: ListFilter, *, searched: bool = False) -> int:
    """Count all conversations that fit, however many; only those that were searched for behaviours if asked."""
    source, values = select_rows(
        list_filter, *(("facts.seen_turns >= 0",) if searched else ()), reads_facts=searched
    )
    return sum(count for (count,) in _query_all(sides, f"SELECT count(*) {source}", values))


def count_stages(sides: Iterable[Path]) -> tuple[int, int, int]:
    """Return the number of conversations, of those that the search lacks, and of those without behaviours yet."""
    query = (
        "SELECT (SELECT count(*) FROM facts), (SELECT count(*) FROM facts WHERE text_turns <> turns),"
        " (SELECT count(*) FROM facts WHERE seen_turns <> turns)"
    )
    total, unread, unseen = (sum(counts) for counts in zip((0, 0, 0), *_query_all(sides, query), strict=True))
    return total, unread, unseen


def count_pairs(
    sides: Iterable[Path], list_filter: ListFilter, behaviours: Sequence[str]
) -> Iterator[tuple[str, str, int, int]]:
    """Yield assistant role, user role, conversations that show one of ``behaviours``, and all that were searched."""
    source, values = select_rows(list_filter)
    query = (
        "SELECT assistant, user,"  # noqa: S608
        f" sum(facts.row IN (SELECT row FROM shown WHERE behaviour IN ({_mark(behaviours)}))),"
        f" sum(seen_turns >= 0) {source} GROUP BY assistant, user"
    )
    yield from cast("Iterator[tuple[str, str, int, int]]", _query_all(sides, query, [*behaviours, *values]))


def list_ids(path: Path, list_filter: ListFilter) -> list[str]:
    """Return the ids of all conversations that fit, in the order of the run."""
    source, values = select_rows(list_filter)
    query = f"SELECT id FROM heads WHERE row IN (SELECT facts.row {source}) ORDER BY row"  # noqa: S608
    with read_side_file(path, seconds=30) as side:
        return [session for (session,) in side.execute(query, values)]
