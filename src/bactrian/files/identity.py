"""Comparison of paths by the file they lead to (device and inode), never by their text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from bactrian.errors import InputError


def is_same_file(one: Path, other: Path) -> bool:
    """Return True if both paths lead to the same file, also through links, ``..`` and hard links.

    Two paths that do not exist are the same if they would create the same file.
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
    """Check that writing ``target`` replaces neither a ``protected`` file nor a folder that contains one.

    Raises:
        InputError: it would replace one.
    """
    for path in protected:
        if is_same_file(target, path):
            what = "This is the input file" if path.exists() else f"This name belongs to {path.name}"
            raise InputError(
                f"{what}, and would be replaced.", where=str(target), next="Choose another output file."
            )
        if target.is_dir() and any(is_same_file(target, folder) for folder in _resolve(path).parents):
            raise InputError(
                f"This folder contains the input file {path.name}.",
                where=str(target),
                next="Choose another output folder.",
            )


def _resolve(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return path.absolute()
