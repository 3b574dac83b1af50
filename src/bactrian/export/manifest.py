"""The manifest of an export: content and origin, as JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import bactrian
from bactrian.export.counts import ExportCounts
from bactrian.store.migrations import MIGRATIONS

SCHEMA = 1
"""Of the manifest itself."""


def build_manifest(made: dict[str, Any], tally: ExportCounts) -> dict[str, Any]:
    """Build the manifest without its list of files, from the options ``made`` and the counts ``tally``."""
    return {
        "schema": {"manifest": SCHEMA, "run": len(MIGRATIONS)},
        "bactrian": bactrian.__version__,
        **made,
        "counts": {
            "sessions_in_run": tally.seen,
            "sessions": tally.sessions,
            "rows": dict(sorted(tally.rows.items())),
            "messages": tally.messages,
            "tokens": tally.tokens,
            "pairs": len(tally.pairs),
            "left_out": dict(sorted(tally.left_out.items())),
            "redacted": dict(sorted(tally.redacted.items())),
        },
        "endings": dict(sorted(tally.endings.items())),
        "models": [{"agent": agent, "model": model} for agent, model in sorted(tally.models)],
        "prompts": [{"name": name, "sha256": digest} for name, digest in sorted(tally.prompts)],
        "sampling": [{"agent": agent, **json.loads(values)} for agent, values in sorted(tally.sampling)],
        "languages": sorted(filter(None, tally.languages)),
        "marks": sorted(tally.marks),
    }


def describe_files(folder: Path) -> list[dict[str, object]]:
    """Return name, size in bytes and SHA-256 of every file in ``folder``."""
    return [_described(path, folder) for path in sorted(folder.rglob("*")) if path.is_file()]


def _described(path: Path, root: Path) -> dict[str, object]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"path": path.relative_to(root).as_posix(), "bytes": path.stat().st_size, "sha256": digest}


def list_written(values: dict[str, Any]) -> str:
    """Return the manifest as text."""
    return json.dumps(values, ensure_ascii=False, indent=2) + "\n"
