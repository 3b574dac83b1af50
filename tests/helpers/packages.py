"""Packages that are installed for a test: a module and its entry point in a folder on the path."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, name: str, code: str, group: str, point: str) -> None:
    """Put a package with one entry point, for example ``menu = acme:menu``, into ``folder``."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{point}\n")
