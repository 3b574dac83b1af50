"""The tables of a run, in SQLAlchemy Core."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

sessions = Table(
    "sessions",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("assistant_role", Text, nullable=False),
    Column("assistant_description", Text, nullable=False),
    Column("user_role", Text, nullable=False),
    Column("user_description", Text, nullable=False),
    Column("original_task", Text, nullable=False),
    Column("specified_task", Text),
    Column("planned_task", Text),
    Column("provenance", Text, nullable=False, comment="JSON"),
    Column("preparation", Text, nullable=False, comment="JSON: tokens of specifier and planner"),
    Column("created", Float, nullable=False, comment="seconds since 1970, for display only"),
    Column("ending", Text),
    Column("ending_turn", Integer),
    Column("ending_speaker", Text),
    Column("ending_evidence", Text),
    Column("axis_values", Text, nullable=False, server_default="{}", comment="JSON: item by axis"),
    Column("mark", Text, comment="red-team, or nothing"),
    Column("prompt_tokens", Integer, comment="of the whole session, once it has ended"),
    Column("completion_tokens", Integer),
    Column("cached_tokens", Integer),
)

progress = Index(
    "sessions_progress",
    *(
        sessions.c[name]
        for name in ("id", "ending", "ending_turn", "prompt_tokens", "completion_tokens", "cached_tokens")
    ),
)
"""Holds all that a resumed run must know of its sessions, so that the wide rows need not be read for it."""

turns = Table(
    "turns",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("session", Text, ForeignKey("sessions.id"), nullable=False),
    Column("number", Integer, nullable=False),
    Column("speaker", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("said", Text, comment="JSON: the instruction or solution read from the text"),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("estimated", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("first_token", Float),
    Column("model", Text, nullable=False),
    Column("finish", Text, nullable=False),
    Column("lossy", Integer, nullable=False),
    Column(
        "checksum",
        Integer,
        nullable=False,
        comment="CRC-32 of the text: SQLite does not notice flipped bytes",
    ),
    Column("fingerprint", Text, comment="the endpoint's name for the exact system that answered"),
    Column("thought", Text, comment="what a reasoning model thought before; null if nothing"),
    UniqueConstraint("session", "number"),
)

run = Table(
    "run",
    metadata,
    Column("row", Integer, primary_key=True, comment="always 1"),
    Column("recipe", Text, nullable=False, comment="JSON: what the run is made from, frozen at its start"),
    Column("created", Float, nullable=False, comment="seconds since 1970, for display only"),
)

lists = Table(
    "lists",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("id", Text, nullable=False, unique=True, comment="axis, and the positions it depends on"),
    Column("items", Text, nullable=False, comment="JSON"),
    Column("complete", Integer, nullable=False),
    Column("usage", Text, nullable=False, comment="JSON"),
    Column("calls", Integer, nullable=False),
)

calls = Table(
    "calls",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("session", Text, nullable=False),
    Column("agent", Text, nullable=False),
    Column("ordinal", Integer, nullable=False),
    Column("model", Text, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("raw", LargeBinary, nullable=False),
    Column("error", Text),
    Column("usage", Text, comment="JSON; null after a failure"),
)

proposals = Table(
    "proposals",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("session", Text, ForeignKey("sessions.id"), nullable=False),
    Column("number", Integer, nullable=False, comment="of the turn"),
    Column("round", Integer, nullable=False),
    Column("place", Integer, nullable=False),
    Column("speaker", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("estimated", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("model", Text, nullable=False),
    Column("finish", Text, nullable=False),
    Column("lossy", Integer, nullable=False),
    Column("parent", Integer, comment="place of the one it follows, in a search"),
    Column("fingerprint", Text, comment="the endpoint's name for the exact system that answered"),
    Column("thought", Text, comment="what a reasoning model thought before; null if nothing"),
    UniqueConstraint("session", "number", "round", "place"),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("session", Text, ForeignKey("sessions.id"), nullable=False),
    Column("number", Integer, nullable=False, comment="of the turn"),
    Column("round", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("speaker", Text, nullable=False, comment="whose proposals they are"),
    Column("chooser", Text, nullable=False),
    Column("text", Text, nullable=False),
    Column("place", Integer, comment="of the chosen proposal; null if the verdict cannot be read"),
    Column("reason", Text, nullable=False),
    Column("feedback", Text, nullable=False),
    Column("instead", Text, comment="what a person wrote in place of all proposals"),
    Column("problem", Text, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("estimated", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("model", Text, nullable=False),
    Column(
        "kept", Text, nullable=False, server_default="[]", comment="JSON: places to go on with, in a search"
    ),
    UniqueConstraint("session", "number", "round", "attempt"),
)

tools = Table(
    "tools",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("session", Text, ForeignKey("sessions.id"), nullable=False),
    Column("number", Integer, nullable=False, comment="of the turn"),
    Column("round", Integer, nullable=False),
    Column("place", Integer, nullable=False),
    Column("speaker", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("call", Text, nullable=False, comment="the model's name for the call"),
    Column("arguments", Text, nullable=False, comment="as the model wrote them"),
    Column("text", Text, nullable=False, comment="what the agent wrote beside its calls"),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("estimated", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("model", Text, nullable=False),
    Column("result", Text, comment="null until the tool returned"),
    Column("problem", Text),
    Column("tool_seconds", Float),
    Column("cut", Integer),
    UniqueConstraint("session", "number", "round", "place"),
)

confirmations = Table(
    "confirmations",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("session", Text, ForeignKey("sessions.id"), nullable=False),
    Column("turn", Integer, nullable=False),
    Column("behaviour", Text, nullable=False),
    Column("judge", Text, nullable=False, comment="model, as the user named it"),
    Column("holds", Integer, comment="null if the answer cannot be read"),
    Column("text", Text, nullable=False),
    Column("prompt_tokens", Integer, nullable=False),
    Column("completion_tokens", Integer, nullable=False),
    Column("cached_tokens", Integer, nullable=False),
    Column("estimated", Integer, nullable=False),
    Column("seconds", Float, nullable=False),
    Column("model", Text, nullable=False),
    UniqueConstraint("session", "turn", "behaviour", "judge"),
)
