"""Bactrian: two agents role-play until a task is solved. Importing this package does no work."""

from typing import TYPE_CHECKING

from bactrian._version import __version__

if TYPE_CHECKING:
    from bactrian.analyze.frames import open_run

__all__ = ["__version__", "open_run"]


def __getattr__(name: str) -> object:
    """Import :func:`open_run` when it is asked for, so that importing the package costs nothing."""
    if name == "open_run":
        from bactrian.analyze.frames import open_run

        return open_run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
