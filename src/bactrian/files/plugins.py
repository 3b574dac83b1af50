"""Entry points that installed packages register, found by group and name and loaded on demand."""

from __future__ import annotations

import sys
from functools import lru_cache
from importlib.metadata import EntryPoints, entry_points
from pathlib import Path

from bactrian.errors import InputError

_PREFIX = "bactrian."
"""How the names of all groups begin."""


def list_plugins(group: str) -> tuple[str, ...]:
    """Return the names that installed packages register in ``group``; nothing is loaded."""
    return tuple(sorted(find_plugins(group).names))


def find_plugins(group: str) -> EntryPoints:
    """Return what installed packages register in ``group``; nothing is loaded."""
    return _read_groups(tuple((folder, _changed(folder)) for folder in sys.path)).select(group=group)


def load_plugin(group: str, name: str) -> object:
    """Load the object that a package registers as ``name`` in ``group``.

    Raises:
        InputError: no package registers it, or it cannot be loaded.
    """
    found = find_plugins(group)
    if name not in found.names:
        raise InputError(
            f"No installed package registers {name!r} under {group!r}.",
            where=name,
            next="Install the package that registers it into the same environment.",
        )
    try:
        return found[name].load()
    except Exception as error:
        raise InputError(
            f"{found[name].value!r}, which a package registers as {name!r} under {group!r}, cannot be loaded: "
            f"{type(error).__name__}: {error}.",
            where=name,
            next="Fix or remove the package.",
        ) from error


@lru_cache(maxsize=1)
def _read_groups(_folders: tuple[tuple[str, int], ...]) -> EntryPoints:
    """Return all entry points of the program's own groups.

    They are kept while the folders that hold packages stay as they are, since reading the metadata of
    every package takes milliseconds.
    """
    found = entry_points()
    own = (group for group in found.groups if group.startswith(_PREFIX))
    return EntryPoints(one for group in own for one in found.select(group=group))


def _changed(folder: str) -> int:
    try:
        return Path(folder).stat().st_mtime_ns
    except OSError:
        return 0
