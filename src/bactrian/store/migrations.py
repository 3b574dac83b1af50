"""How older runs become today's, one numbered step after another."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import Column, Connection, Float, Integer, MetaData, Table, inspect
from sqlalchemy.schema import CreateColumn

from bactrian.store import schema

_applied = Table(
    "migrations",
    MetaData(),
    Column("number", Integer, primary_key=True),
    Column("applied", Float, nullable=False),
)


def _m001_sessions_and_turns(connection: Connection) -> None:
    schema.metadata.create_all(connection, [schema.sessions, schema.turns])


def _m002_calls(connection: Connection) -> None:
    """Every call to a model, so that a failure is a record too."""
    schema.calls.create(connection)


def _m003_runs_of_a_recipe(connection: Connection) -> None:
    """Recipe, lists of items, and what a session adds up to."""
    schema.run.create(connection)
    schema.lists.create(connection)
    _add_columns(connection, schema.sessions)
    schema.progress.create(connection, checkfirst=True)


def _m004_proposals(connection: Connection) -> None:
    """What could have been said, and who chose what."""
    schema.metadata.create_all(connection, [schema.proposals, schema.verdicts])


def _m005_fingerprints(connection: Connection) -> None:
    """Which system answered, where the endpoint tells."""
    _add_columns(connection, schema.turns)
    _add_columns(connection, schema.proposals)


def _m006_confirmations(connection: Connection) -> None:
    """What a judge says of findings."""
    schema.metadata.create_all(connection, [schema.confirmations])


def _m007_search(connection: Connection) -> None:
    """A tree of proposals: which follows which, and which were gone on with."""
    for table in (schema.proposals, schema.verdicts):
        _add_columns(connection, table)


def _m008_tools(connection: Connection) -> None:
    """What agents called in the course of their turns."""
    schema.metadata.create_all(connection, [schema.tools])


def _m009_thoughts(connection: Connection) -> None:
    """What reasoning models thought before they spoke."""
    _add_columns(connection, schema.turns)
    _add_columns(connection, schema.proposals)


def _add_columns(connection: Connection, table: Table) -> None:
    """The columns of ``table`` that an older run lacks."""
    have = {column["name"] for column in inspect(connection).get_columns(table.name)}
    for column in table.columns:
        if column.name not in have:
            definition = CreateColumn(column).compile(dialect=connection.dialect)
            connection.exec_driver_sql(f"ALTER TABLE {table.name} ADD COLUMN {definition}")


MIGRATIONS: tuple[Callable[[Connection], None], ...] = (
    _m001_sessions_and_turns,
    _m002_calls,
    _m003_runs_of_a_recipe,
    _m004_proposals,
    _m005_fingerprints,
    _m006_confirmations,
    _m007_search,
    _m008_tools,
    _m009_thoughts,
)
"""In order; the number of a migration is its place, from 1."""


def version(connection: Connection) -> int:
    """The number of the last migration that the run has had; 0 for a new file."""
    if not inspect(connection).has_table(_applied.name):
        return 0
    return max((row.number for row in connection.execute(_applied.select())), default=0)


def migrate(connection: Connection, now: float, *, to: int = len(MIGRATIONS)) -> None:
    """Apply the migrations that are missing, within the caller's transaction."""
    have = version(connection)
    _applied.create(connection, checkfirst=True)
    for number in range(have + 1, to + 1):
        MIGRATIONS[number - 1](connection)
        connection.execute(_applied.insert().values(number=number, applied=now))
