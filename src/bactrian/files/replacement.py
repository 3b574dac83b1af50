"""The manifest beside or in an export: the files that it lists, which are the only ones that a later export deletes.

Anybody can write a manifest. So the user's state folder notes the SHA-256 of each one that was written here, and a
folder is replaced by no other.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from bactrian.errors import InputError
from bactrian.files.json_text import parse_json
from bactrian.files.recent_runs import find_state_folder

MANIFEST = "manifest.json"
_LONGEST_NAME = 255  # Bytes of a name on common file systems
_LARGEST = 1 << 30  # Bytes of a manifest; one of a million files has 150 MB

# The size in bytes and the SHA-256 of each file, by its path within the export; a single file has its name.
Listing = Mapping[PurePosixPath, tuple[int | None, str | None]]


def name_companion(target: Path) -> str:
    """Return the name of the manifest that accompanies ``target`` in the same folder."""
    return f"{target.name}.{MANIFEST}"


def list_files(folder: Path) -> list[dict[str, Any]]:
    """Return path, size in bytes and SHA-256 of every file in ``folder``, as a manifest lists them."""
    return [
        {
            "path": file.relative_to(folder).as_posix(),
            "bytes": file.stat().st_size,
            "sha256": _hash_file(file),
        }
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    ]


def check_export(path: Path) -> None:
    """Check that ``path`` is exactly what its manifest lists, so that nothing else is lost with it.

    An empty folder is. A file that is missing does not matter.

    Raises:
        InputError: it is not; the error names the first other file.
    """
    if path.is_dir() and not any(path.iterdir()):
        return
    if path.name.endswith(f".{MANIFEST}") and read_manifest(path) is not None:
        return
    listings = _find_listings(path)
    strange = [_find_other(path, listing) for listing in listings] or [_name_first(path)]
    if None in strange:
        return
    if path.is_dir() and not listings and any(read_manifest(file) for file in _name_manifests(path)):
        what = "This folder's manifest was changed, or is not of an export that you made on this computer."
    elif path.is_dir():
        what = f"This folder contains something other than an export: {strange[0]}."
    else:
        what = "This file is not an export, or was changed after it."
    raise InputError(what, where=str(path), next="Move it away, or use another name.")


def delete_export(path: Path) -> None:
    """Delete the files at ``path`` that its manifest lists, and the folders that this empties; nothing else.

    What is a link, or was changed, stays.
    """
    if path.is_symlink():
        return
    if not path.is_dir():
        with suppress(InputError):
            check_export(path)
            path.unlink()
        return
    for listing in _find_listings(path):
        for file in list(_walk(path)):
            name = PurePosixPath(file.relative_to(path).as_posix())
            if name in listing and _is_listed(file, name, listing):
                file.unlink()
    # The manifest last: after a kill, the rest is deleted by it.
    rest = [file for file in _walk(path) if not file.is_dir() or file.is_symlink()]
    if rest == [path / MANIFEST] and _read_noted(path / MANIFEST) is not None:
        rest[0].unlink()
    for folder, _, _ in os.walk(path, topdown=False):
        with suppress(OSError):  # a file that came in between stays
            Path(folder).rmdir()


def note_manifests(stage: Path) -> None:
    """Note every manifest in ``stage`` as written here. Where that is impossible, its export is never replaced."""
    with suppress(OSError):
        for file in (*stage.glob(f"*.{MANIFEST}"), *stage.glob(f"*/{MANIFEST}")):
            note = _find_note(file)
            note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            note.touch(0o600)


def _find_note(manifest: Path) -> Path:
    return find_state_folder() / "exports" / _hash_file(manifest)


def read_manifest(path: Path) -> Mapping[str, Any] | None:
    """Return our manifest at this path; None if it is no regular file, or another program's."""
    try:
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST:
            return None
        content: Any = parse_json(path.read_bytes())
        names = [PurePosixPath(file["path"]) for file in content["files"]]
        known = isinstance(content["bactrian"], str)
        return content if known and all(map(_is_inner, names)) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _is_inner(name: PurePosixPath) -> bool:
    """Return True if a file system can have the path ``name``, and it stays in its folder and is in no hidden one."""
    hidden = any(part.startswith(".") for part in name.parts[1:-1])
    fits = "\0" not in str(name) and all(len(part.encode()) <= _LONGEST_NAME for part in name.parts)
    return fits and not (hidden or name.is_absolute() or ".." in name.parts)


def _read_noted(path: Path) -> Listing | None:
    """Return what our manifest at ``path`` lists; None if it was not written here."""
    return _read_listing(path) if path.is_file() and _find_note(path).exists() else None


def _read_listing(path: Path) -> Listing | None:
    content = read_manifest(path)
    if content is None:
        return None
    return {PurePosixPath(file["path"]): (file.get("bytes"), file.get("sha256")) for file in content["files"]}


def _find_listings(path: Path) -> list[Listing]:
    """Return the listings of ``path``: of the manifest in it, and of the one beside it."""
    if not path.is_dir():
        beside = _read_listing(path.with_name(name_companion(path)))
        return [] if beside is None else [beside]
    # Paths begin with the name of the folder, which may have been renamed since.
    return [
        {PurePosixPath(*file.parts[1:]): facts for file, facts in listing.items() if len(file.parts) > 1}
        for listing in map(_read_noted, _name_manifests(path))
        if listing is not None
    ]


def _name_manifests(folder: Path) -> tuple[Path, Path]:
    return folder / MANIFEST, folder.with_name(name_companion(folder))


def _find_other(path: Path, listing: Listing) -> str | None:
    """Return the first file or folder at ``path`` that is not as listed; None if there is none."""
    if not path.is_dir():
        return None if _is_listed(path, PurePosixPath(path.name), listing) else path.name
    folders = {folder for file in listing for folder in file.parents}
    for entry in _walk(path):
        name = PurePosixPath(entry.relative_to(path).as_posix())
        if entry.is_dir() and not entry.is_symlink():
            known = name in folders
        else:
            own = name == PurePosixPath(MANIFEST) and read_manifest(entry) is not None
            known = own or _is_listed(entry, name, listing)
        if not known:
            return str(name)
    return None


def _walk(path: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(path):
        yield from (Path(folder, name) for name in sorted((*folders, *files)))


def _name_first(path: Path) -> str:
    return next((file.name for file in sorted(path.iterdir())), "") if path.is_dir() else path.name


def _is_listed(file: Path, name: PurePosixPath, listing: Listing) -> bool:
    size, digest = listing.get(name, (None, ""))
    state = file.lstat()
    return stat.S_ISREG(state.st_mode) and state.st_size == size and _hash_file(file) == digest


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
