"""The origin of a row: columns that every export format has if it allows further columns."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

from bactrian.records.sampling import Sampling
from bactrian.records.session import Session

COLUMNS = (
    "run",
    "session",
    "assistant_role",
    "user_role",
    "models",
    "prompts",
    "prompts_hash",
    "protocol",
    "sampling",
    "values",
    "ending",
    "mark",
)


def trace_source(session: Session, run: str) -> dict[str, str]:
    """Return the origin of a row. All values are strings, so that tools that infer types from the first rows agree.

    ``models`` and ``sampling`` are JSON objects by agent, and ``values`` is one by axis; ``ending`` and ``mark`` are
    empty if not set.
    """
    origin = session.provenance
    return {
        "run": run,
        "session": session.id,
        "assistant_role": session.assistant.name,
        "user_role": session.user.name,
        "models": to_compact_json(dict(origin.models)),
        "prompts": origin.prompts,
        "prompts_hash": origin.prompts_hash,
        "protocol": origin.protocol,
        "sampling": to_compact_json({agent: list_given(values) for agent, values in origin.sampling.items()}),
        "values": to_compact_json(dict(session.values)),
        "ending": session.ending.code if session.ending else "",
        "mark": session.mark or "",
    }


def add_extra(row: dict[str, Any], session: Session, number: int = 0) -> dict[str, Any]:
    """Return ``row`` with the keys that the imported file had besides: the conversation's, or those of one message."""
    extra = session.provenance.extra.get(str(number), {})
    return {**row, **{key: value for key, value in extra.items() if key not in row}} if extra else row


def write_extra(session: Session, number: int = 0) -> str:
    """Return the same keys as a JSON object for a column; empty without any."""
    extra = session.provenance.extra.get(str(number))
    return to_compact_json(dict(extra)) if extra else ""


def write_message_extras(session: Session) -> str:
    """Return those of all messages as a JSON object by the number of the message; empty without any."""
    extras = {number: dict(keys) for number, keys in session.provenance.extra.items() if number.isdecimal()}
    extras.pop("0", None)
    return to_compact_json(extras) if extras else ""


def list_given(sampling: Sampling) -> dict[str, object]:
    """Return the parameters that were set, without those left to the model."""
    values = {one.name: getattr(sampling, one.name) for one in fields(sampling)}
    return {name: value for name, value in values.items() if value is not None and value not in ((), {})}


def to_compact_json(values: object) -> str:
    """Serialize ``values`` as JSON on one line with sorted keys."""
    return json.dumps(values, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
