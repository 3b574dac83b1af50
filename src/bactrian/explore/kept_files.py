"""Files that an embodied agent made, which are kept beside the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from bactrian.play.embodied.kept_files import MOST_FILES, name_folder

PICTURES: Mapping[str, str] = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
}
"""Types of pictures that are shown, by the ending of a name. In a picture, a browser runs no script."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file of a session."""

    name: str
    path: Path
    size: int
    """Bytes."""

    @property
    def picture(self) -> str:
        """The type of a picture that is shown; empty for other files."""
        return PICTURES.get(self.path.suffix.lower(), "")


def list_kept_files(run: Path, session: str) -> list[KeptFile]:
    """Return the files of a session by name. Links and folders are left out."""
    folder = name_folder(run, session)
    if folder.is_symlink() or folder.parent.is_symlink() or not folder.is_dir():
        return []
    paths = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.is_symlink()]
    return [
        KeptFile(path.name, path, path.stat().st_size)
        for path in paths[:MOST_FILES]
        if not path.name.startswith(".")
    ]
