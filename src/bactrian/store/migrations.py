"""Numbered schema migrations for runs of earlier versions.

A migration is frozen once released: it spells out its changes and does not depend on the current records, so that every
earlier version migrates to the same result in all later versions. A new column needs a new migration.
"""

from __future__ import annotations

from collections.abc import Callable
from sqlite3 import Connection

_USAGE = """
    prompt_tokens INTEGER NOT NULL,
    completion_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    estimated INTEGER NOT NULL
"""


def _m001_sessions_and_turns(connection: Connection) -> None:
    _create(
        connection,
        "sessions",
        """
        "row" INTEGER NOT NULL PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        assistant_role TEXT NOT NULL,
        assistant_description TEXT NOT NULL,
        user_role TEXT NOT NULL,
        user_description TEXT NOT NULL,
        original_task TEXT NOT NULL,
        specified_task TEXT,
        planned_task TEXT,
        provenance TEXT NOT NULL, -- JSON
        preparation TEXT NOT NULL, -- JSON: tokens of specifier and planner
        created FLOAT NOT NULL, -- seconds since 1970, for display only
        ending TEXT,
        ending_turn INTEGER,
        ending_speaker TEXT,
        ending_evidence TEXT
        """,
    )
    _create(
        connection,
        "turns",
        f"""
        "row" INTEGER NOT NULL PRIMARY KEY,
        session TEXT NOT NULL REFERENCES sessions (id),
        number INTEGER NOT NULL,
        speaker TEXT NOT NULL,
        role TEXT NOT NULL,
        text TEXT NOT NULL,
        said TEXT, -- JSON: the instruction or solution read from the text
        {_USAGE},
        seconds FLOAT NOT NULL,
        first_token FLOAT,
        model TEXT NOT NULL,
        finish TEXT NOT NULL,
        lossy INTEGER NOT NULL,
        checksum INTEGER NOT NULL, -- CRC-32 of the text
        UNIQUE (session, number)
        """,
    )


def _m002_calls(connection: Connection) -> None:
    """Add every call to a model, so that a failure is recorded, too."""
    _create(
        connection,
        "calls",
        """
        "row" INTEGER NOT NULL PRIMARY KEY,
        session TEXT NOT NULL,
        agent TEXT NOT NULL,
        ordinal INTEGER NOT NULL,
        model TEXT NOT NULL,
        seconds FLOAT NOT NULL,
        raw BLOB NOT NULL,
        error TEXT,
        usage TEXT -- JSON; null after a failure
        """,
    )


def _m003_runs_of_a_recipe(connection: Connection) -> None:
    """Add recipe, lists of items, and the total usage of a session."""
    _create(
        connection,
        "run",
        """
        "row" INTEGER NOT NULL PRIMARY KEY, -- always 1
        recipe TEXT NOT NULL, -- JSON: what the run is made from, frozen at its start
        created FLOAT NOT NULL -- seconds since 1970, for display only
        """,
    )
    _create(
        connection,
        "lists",
        """
        "row" INTEGER NOT NULL PRIMARY KEY,
        id TEXT NOT NULL UNIQUE, -- axis, and the positions it depends on
        items TEXT NOT NULL, -- JSON
        complete INTEGER NOT NULL,
        usage TEXT NOT NULL, -- JSON
        calls INTEGER NOT NULL
        """,
    )
    _add_column(connection, "sessions", "axis_values", "TEXT DEFAULT '{}' NOT NULL")
    _add_column(connection, "sessions", "mark", "TEXT")
    _add_column(connection, "sessions", "prompt_tokens", "INTEGER")
    _add_column(connection, "sessions", "completion_tokens", "INTEGER")
    _add_column(connection, "sessions", "cached_tokens", "INTEGER")
    connection.execute(
        "CREATE INDEX IF NOT EXISTS sessions_progress ON sessions "
        "(id, ending, ending_turn, prompt_tokens, completion_tokens, cached_tokens)"
    )


def _m004_proposals(connection: Connection) -> None:
    """Add candidates for turns, and the decisions on them."""
    _create(
        connection,
        "proposals",
        f"""
        "row" INTEGER NOT NULL PRIMARY KEY,
        session TEXT NOT NULL REFERENCES sessions (id),
        number INTEGER NOT NULL, -- of the turn
        round INTEGER NOT NULL,
        place INTEGER NOT NULL,
        speaker TEXT NOT NULL,
        text TEXT NOT NULL,
        {_USAGE},
        seconds FLOAT NOT NULL,
        model TEXT NOT NULL,
        finish TEXT NOT NULL,
        lossy INTEGER NOT NULL,
        UNIQUE (session, number, round, place)
        """,
    )
    _create(
        connection,
        "verdicts",
        f"""
        "row" INTEGER NOT NULL PRIMARY KEY,
        session TEXT NOT NULL REFERENCES sessions (id),
        number INTEGER NOT NULL, -- of the turn
        round INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        speaker TEXT NOT NULL, -- whose proposals they are
        chooser TEXT NOT NULL,
        text TEXT NOT NULL,
        place INTEGER, -- of the chosen proposal; null if the decision cannot be read
        reason TEXT NOT NULL,
        feedback TEXT NOT NULL,
        "instead" TEXT, -- what a person wrote instead of all proposals
        problem TEXT NOT NULL,
        {_USAGE},
        seconds FLOAT NOT NULL,
        model TEXT NOT NULL,
        UNIQUE (session, number, round, attempt)
        """,
    )


def _m005_fingerprints(connection: Connection) -> None:
    """Add the endpoint's name for the exact system that answered."""
    _add_column(connection, "turns", "fingerprint", "TEXT")
    _add_column(connection, "proposals", "fingerprint", "TEXT")


