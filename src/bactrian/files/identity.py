"""Whether two paths lead to one file: by device and inode, never by text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bactrian.errors import InputError


def is_same_file(one: Path, other: Path) -> bool:
    """True if both paths lead to one file, through links, ``..`` and hard links too.

    Two paths to nothing are the same if a file that is made there would be the same.
    """
    if one.exists() and other.exists():
        return one.samefile(other)
    first, second = _resolve(one), _resolve(other)
    if first == second:
        return True
    if first.name != second.name or not (first.parent.exists() and second.parent.exists()):
        return False
    return first.parent.samefile(second.parent)


def check_replaceable(target: Path, protected: Iterable[Path]) -> None:
    """Check that writing ``target`` replaces none of the ``protected`` files, nor a folder that holds one.

    Raises:
        InputError: it would.
    """
    for path in protected:
        if is_same_file(target, path):
            what = "This is the file that is read" if path.exists() else f"This name belongs to {path.name}"
            raise InputError(
                f"{what}, and would be replaced.", where=str(target), next="Name another file to write."
            )
        if target.is_dir() and any(is_same_file(target, folder) for folder in _resolve(path).parents):
            raise InputError(
                f"This folder holds {path.name}, which is read.",
                where=str(target),
                next="Name another folder to write.",
            )


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path.absolute()
