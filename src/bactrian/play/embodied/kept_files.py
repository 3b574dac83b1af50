"""The files that an embodied agent makes, copied from its sandbox to a folder beside the run."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from bactrian.errors import BactrianError
from bactrian.language.escape import to_file_name
from bactrian.sandbox.artefacts import Artefact

MOST_BYTES = 16 << 20
"""Bytes of all files together that are copied."""
MOST_FILES = 200


def name_folder(run: Path, session: str) -> Path:
    """Return the folder of a session's files."""
    return run.with_name(f"{run.name}.files") / to_file_name(session)


class KeptFiles:
    """Copies the files of a session.

    Names come from the sandboxed program: each becomes one safe file name, and no folder is made for it.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._known: dict[str, bytes | None] = {}

    def resume(self, folder: Path | None) -> None:
        """Store files in ``folder``, and read those of an interrupted session in it; with None, keep them in memory."""
        self._folder = folder
        if folder is not None and folder.is_dir():
            paths = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.is_symlink()]
            self._known = {path.name: path.read_bytes() for path in paths[:MOST_FILES]}

    def read(self) -> dict[str, bytes]:
        """Return the files so far, to put them into a new sandbox."""
        return {name: content for name, content in self._known.items() if content is not None}

    def save(self, found: Iterable[Artefact]) -> list[Artefact]:
        """Copy the files that are new or have changed, and return these.

        Raises:
            BactrianError: the folder cannot be written.
        """
        changed = [
            one
            for one in found
            if one.name not in self._known or self._known[one.name] != one.content or one.content is None
        ]
        room = MOST_FILES - len(self._known)
        for one in changed:
            if one.name not in self._known:
                room -= 1
            if room < 0 or one.content is None:
                continue
            self._known[one.name] = one.content
            if self._folder is not None:
                self._write(self._folder, to_file_name(one.name), one.content)
        return changed

    def _write(self, folder: Path, name: str, content: bytes) -> None:
        stage = folder / f".{name[:100]}.part"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(stage, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
            with open(handle, "wb") as file:  # noqa: PTH123 - by its descriptor
                file.write(content)
            stage.replace(folder / name)
        except OSError as error:
            raise BactrianError(
                f"A file of the agent cannot be kept: {error.strerror or error}.",
                where=str(folder / name),
                next="Make room, and run the same command again.",
            ) from error
