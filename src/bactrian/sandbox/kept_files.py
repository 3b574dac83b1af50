"""Copies the files of a program to a folder of the user, whatever names the program gave them."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from bactrian.errors import InputError

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def check_folder(path: Path, *, overwrite: bool) -> None:
    """Make the folder if it is missing, and check that files can be kept there.

    Raises:
        InputError: it cannot be written, or contains something and ``overwrite`` is False.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        is_empty = not any(path.iterdir())
    except OSError as error:
        raise InputError(
            f"Files cannot be kept here: {error.strerror}.", where=str(path), next="Name another folder."
        ) from error
    if not os.access(path, os.W_OK | os.X_OK):
        raise InputError("This folder cannot be written.", where=str(path), next="Name another folder.")
    if not (is_empty or overwrite):
        raise InputError(
            "This folder is not empty.", where=str(path), next="Use --overwrite, or name another folder."
        )


def keep_files(path: Path, files: Mapping[str, bytes], *, overwrite: bool) -> dict[str, str]:
    """Write files below a folder, and return why some were not written, by name.

    The names come from the program. Nothing is written outside of the folder, through a link, or to what is no file.
    """
    faults: dict[str, str] = {}
    top = os.open(path, _FOLDER)
    try:
        for name, content in files.items():
            try:
                _keep_file(top, name.split("/"), content, overwrite=overwrite)
            except OSError as error:
                faults[name] = error.strerror or str(error)
    finally:
        os.close(top)
    return faults


def _keep_file(top: int, parts: list[str], content: bytes, *, overwrite: bool) -> None:
    if any(part in ("", ".", "..") or not part.isprintable() for part in parts):
        raise OSError("the name is not safe")
    folder = os.dup(top)
    try:
        for part in parts[:-1]:
            with suppress(FileExistsError):
                os.mkdir(part, dir_fd=folder)
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
            os.close(folder)
            folder = inner
        _write_whole(folder, parts[-1], content, overwrite=overwrite)
    finally:
        os.close(folder)


def _write_whole(folder: int, name: str, content: bytes, *, overwrite: bool) -> None:
    stage = f".{secrets.token_hex(8)}.part"
    with open(os.open(stage, _NEW, 0o644, dir_fd=folder), "wb") as file:  # noqa: PTH123 - by its descriptor
        try:
            file.write(content)
            file.flush()
            if overwrite:
                os.replace(stage, name, src_dir_fd=folder, dst_dir_fd=folder)
            else:
                os.link(stage, name, src_dir_fd=folder, dst_dir_fd=folder)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(stage, dir_fd=folder)
