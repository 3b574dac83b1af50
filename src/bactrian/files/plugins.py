"""Entry points that installed packages register, found by group and name and loaded on demand."""

from __future__ import annotations

from importlib.metadata import entry_points

from bactrian.errors import InputError


def list_plugins(group: str) -> tuple[str, ...]:
    """Return the names that installed packages register in ``group``; nothing is loaded."""
    return tuple(sorted(entry_points(group=group).names))


def load_plugin(group: str, name: str) -> object:
    """Load the object that a package registers as ``name`` in ``group``.

    Raises:
        InputError: no package registers it, or it cannot be loaded.
    """
    found = entry_points(group=group)
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
