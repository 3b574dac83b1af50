"""The statements that write a run, compiled once from the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

from sqlalchemy import Table, and_, bindparam, or_, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql.dml import Insert, Update

from bactrian.store import schema

_MOST_ROWS = 64
"""Rows in one statement, at most. Their numbers are powers of two, so that there are few statements to prepare."""


@dataclass(frozen=True, slots=True, eq=False)
class Statement:
    """SQL with its parameters, for any number of rows at once."""

    place: int
    """Within a transaction a statement comes after those with a lower place: a session before its turns."""
    head: str
    row: str
    """The placeholders of one row; empty if the statement takes one row at a time."""
    tail: str
    values: Callable[[Mapping[str, Any]], tuple[Any, ...]]
    """Puts the values of a row in the statement's order."""

    def batches(self, rows: Sequence[tuple[Any, ...]]) -> list[tuple[str, tuple[Any, ...]]]:
        """SQL and parameters that together write ``rows``.

        Each statement is a step in which the interpreter's lock is let go and has to be had again; one step for
        many rows costs the event loop far less than one for each.
        """
        if not self.row:
            return [(self.head, row) for row in rows]
        made: list[tuple[str, tuple[Any, ...]]] = []
        done = 0
        while done < len(rows):
            size = min(_MOST_ROWS, 1 << (len(rows) - done).bit_length() - 1)
            sql = f"{self.head}{', '.join([self.row] * size)}{self.tail}"
            made.append((sql, tuple(chain.from_iterable(rows[done : done + size]))))
            done += size
        return made


@dataclass(frozen=True, slots=True)
class Statements:
    """Everything that is ever written."""

    session: Statement
    task: Statement
    turn: Statement
    ending: Statement
    call: Statement
    list: Statement
    run: Statement
    proposal: Statement
    verdict: Statement
    confirmation: Statement
    tool: Statement
    result: Statement


def compile_statements() -> Statements:
    """Compile the statements for SQLite."""
    sessions, turns = schema.sessions, schema.turns
    this = sessions.c.id == bindparam("key")
    open_ = or_(sessions.c.ending.is_(None), text("ending IN ('failed', 'stopped')"))
    preparation = ("specified_task", "planned_task", "preparation")
    totals = ("prompt_tokens", "completion_tokens", "cached_tokens")
    ending = ("ending", "ending_turn", "ending_speaker", "ending_evidence", *totals)
    results = ("result", "problem", "tool_seconds", "cut")
    keys = ("session", "number", "round", "place")
    call = and_(*(schema.tools.c[name] == bindparam(f"key_{name}") for name in keys))
    return Statements(
        session=_insert(0, sessions, leave=("row", *ending)),
        task=_update(1, sessions.update().where(this).values(_parameters(preparation))),
        turn=_insert(2, turns, leave=("row",)),
        ending=_update(3, sessions.update().where(this, open_).values(_parameters(ending))),
        call=_insert(4, schema.calls, leave=("row",)),
        list=_replace(5, schema.lists, leave=("row",), key="id"),
        run=_insert(6, schema.run, leave=()),
        proposal=_insert(7, schema.proposals, leave=("row",)),
        verdict=_insert(8, schema.verdicts, leave=("row",)),
        confirmation=_insert(9, schema.confirmations, leave=("row",)),
        tool=_insert(10, schema.tools, leave=("row", *results)),
        result=_update(11, schema.tools.update().where(call).values(_parameters(results))),
    )


def _parameters(names: Sequence[str]) -> dict[str, Any]:
    return {name: bindparam(name) for name in names}


def _insert(place: int, table: Table, *, leave: Sequence[str]) -> Statement:
    """Add a row if there is none with its key."""
    columns = [column.name for column in table.columns if column.name not in leave]
    sql, names = _compiled(sqlite.insert(table).on_conflict_do_nothing(), columns)
    head, values, rest = sql.partition(" VALUES ")
    row, end, tail = rest.partition(")")
    return Statement(place, head + values, row + end, tail, itemgetter(*names))


def _replace(place: int, table: Table, *, leave: Sequence[str], key: str) -> Statement:
    """Add a row, or renew the one that has its key."""
    columns = [column.name for column in table.columns if column.name not in leave]
    statement = sqlite.insert(table)
    renewed = {name: statement.excluded[name] for name in columns if name != key}
    sql, names = _compiled(statement.on_conflict_do_update(index_elements=[key], set_=renewed), columns)
    return Statement(place, sql, "", "", itemgetter(*names))


def _update(place: int, statement: Update) -> Statement:
    sql, names = _compiled(statement, None)
    return Statement(place, sql, "", "", itemgetter(*names))


def _compiled(statement: Insert | Update, columns: Sequence[str] | None) -> tuple[str, Sequence[str]]:
    """The SQL, and the names of its parameters in their order."""
    compiled = statement.compile(dialect=sqlite.dialect(paramstyle="qmark"), column_keys=columns)
    names = getattr(compiled, "positiontup", None)
    assert names is not None
    return str(compiled), names
