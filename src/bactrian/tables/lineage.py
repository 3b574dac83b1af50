"""Where a row came from: the columns that every format has which allows them."""

from __future__ import annotations

import json
from dataclasses import asdict

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
    "ending",
    "mark",
)


def trace_source(session: Session, run: str) -> dict[str, str]:
    """The source of a row. All are strings, so that tools that guess types from the first rows guess right.

    ``models`` and ``sampling`` are JSON objects by agent; ``ending`` and ``mark`` are empty if there is none.
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
        "ending": session.ending.code if session.ending else "",
        "mark": session.mark or "",
    }


def list_given(sampling: Sampling) -> dict[str, object]:
    """The parameters that were chosen, without those left to the model."""
    return {
        name: value for name, value in asdict(sampling).items() if value is not None and value not in ((), {})
    }


def to_compact_json(values: object) -> str:
    """``values`` as JSON in one line with sorted keys."""
    return json.dumps(values, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
