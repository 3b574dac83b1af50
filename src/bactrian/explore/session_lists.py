"""Lists of conversations: the filter, which an address contains, the pages of a list in its order, and counts."""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode

from bactrian.errors import InputError
from bactrian.explore.library_index import SEVERAL, WITHIN, read_index, read_polygon
from bactrian.explore.search_words import read_search, write_match
from bactrian.stats.intervals import Proportion

# Conditions with several values.
REPEATED = frozenset(("data", "ending", "behaviour", "agent", "model", "verdict", "axis", "ids", "pick"))
NUMBERS = frozenset(("least", "most", "cost"))
# Conversations on a page.
PAGE = 50
# A count stops here; a search with more hits is not sorted by rank.
MOST_COUNTED = 20_000
# Conversations of a search sorted by rank.
_MOST_RANKED = 20 * PAGE
# Characters of a search or another value.
_LONGEST = 1000
# A person gave the mark, or, for what was made to study misuse, the recipe.
_MARKED = (
    "facts.row IN (SELECT row FROM marks WHERE mark = ?"
    " UNION ALL SELECT row FROM facts WHERE mark IS NOT NULL AND ? = 'red-team')"
)
# Column to sort by before the row, and True for descending, by the word for the order.
_SORT_COLUMNS: Mapping[str, tuple[str, bool]] = {
    "": ("", False),
    "newest": ("", True),
    "longest": ("turns", True),
    "findings": ("findings", True),
    "tokens": ("tokens", True),
    "cost": ("cost", True),
    "assistant": ("assistant", False),
    "ending": ("ending", False),
}
# Before such a word, its other direction.
_BACK = "-"
# Columns that are sorted as texts.
_WORDS = frozenset(("assistant", "ending"))
# How a list is shown, and what stands in an address without being a condition.
VIEWS = ("", "table")
_NO_CONDITIONS = frozenset(("q", "data", "need", "sort", "view", "after"))

# The name of a data set, and the id of a conversation.
Address = tuple[str, str]
# Where a conversation stands in a list: its value in the column of the order, and its row in the index.
Position = tuple[float | str, int]


