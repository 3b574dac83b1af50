"""Fast, partial reading of a run for lists and indexes: columns instead of records, and no JSON of turns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pydantic_core import from_json
from sqlalchemy import Connection, func, select

from bactrian.records.run import Outline, SpokenText
from bactrian.records.session import infer_kind
from bactrian.store import schema

_AT_ONCE = 500
"""Most ids in one statement."""


def read_outlines(connection: Connection, after: int, limit: int, ids: Sequence[str] | None) -> list[Outline]:
    """Return the outlines of the next ``limit`` sessions after row ``after``; only those of ``ids`` if given."""
    one, turns = schema.sessions.c, schema.turns.c
    count = select(func.count()).where(turns.session == one.id).scalar_subquery()
    query = (
        select(
            *(one.row, one.id, one.assistant_role, one.user_role, one.original_task, one.specified_task),
            *(one.provenance, one.ending, one.created, one.mark, count.label("turns")),
        )
        .where(one.row > after)
        .order_by(one.row)
        .limit(limit)
    )
    if ids is None:
        return [_read_outline(row) for row in connection.execute(query)]
    return [
        _read_outline(row)
        for begin in range(0, len(ids), _AT_ONCE)
        for row in connection.execute(query.where(one.id.in_(ids[begin : begin + _AT_ONCE])))
    ]


def read_texts(connection: Connection, ids: Sequence[str]) -> Iterator[SpokenText]:
    """Yield the texts of the sessions ``ids``: session by session, in the order of their turns."""
    turns = schema.turns.c
    query = select(
        *(turns.session, turns.number, turns.speaker, turns.text),
        *(turns.prompt_tokens, turns.completion_tokens, turns.cached_tokens),
    ).order_by(turns.session, turns.number)
    for begin in range(0, len(ids), _AT_ONCE):
        rows = connection.execute(query.where(turns.session.in_(ids[begin : begin + _AT_ONCE])))
        yield from map(SpokenText._make, rows)


def find_touched(connection: Connection, after: int) -> tuple[int, list[str]]:
    """Return the last row of the turns, and the ids of the sessions with turns after row ``after``."""
    turns = schema.turns.c
    last = connection.execute(select(func.max(turns.row))).scalar() or 0
    if last <= after:
        return last, []
    return last, list(connection.execute(select(turns.session).where(turns.row > after).distinct()).scalars())


def _read_outline(row: Any) -> Outline:
    origin: Mapping[str, Any] = from_json(row.provenance)
    models = cast("Mapping[str, str]", origin.get("models") or {})
    return Outline(
        row=row.row,
        id=row.id,
        assistant=row.assistant_role,
        user=row.user_role,
        original_task=row.original_task,
        specified_task=row.specified_task,
        language=origin.get("language"),
        models=models,
        kind=infer_kind(models, has_cast=bool(origin.get("cast"))),
        ending=row.ending,
        turns=row.turns,
        created=row.created,
        mark=row.mark,
    )
