# pyright: basic, reportMissingImports=false
"""Metadata of a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gguf import GGUFReader

from bactrian.errors import InputError


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata by key. Raises InputError if the file is not GGUF."""
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, OSError) as error:
        raise InputError(
            "This is not a readable GGUF file.", where=str(path), next="Download it again, or check the path."
        ) from error
    return {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
