"""What installed packages register under an entry-point group of this program."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from bactrian.errors import InputError


@cache
def list_plugins(group: str) -> Mapping[str, EntryPoint]:
    """The entry points of ``group`` by name. Installed packages are looked up once, and none is imported."""
    return {point.name: point for point in entry_points(group=group)}


@cache
def load_plugin(group: str, name: str) -> object | None:
    """Import what a package registers as ``name`` under ``group``; None if not found.

    Raises:
        InputError: it cannot be imported.
    """
    point = list_plugins(group).get(name)
    if point is None:
        return None
    try:
        return point.load()
    except Exception as error:
        raise InputError(
            f"The plug-in {name!r} of {group} cannot be loaded: {type(error).__name__}: {error}.",
            where=point.value,
            next="Mend or remove the package that registers it.",
        ) from error