@dataclass(frozen=True, slots=True)
class ListFilter:
    """Conditions on conversations. Empty values do not restrict."""

    # Words and phrases to be found.
    q: str = ""
    # Names of data sets.
    data: tuple[str, ...] = ()
    assistant: str = ""
    user: str = ""
    # Roles in group chats, of which one must take part.
    agent: tuple[str, ...] = ()
    # The original task.
    task: str = ""
    language: str = ""
    # Codes, of which one must hold.
    ending: tuple[str, ...] = ()
    # Codes, which must all have been found; after a minus sign, one that must not.
    behaviour: tuple[str, ...] = ()
    # ``any`` if one of the behaviours is enough.
    need: str = ""
    # Names of models, of which one must have spoken.
    model: tuple[str, ...] = ()
    # Kinds of verdicts on its code, of which one must hold.
    verdict: tuple[str, ...] = ()
    # Items of a recipe's axes, ``axis: item``; of each axis, one must hold.
    axis: tuple[str, ...] = ()
    # A mark that it has; after a minus sign, one that it does not have.
    mark: str = ""
    # Messages, at least.
    least: int | None = None
    most: int | None = None
    # US dollars, at least.
    cost: float | None = None
    # Sessions by id.
    ids: tuple[str, ...] = ()
    # Sessions of one data set each: ``data/id``.
    pick: tuple[str, ...] = ()
    # A topic of a map: ``task:3``.
    topic: str = ""
    # A polygon on a map: ``task:x,y;x,y;x,y``.
    area: str = ""
    sort: str = ""
    # How they are shown.
    view: str = ""
    # Where the page begins: the position of the last conversation of the page before.
    after: str = ""

    @classmethod
    def read(cls, query: Any) -> Self:
        """Read a filter from the parameters of an address.

        Raises:
            InputError: a number is not one, or the order is unknown.
        """
        values: dict[str, Any] = {}
        for name in cls.__slots__:
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
        orders = [*_SORT_COLUMNS, *(f"{_BACK}{name}" for name in _SORT_COLUMNS if name), "best"]
        for name, what, known in (
            ("sort", "an order", orders),
            ("view", "a view", VIEWS),
            ("need", "a rule for behaviours", ("", "any")),
        ):
            if (value := getattr(made, name)) not in known:
                raise InputError(
                    f"{value[:20]!r} is not {what}.",
                    where=name,
                    next=f"Known: {', '.join(filter(None, known))}.",
                )
        return made

    def write(self, **changes: Any) -> str:
        """Return the filter, with changes, as the query of an address; empty without conditions.

        A changed filter begins at its first page.
        """
        values = self._list_values({"after": "", **changes})
        return f"?{urlencode(values, doseq=True)}" if values else ""

    @property
    def place(self) -> str:
        """Where a conversation's page shows what was looked for, as the last part of an address; empty if anywhere."""
        return "#found" if self.q or not all(code.startswith(_BACK) for code in self.behaviour) else ""

    @property
    def values(self) -> dict[str, Any]:
        """What is not empty, by name."""
        return self._list_values({})

    def _list_values(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        return {
            name: value
            for name in self.__slots__
            if (value := changes[name] if name in changes else getattr(self, name)) not in ("", (), None)
        }

    @property
    def conditions(self) -> dict[str, Any]:
        """The restricting parts by name, without the search, the data sets and the order."""
        return {name: value for name, value in self.values.items() if name not in _NO_CONDITIONS}

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
        yield from self._require_values()
        if self.mark:
            name = self.mark.removeprefix("-")
            yield _MARKED if name == self.mark else f"NOT {_MARKED}", [name, name]
        if self.pick:
            yield "facts.row IN (SELECT row FROM picked)", []
        if self.ids:
            yield f"facts.row IN (SELECT row FROM heads WHERE id IN ({_mark(self.ids)}))", self.ids  # noqa: S608
        yield from self._require_places()
        limits = (("turns >=", self.least), ("turns <=", self.most), ("cost >=", self.cost))
        for column, limit in limits:
            if limit is not None:
                yield f"facts.{column} ?", [limit]

    def _require_places(self) -> Iterator[tuple[str, Sequence[Any]]]:
        if self.topic:
            what, _, number = self.topic.partition(":")
            values = [what, read_count(number, -1)]
            yield "facts.row IN (SELECT row FROM points WHERE what = ? AND topic = ?)", values
        if self.area:
            what, _, corners = self.area.partition(":")
            xs, ys = zip(*read_polygon(corners), strict=True)
            # Most points are outside of the rectangle, which SQLite sees without a call.
            inside = "x BETWEEN ? AND ? AND y BETWEEN ? AND ? AND inside(x, y, ?)"
            values = [what, min(xs), max(xs), min(ys), max(ys), corners]
            yield f"facts.row IN (SELECT row FROM points WHERE what = ? AND {inside})", values  # noqa: S608

    def _require_values(self) -> Iterator[tuple[str, Sequence[Any]]]:
        wanted = [code for code in self.behaviour if not code.startswith(_BACK)]
        groups: list[tuple[str, Sequence[str]]] = [
            *(("behaviour", codes) for codes in ([wanted] if self.need else [[code] for code in wanted])),
            *(
                ("agent", self.agent),
                ("model", self.model),
                ("verdict", self.verdict),
                *group_axes(self.axis),
            ),
        ]
        for facet, some in groups:
            if some:
                yield f"facts.row IN ({_select_having(some)})", [facet, *some]
        if missing := [code.removeprefix(_BACK) for code in self.behaviour if code.startswith(_BACK)]:
            yield "facts.seen_turns >= 0", []
            yield f"facts.row NOT IN ({_select_having(missing)})", ["behaviour", *missing]


def _select_having(values: Sequence[str]) -> str:
    return f"SELECT row FROM traits WHERE facet = ? AND value IN ({_mark(values)})"  # noqa: S608


def group_axes(items: Sequence[str]) -> list[tuple[str, list[str]]]:
    """Return the items of each axis."""
    groups: dict[str, list[str]] = {}
    for item in items:
        groups.setdefault(item.partition(": ")[0], []).append(item)
    return [("axis", group) for group in groups.values()]


def _mark(values: Sequence[str]) -> str:
    return ", ".join("?" * len(values))


def read_count(text: str, default: int) -> int:
    """Return a whole number from an address or a form; ``default`` for what is none, or has more than 15 digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 15 else default


def _read_number(name: str, text: str) -> float | int:
    try:
        value = float(text) if name == "cost" else read_count(text, -1)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << 53:
        raise InputError(
            f"{text[:20]!r} is not a number of this kind.",
            where=name,
            next="Give a number, such as 0.25." if name == "cost" else "Give a whole number.",
        )
    return value


def select_rows(list_filter: ListFilter, *more: str) -> tuple[str, list[Any]]:
    """Return FROM and WHERE of the sessions that fit, and the parameters, to which those of ``more`` are added."""
    conditions = [*list_filter.to_sql()]
    source, where, values = "FROM facts", [condition for condition, _ in conditions], list[Any]()
    if list_filter.match is not None:
        # CROSS JOIN keeps the order: hits come sorted by row, so that a page needs only its own.
        source, values = "FROM words CROSS JOIN facts ON facts.row = words.rowid", [list_filter.match]
        where = ["words MATCH ?", f"words.rowid {WITHIN}", *where]
    for _, parameters in conditions:
        values += parameters
    where += more
    return f"{source}{' WHERE ' if where else ''}{' AND '.join(where)}", values


def make_share(count: int, total: int, *, independent: bool) -> Proportion:
    """Return the share of ``count`` in a total that was counted before, and may have grown since."""
    return Proportion(count, max(count, total), independent)


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a list."""

    sessions: list[dict[str, Any]]
    # The key at which the next page begins; empty on the last page.
    after: str
    # Conversations that fit the filter, at most :data:`MOST_COUNTED` + 1.
    count: int
    # The order, which differs from the requested one if there were too many hits to rank.
    sort: str


@dataclass(frozen=True, slots=True)
class IndexStages:
    """How many conversations of some data sets the index knows."""

    read: int
    # Whose texts can be searched for.
    searchable: int
    # Whose behaviours are known.
    searched: int
    # That the runs contain; None until it is known of all.
    stored: int | None
    # Why one of the runs cannot be read; empty if all can.
    problem: str = ""

    def describe(self, list_filter: ListFilter, *, behaviours: bool = False) -> str:
        """Return what a list or a count lacks yet; empty if it is complete. ``behaviours`` if it counts them."""
        if self.problem:
            return self.problem
        if self.stored is None or self.read < self.stored:
            of = "" if self.stored is None else f" of {self.stored:,}"
            return f"The conversations are being read: {self.read:,}{of} so far."
        if list_filter.match and self.searchable < self.read:
            return f"The search knows {self.searchable:,} of {self.read:,} conversations so far; it goes on by itself."
        wanted = behaviours or list_filter.behaviour or list_filter.sort == "findings"
        if wanted and self.searched < self.read:
            return f"Behaviours are known of {self.searched:,} of {self.read:,} conversations so far, drawn at random."
        return ""


class ListedFacts(NamedTuple):
    """What a comparison needs of a conversation."""

    row: int
    id: str
    assistant: str
    user: str
    # The number of the original task.
    task: int
    ending: str
    turns: int
    tokens: int
    # US dollars; -1 if not known.
    cost: float
    searched: bool
    # What decides which behaviours it can show.
    kind: str
    needs_code: bool
    has_instructor: bool

    @property
    def job(self) -> tuple[str, str, str, int]:
        """What two conversations on the same job have in common."""
        return self.id, self.assistant, self.user, self.task


# The roles of a conversation.
ROLES = f"assistant || iif(kind = 'talk', '', '{SEVERAL}' || user)"
# Conversations in a list. Findings are NULL while they have not been looked for, the cost where a price is unknown;
# ``red`` is true for what was made to study misuse.
_HEADS = f"""
SELECT facts.row >> 32 AS data, facts.row & 4294967295 AS row, heads.id, {ROLES} AS roles,
    iif(kind = 'talk', NULL, assistant) AS assistant, nullif(user, '') AS user, heads.task AS task, kind, language,
    ending, turns, tokens, iif(cost < 0, NULL, cost) AS cost, iif(findings < 0, NULL, findings) AS findings,
    (SELECT json_group_array(value) FROM traits WHERE facet = 'behaviour' AND traits.row = facts.row) AS behaviours,
    (SELECT json_group_array(mark) FROM marks WHERE marks.row = facts.row) AS marks,
    facts.mark IS NOT NULL AS red, created
FROM json_each(?) AS place CROSS JOIN facts ON facts.row = place.value JOIN heads USING (row) ORDER BY place.key
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Listing:
    """The conversations of some data sets that fit a filter. Its methods raise TooSlow if a query runs too long."""

    index: Path
    # Names of the data sets by the number of the run in the index.
    names: Mapping[int, str]
    filter: ListFilter
    # That of :meth:`open_once`.
    opened: sqlite3.Connection | None = None

    @contextmanager
    def open_once(self) -> Generator[Listing]:
        """Yield the same, with one connection for all of its methods: to open the index takes longer than they do."""
        with self._open() as index:
            yield replace(self, opened=index)

    def read_page(self) -> ListPage:
        """Return a page of the list, in the order and from the position that the filter names."""
        list_filter = self.filter
        with self._open() as index:
            count = self._count_up(index)
            sort = self._choose_sort(count)
            if sort == "best":
                skip = min(read_count(list_filter.after, 0), _MOST_RANKED - PAGE)
                positions = self._rank(index)[skip : skip + PAGE + 1]
                after = str(skip + PAGE)
            else:
                positions = self._find_next(index, sort, _read_position(list_filter.after, sort), PAGE + 1)
                after = "~".join(map(str, positions[:PAGE][-1])) if positions else ""
            sessions = self._read_heads(index, [row for _, row in positions[:PAGE]])
        return ListPage(sessions, after if len(positions) > PAGE else "", count, sort)

    def find_neighbours(self, row: int) -> tuple[Address | None, Address | None]:
        """Return the conversations before and after the one in ``row`` of the index in the list.

        That conversation need not fit the filter, unless the list is ranked.
        """
        sort, near = self.filter.sort, list[int | None]()
        with self._open() as index:
            if sort == "best":  # Only then does it depend on the count.
                sort = self._choose_sort(self._count_up(index))
            if sort == "best":
                ranked = [None, *(other for _, other in self._rank(index)), None]
                at = ranked.index(row) if row in ranked else 0
                near = [ranked[at - 1], ranked[at + 1]] if at else [None, None]
            else:
                query = f"SELECT {_read_order(sort)[0] or 0} FROM facts WHERE row = ?"  # noqa: S608
                start = (*index.execute(query, (row,)).fetchone(), row)
                for back in (True, False):
                    positions = self._find_next(index, sort, start, 1, back=back)
                    near.append(positions[0][1] if positions else None)
            query = "SELECT id FROM heads WHERE row = ?"
            before, after = (
                None
                if other is None
                else (self.names[other >> 32], index.execute(query, (other,)).fetchone()[0])
                for other in near
            )
        return before, after

    def _read_heads(self, index: sqlite3.Connection, rows: Sequence[int]) -> list[dict[str, Any]]:
        cursor = index.execute(_HEADS, (json.dumps(rows),))
        heads = [
            dict(zip((column for column, *_ in cursor.description), values, strict=True)) for values in cursor
        ]
        for head in heads:
            lists = {name: json.loads(head[name]) for name in ("behaviours", "marks")}
            lists["roles"] = head["roles"].split(SEVERAL)
            head |= {**lists, "data": self.names[head["data"]], "red": bool(head["red"])}
        return heads

    @contextmanager
    def _open(self, seconds: float = 5.0) -> Generator[sqlite3.Connection]:
        if self.opened is not None:
            yield self.opened
            return
        with read_index(self.index, self.names, seconds=seconds) as index:
            if self.filter.pick:
                numbers = {name: number for number, name in self.names.items()}
                picks = [pick.partition("/") for pick in self.filter.pick]
                index.execute("CREATE TEMP TABLE picked (row INTEGER PRIMARY KEY)")
                index.executemany(
                    "INSERT OR IGNORE INTO picked SELECT row FROM heads WHERE id = ? AND row >> 32 = ?",
                    [(session, numbers.get(data, 0)) for data, _, session in picks],
                )
            yield index

    def _count_up(self, index: sqlite3.Connection) -> int:
        """Count them, at most :data:`MOST_COUNTED` + 1; all of them without a filter."""
        query, values = "SELECT count(*) FROM facts", list[Any]()
        if not self.filter.is_empty:
            source, values = select_rows(self.filter)
            query = f"SELECT count(*) FROM (SELECT 1 {source} LIMIT {MOST_COUNTED + 1})"  # noqa: S608
        return index.execute(query, values).fetchone()[0]

    def _choose_sort(self, count: int) -> str:
        """Return the order: another one than was asked for if there is nothing to rank, or too much."""
        match = self.filter.match
        if self.filter.sort == "best" and (match is None or count > MOST_COUNTED):
            return "newest" if match else ""
        return self.filter.sort

    def _find_next(
        self, index: sqlite3.Connection, sort: str, start: Position | None, limit: int, *, back: bool = False
    ) -> list[Position]:
        """Return the positions after ``start`` in a list, or ``back`` before it, the nearest first."""
        column, descending = _read_order(sort)
        falls = descending != back
        row = "facts.row" if self.filter.match is None else "words.rowid"
        keys = [column, row] if column else [row]
        more = [f"({', '.join(keys)}) {'<' if falls else '>'} ({_mark(keys)})"] if start is not None else []
        if not column:
            # Both ends are told: SQLite then reads neither rows of other runs nor those before the start.
            ends = ["(SELECT low FROM bounds)", "(SELECT high FROM bounds)"]
            if start is not None:
                ends[falls] = "? - 1" if falls else "? + 1"
            more = [f"{row} BETWEEN {' AND '.join(ends)}"]
        source, values = select_rows(self.filter, *more)
        order = ", ".join(f"{key} {'DESC' if falls else 'ASC'}" for key in keys)
        query = f"SELECT {column or 0}, {row} {source} ORDER BY {order} LIMIT {limit}"
        return index.execute(query, [*values, *(start or ())[-len(keys) :]]).fetchall()

    def _rank(self, index: sqlite3.Connection) -> list[Position]:
        """Return the positions of the best hits of the search, the best first."""
        source, values = select_rows(self.filter)
        query = f"SELECT words.rank, words.rowid {source} ORDER BY words.rank LIMIT {_MOST_RANKED}"
        return index.execute(query, values).fetchall()

    def _query(self, query: str, values: Sequence[Any] = (), seconds: float = 5.0) -> list[Any]:
        with self._open(seconds) as index:
            return index.execute(query, values).fetchall()

    def count_values(self, column: str, limit: int = 200) -> list[tuple[str, int]]:
        """Count them by ending, behaviour, language, role or mark; the commonest first."""
        if column in ("behaviour", "mark"):
            table, more = ("shown", ["facts.seen_turns >= 0"]) if column == "behaviour" else ("marks", [])
            # What an earlier state of a conversation showed does not count while it is searched again.
            source, values = select_rows(self.filter, *more)
            inside = f" WHERE row IN (SELECT facts.row {source})"
            query = f"SELECT {column}, count(DISTINCT row) FROM {table}{inside} GROUP BY {column}"  # noqa: S608
        else:
            counts = "kind <> 'talk'" if column == "assistant" else f"facts.{column} IS NOT NULL"
            source, values = select_rows(self.filter, counts)
            query = f"SELECT facts.{column}, count(*) {source} GROUP BY facts.{column}"
        return self._query(f"{query} ORDER BY 2 DESC, 1 LIMIT {limit}", values)

    def count_readings(self) -> dict[str, list[tuple[int, int]]]:
        """Return, by behaviour, how many findings of a conversation are right and how many were read, for each."""
        source, values = select_rows(self.filter)
        query = (
            # With the sign, SQLite begins with the answers, which are few.
            "SELECT behaviour, sum(holds), count(*) FROM answers"  # noqa: S608
            f" WHERE found AND +row IN (SELECT facts.row {source}) GROUP BY behaviour, row"
        )
        readings = defaultdict[str, list[tuple[int, int]]](list)
        for behaviour, right, read in self._query(query, values):
            readings[behaviour].append((right, read))
        return readings

    def count(self) -> int:
        """Count all of them, however many."""
        source, values = select_rows(self.filter)
        return self._query(f"SELECT count(*) {source}", values)[0][0]

    def count_stages(self) -> IndexStages:
        """Count the conversations of the data sets by how far the index is with them."""
        query = (
            # What is lacking has an index of its own.
            "SELECT (SELECT count(*) FROM facts), (SELECT count(*) FROM facts WHERE text_turns <> turns),"
            " (SELECT count(*) FROM facts WHERE seen_turns <> turns),"
            " (SELECT total(value) FROM meta WHERE key = 'size'),"
            " (SELECT count(*) FROM meta WHERE key = 'size'),"
            " (SELECT coalesce(max(value), '') FROM meta WHERE key = 'problem')"
        )
        read, unread, unsearched, stored, runs, problem = self._query(query)[0]
        whole = int(stored) if runs == len(self.names) else None
        return IndexStages(read, read - unread, read - unsearched, whole, problem)

    def list_facts(self) -> list[ListedFacts]:
        """Return the facts of all of them."""
        source, values = select_rows(self.filter)
        columns = (
            "facts.row, id, assistant, user, facts.task, ending, turns, tokens, cost, seen_turns >= 0,"
            " kind, needs_code, has_instructor"
        )
        query = f"SELECT {columns} FROM facts JOIN heads USING (row) WHERE facts.row IN (SELECT facts.row {source})"  # noqa: S608
        return [ListedFacts(*row) for row in self._query(query, values)]

    def list_shown(self) -> dict[int, frozenset[str]]:
        """Return the behaviours of those that show some, by row."""
        source, values = select_rows(self.filter, "facts.seen_turns >= 0")
        query = (
            "SELECT row, json_group_array(value) FROM traits"  # noqa: S608
            f" WHERE facet = 'behaviour' AND row IN (SELECT facts.row {source}) GROUP BY row"
        )
        return {row: frozenset(json.loads(codes)) for row, codes in self._query(query, values)}

    def list_rows(self) -> list[int]:
        """Return the rows of all of them in the index."""
        column, (source, values) = "facts.row", select_rows(self.filter)
        if self.filter.match and not self.filter.conditions:  # The full-text index alone knows them.
            column, source = "rowid", f"FROM words WHERE words MATCH ? AND rowid {WITHIN}"
        return [row for (row,) in self._query(f"SELECT {column} {source}", values)]

    def list_ids(self, *, red: bool = True) -> list[str]:
        """Return the ids of all of them, in the order of the runs; unless ``red``, of none made to study misuse."""
        source, values = select_rows(self.filter, *([] if red else ["facts.mark IS NULL"]))
        query = f"SELECT id FROM heads WHERE row IN (SELECT facts.row {source}) ORDER BY row"  # noqa: S608
        return [session for (session,) in self._query(query, values, 30.0)]


def _read_order(sort: str) -> tuple[str, bool]:
    """Return the column of an order, and True if it falls."""
    column, descending = _SORT_COLUMNS[sort.removeprefix(_BACK)]
    return column, descending != sort.startswith(_BACK)


def _read_position(text: str, sort: str) -> Position | None:
    try:
        value, row = text.rsplit("~", 1)
        return value if _read_order(sort)[0] in _WORDS else float(value), read_count(row, 0)
    except ValueError:
        return None
