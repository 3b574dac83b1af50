"""The manifest of an export: content and origin, as JSON."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import bactrian
from bactrian.export.counts import ExportCounts
from bactrian.language.escape import to_json
from bactrian.store.migrations import MIGRATIONS

SCHEMA = 1
"""Of the manifest itself."""


def build_manifest(made: dict[str, Any], counts: ExportCounts) -> dict[str, Any]:
    """Build the manifest without its list of files, from the options ``made`` and the ``counts``."""
    return {
        "schema": {"manifest": SCHEMA, "run": len(MIGRATIONS)},
        "bactrian": bactrian.__version__,
        **made,
        "counts": {
            "sessions_in_run": counts.seen,
            "sessions": counts.sessions,
            "rows": dict(sorted(counts.rows.items())),
            "messages": counts.messages,
            "tokens": counts.tokens,
            "pairs": len(counts.pairs),
            "left_out": dict(sorted(counts.left_out.items())),
            "redacted": dict(sorted(counts.redacted.items())),
        },
        "endings": dict(sorted(counts.endings.items())),
        "models": [{"agent": agent, "model": model} for agent, model in sorted(counts.models)],
        "prompts": [{"name": name, "sha256": digest} for name, digest in sorted(counts.prompts)],
        "sampling": [{"agent": agent, **json.loads(values)} for agent, values in sorted(counts.sampling)],
        "languages": sorted(filter(None, counts.languages)),
        "marks": sorted(counts.marks),
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
    return to_json(values, indent=2) + "\n"
