"""Entry points that installed packages register, by group and name and loaded on demand."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from functools import lru_cache
from importlib.metadata import EntryPoints, distributions
from pathlib import Path

from bactrian.errors import InputError

_PREFIX = "bactrian."  # How the names of all groups begin


def list_plugins(group: str) -> tuple[str, ...]:
    """Return the names that installed packages register in ``group``; nothing is loaded."""
    return tuple(sorted(find_plugins(group).names))


def find_plugins(group: str) -> EntryPoints:
    """Return what installed packages register in ``group``; nothing is loaded."""
    packages: dict[str, EntryPoints] = {}
    for folder in sys.path:
        for package, registered in _read_folder(folder, _find_change(folder)).items():
            packages.setdefault(package, registered)  # A package of this name in an earlier folder hides it
    return EntryPoints(entry for registered in packages.values() for entry in registered.select(group=group))


def load_plugin(group: str, name: str) -> object:
    """Load the object that a package registers as ``name`` in ``group``.

    Raises:
        InputError: no package registers it, two packages do, or it cannot be loaded.
    """
    plugins = find_plugins(group)
    if name not in plugins.names:
        raise InputError(
            f"No installed package registers {name!r} under {group!r}.",
            where=name,
            next="Install the package that registers it into the same environment.",
        )
    if len(plugins.select(name=name)) > 1:
        raise InputError(
            f"Two installed packages register {name!r} under {group!r}.",
            where=name,
            next="Remove one of them.",
        )
    try:
        with redirect_stdout(sys.stderr):  # Standard output is for data.
            return plugins[name].load()
    except (Exception, SystemExit) as error:
        raise InputError(
            f"{plugins[name].value!r}, which a package registers as {name!r} under {group!r}, cannot be loaded: "
            f"{type(error).__name__}: {' '.join(str(error).split())}.",
            where=name,
            next="Fix or remove the package.",
        ) from error


@lru_cache(maxsize=64)
def _read_folder(folder: str, _change: int) -> Mapping[str, EntryPoints]:
    """Return what the packages in a folder register in the program's groups, by the package's name.

    It is kept while the folder stays as it is, because reading what every package registers takes milliseconds.
    """
    packages: dict[str, EntryPoints] = {}
    for package in distributions(path=[folder]):
        ours = EntryPoints(entry for entry in package.entry_points if entry.group.startswith(_PREFIX))
        if ours:
            packages.setdefault(package.name, ours)
    return packages


def _find_change(folder: str) -> int:
    """Return when the folder was last changed; 0 if unknown."""
    with suppress(OSError):
        return Path(folder).stat().st_mtime_ns
    return 0