def _m006_confirmations(connection: Connection) -> None:
    """Add a judge's answers about findings."""
    _create(
        connection,
        "confirmations",
        f"""
        "row" INTEGER NOT NULL PRIMARY KEY,
        session TEXT NOT NULL REFERENCES sessions (id),
        turn INTEGER NOT NULL,
        behaviour TEXT NOT NULL,
        judge TEXT NOT NULL, -- model, as the user named it
        holds INTEGER, -- null if the answer cannot be read
        text TEXT NOT NULL,
        {_USAGE},
        seconds FLOAT NOT NULL,
        model TEXT NOT NULL,
        UNIQUE (session, turn, behaviour, judge)
        """,
    )


def _m007_search(connection: Connection) -> None:
    """Add the tree of proposals: the parent of each, and those that the search continues."""
    _add_column(connection, "proposals", "parent", "INTEGER")
    _add_column(connection, "verdicts", "kept", "TEXT DEFAULT '[]' NOT NULL")


def _m008_tools(connection: Connection) -> None:
    """Add the tools that agents called during their turns."""
    _create(
        connection,
        "tools",
        f"""
        "row" INTEGER NOT NULL PRIMARY KEY,
        session TEXT NOT NULL REFERENCES sessions (id),
        number INTEGER NOT NULL, -- of the turn
        round INTEGER NOT NULL,
        place INTEGER NOT NULL,
        speaker TEXT NOT NULL,
        name TEXT NOT NULL,
        call TEXT NOT NULL, -- the model's name for the call
        arguments TEXT NOT NULL, -- as the model wrote them
        text TEXT NOT NULL, -- what the agent wrote beside its calls
        {_USAGE},
        seconds FLOAT NOT NULL,
        model TEXT NOT NULL,
        result TEXT, -- null until the tool returned
        problem TEXT,
        tool_seconds FLOAT,
        cut INTEGER,
        UNIQUE (session, number, round, place)
        """,
    )


def _m009_thoughts(connection: Connection) -> None:
    """Add the thoughts of reasoning models before their replies."""
    _add_column(connection, "turns", "thought", "TEXT DEFAULT '' NOT NULL")
    _add_column(connection, "proposals", "thought", "TEXT DEFAULT '' NOT NULL")


def _m010_marks(connection: Connection) -> None:
    """Add marks and notes that a person gives to sessions."""
    _create(
        connection,
        "marks",
        """
        "row" INTEGER NOT NULL PRIMARY KEY,
        session TEXT NOT NULL REFERENCES sessions (id),
        mark TEXT NOT NULL,
        note TEXT NOT NULL,
        created FLOAT NOT NULL, -- seconds since 1970
        UNIQUE (session, mark)
        """,
    )


def _m011_commands(connection: Connection) -> None:
    """Add the commands that worked on the run, with their options."""
    _create(
        connection,
        "commands",
        """
        "row" INTEGER NOT NULL PRIMARY KEY,
        verb TEXT NOT NULL,
        session TEXT NOT NULL, -- empty for a command about the whole run
        options TEXT NOT NULL, -- JSON, without keys
        version TEXT NOT NULL,
        created FLOAT NOT NULL, -- seconds since 1970
        UNIQUE (verb, session, created)
        """,
    )


def _m012_thoughts_before_calls_and_decisions(connection: Connection) -> None:
    """Add the thoughts of reasoning models before tool calls and choices."""
    _add_column(connection, "tools", "thought", "TEXT DEFAULT '' NOT NULL")
    _add_column(connection, "verdicts", "thought", "TEXT DEFAULT '' NOT NULL")


def _m013_votes(connection: Connection) -> None:
    """Add votes of people on pairs of solutions."""
    _create(
        connection,
        "votes",
        """
        "row" INTEGER NOT NULL PRIMARY KEY,
        session TEXT NOT NULL REFERENCES sessions (id),
        pair TEXT NOT NULL,
        voter TEXT NOT NULL, -- a pseudonym
        repeated INTEGER NOT NULL, -- 1 if the pair was shown again, the other way round
        "left" TEXT NOT NULL,
        choice TEXT NOT NULL,
        comment TEXT NOT NULL,
        texts TEXT NOT NULL, -- SHA-256 of what was shown
        seconds FLOAT NOT NULL,
        created FLOAT NOT NULL, -- seconds since 1970
        UNIQUE (session, pair, voter, repeated)
        """,
    )


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
    _m010_marks,
    _m011_commands,
    _m012_thoughts_before_calls_and_decisions,
    _m013_votes,
)
"""In order; the number of a migration is its position, from 1."""


def read_version(connection: Connection) -> int:
    """Return the number of the last migration that the run has had; 0 for a new file."""
    if not connection.execute("PRAGMA table_info(migrations)").fetchone():
        return 0
    return connection.execute("SELECT max(number) FROM migrations").fetchone()[0] or 0


def migrate(connection: Connection, now: float, *, to: int = len(MIGRATIONS)) -> None:
    """Apply the missing migrations within the caller's transaction."""
    have = read_version(connection)
    _create(connection, "migrations", "number INTEGER NOT NULL PRIMARY KEY, applied FLOAT NOT NULL")
    for number in range(have + 1, to + 1):
        MIGRATIONS[number - 1](connection)
        connection.execute("INSERT INTO migrations (number, applied) VALUES (?, ?)", (number, now))


def _create(connection: Connection, table: str, columns: str) -> None:
    # Some early runs have a table before the migration that creates it.
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")


def _add_column(connection: Connection, table: str, name: str, definition: str) -> None:
    if name not in {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}:
        connection.execute(f"ALTER TABLE {table} ADD COLUMN {name} {definition}")
