"""Atomic writes: the files of an export appear complete or not at all, and only files of its manifest are deleted.

Everything is written into a folder beside the target, ``.NAME.….bactrian-part``, and flushed to disk. One rename to
``.NAME.….bactrian-ready`` commits it; then each file moves to its final name. A process that is killed leaves either
the first, which the next writer of the same target removes, or the second, which the next writer finishes. It does
so only with a folder that the user's state folder notes: its path and, once complete, the SHA-256 of each file.

What is replaced was written here before: of an export, only files that its manifest lists, with the same content.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import resource
import shutil
import stat
import subprocess
import tempfile
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any

from bactrian.errors import BactrianError, BactrianWarning, InputError, explain_os_errors
from bactrian.files.json_text import parse_json
from bactrian.files.recent_runs import find_state_folder

# The manifest beside or in an export: the files that it lists, which are the only ones that a later export deletes.
#
# Anybody can write a manifest. So the user's state folder notes the SHA-256 of each one that was written here, and a
# folder is replaced by no other.


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
            note = _find_own_note(file)
            note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            note.touch(0o600)


def _find_own_note(manifest: Path) -> Path:
    return find_state_folder() / "exports" / _hash_file(manifest)


def read_manifest(path: Path) -> Mapping[str, Any] | None:
    """Return our manifest at this path; None if it is no regular file, or another program's."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        state = path.lstat()
        if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST:
            return None
        content: Any = parse_json(path.read_bytes())
        names = [PurePosixPath(file["path"]) for file in content["files"]]
        known = isinstance(content["bactrian"], str)
        return content if known and all(map(_is_inner, names)) else None
    return None


def _is_inner(name: PurePosixPath) -> bool:
    """Return True if a file system can have the path ``name``, and it stays in its folder and is in no hidden one."""
    hidden = any(part.startswith(".") for part in name.parts[1:-1])
    fits = "\0" not in str(name) and all(len(part.encode()) <= _LONGEST_NAME for part in name.parts)
    return fits and not (hidden or name.is_absolute() or ".." in name.parts)


def _read_noted(path: Path) -> Listing | None:
    """Return what our manifest at ``path`` lists; None if it was not written here."""
    return _read_listing(path) if path.is_file() and _find_own_note(path).exists() else None


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


# Atomic writes: the files of an export appear complete or not at all.


SQLITE_HEADER = b"SQLite format 3\0"
_FULL = (errno.ENOSPC, errno.EDQUOT)
_PART, _READY = ".bactrian-part", ".bactrian-ready"
_REPLACED = ".replaced"  # Folder inside the ready one that contains the folders that were replaced


@contextmanager
def write_atomically(
    target: Path,
    *,
    overwrite: bool = False,
    listed: bool = False,
    shared: frozenset[str] = frozenset(),
    protect: Iterable[Path] = (),
) -> Generator[Path]:
    """Provide a temporary folder and, on success, move its files beside ``target``.

    Args:
        target: The file or folder that is written.
        overwrite: True to replace an existing file or export, which is never a run. A folder is replaced only if it
            contains what its manifest lists and nothing else.
        listed: True if a manifest lists the new files; then an existing file has to be listed, too.
        shared: Names of files that are always replaced: their writer has kept the existing content.
        protect: Files that are never replaced, whatever name ``target`` uses for them.

    Raises:
        InputError: the target exists already or cannot be written.
        BactrianError: the disk is full.
    """
    target = target.absolute()
    protected = tuple(protect)

    def check(path: Path) -> None:
        check_replaceable(path, protected)
        is_shared = path.name in shared
        check_target(path, overwrite=overwrite or is_shared, listed=listed and not is_shared)

    with explain_os_errors("This cannot be written", target, "Use another name."):
        _sweep(target, listed=listed, shared=shared)
        check(target)
    with (
        explain_os_errors("This cannot be written", target, "Use another name."),
        _open_stage(target) as stage,
    ):
        try:
            yield stage
            _flush(stage)
            note_manifests(stage)
            _note_stage(stage, list_files(stage))
            # As late as possible, because a file that is edited after it would be lost.
            for file in stage.iterdir():
                check(target.with_name(file.name))
            _finish(_commit(stage), target)
        except OSError as error:
            # Some libraries pass on the message without the error number.
            if error.errno in _FULL or "No space left" in str(error):
                raise _make_space_error(stage, target) from error
            raise


@contextmanager
def _open_stage(target: Path) -> Generator[Path]:
    """Create the folder to write in and lock it, so that no other process removes it as a leftover."""
    stage = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=_PART, dir=target.parent))
    handle = _lock_folder(stage)
    try:
        _note_stage(stage, [])
        stage.chmod(0o777 & ~_umask())
        yield stage
    finally:
        shutil.rmtree(stage, ignore_errors=True)
        if not stage.with_suffix(
            _READY
        ).exists():  # what could not be finished is finished by the next writer
            _forget_stage(stage)
        if handle is not None:
            os.close(handle)


def _lock_folder(folder: Path) -> int | None:
    """Lock ``folder`` until the handle is closed or the process ends; None if another process locks it."""
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def _commit(stage: Path) -> Path:
    """Mark the written files as complete. From here on this process, or the next one, finishes the write."""
    ready = stage.with_suffix(_READY)
    stage.rename(ready)
    _flush_folder(ready.parent)
    return ready


def _find_note(stage: Path) -> Path:
    """Return the note of the user's state folder that this folder, or its part of before, was made here."""
    path = stage.parent.resolve() / stage.stem
    return find_state_folder() / "writes" / f"{hashlib.sha256(os.fsencode(path)).hexdigest()}.json"


def _note_stage(stage: Path, files: list[dict[str, Any]]) -> None:
    # Without a note, a leftover of this writer stays, which harms nothing.
    with suppress(OSError):
        note = _find_note(stage)
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = note.with_suffix(".new")
        new.write_text(json.dumps({"inode": stage.stat().st_ino, "files": files}))
        new.replace(note)


def _forget_stage(stage: Path) -> None:
    with suppress(OSError):
        _find_note(stage).unlink(missing_ok=True)


def _is_own_leftover(leftover: Path) -> bool:
    """Return True if this program made the folder here, and, once complete, nothing but the replaced has changed."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        note = parse_json(_find_note(leftover).read_bytes())
        if note["inode"] != leftover.stat().st_ino:
            return False
        if leftover.suffix == _PART:
            return True
        strange = [
            path for path in leftover.rglob("*") if path.is_symlink() or not (path.is_dir() or path.is_file())
        ]
        files = [file for file in list_files(leftover) if not file["path"].startswith(f"{_REPLACED}/")]
        return not strange and all(file in note["files"] for file in files)
    return False


def _finish(ready: Path, target: Path) -> None:
    """Move each file of ``ready`` to its final name, the target first and its manifest last."""
    folder, replaced = target.parent, ready / _REPLACED
    staged = [file.name for file in ready.iterdir() if file.name != _REPLACED]
    for name in sorted(staged, key=lambda name: _rank(name, target)):
        new, final = ready / name, folder / name
        if final.exists() and (final.is_dir() or new.is_dir()):
            # Only a file can replace a file in one step.
            replaced.mkdir(exist_ok=True)
            listing = final.with_name(name_companion(final))
            if listing.exists():  # it may be replaced before the old files are deleted
                keep = shutil.copyfile if listing.name in staged else shutil.move
                keep(listing, replaced / listing.name)
            final.rename(replaced / name)
        new.replace(final)
    _flush_folder(folder)
    if replaced.exists():
        for old in sorted(replaced.iterdir(), key=lambda old: _rank(old.name, target)):
            delete_export(old)
        with suppress(OSError):  # what came into the old folder in between stays
            replaced.rmdir()
        if replaced.exists():
            _forget_stage(ready)
            raise BactrianError(
                "The new files are complete, but the old ones were changed while they were replaced.",
                where=str(target),
                next=f"Look at what was kept in {replaced}, and delete it.",
            )
    with suppress(OSError):
        ready.rmdir()
    _forget_stage(ready)


def _sweep(target: Path, *, listed: bool, shared: frozenset[str]) -> None:
    """Finish or remove leftovers of processes that were killed while writing ``target``."""
    leftover = re.compile(rf"\.{re.escape(target.name)}\.[a-z0-9_]{{8}}({_PART}|{_READY})")
    try:
        leftovers = [path for path in target.parent.iterdir() if leftover.fullmatch(path.name)]
    except OSError:
        return
    for path in leftovers:
        # An InputError: something else has come to the target since, and stays there.
        with suppress(OSError, BactrianError):
            handle = None if path.is_symlink() or not path.is_dir() else _lock_folder(path)
            if handle is None:
                continue
            try:
                if not _is_own_leftover(path):
                    if any(path.iterdir()):
                        text = f"{path} is not what an export of yours left, so it stays. Delete it if nobody needs it."
                        warnings.warn(text, BactrianWarning, stacklevel=2)
                    else:
                        path.rmdir()
                    continue
                if path.suffix == _PART:
                    shutil.rmtree(path, ignore_errors=True)
                    _forget_stage(path)
                    continue
                for name in {file.name for file in path.iterdir()} - {_REPLACED}:
                    check_target(target.with_name(name), overwrite=True, listed=listed and name not in shared)
                _finish(path, target)
            finally:
                os.close(handle)


def _rank(name: str, target: Path) -> tuple[bool, bool, str]:
    """Return a sort key: the target first and the manifest last, so that a new manifest implies new files."""
    return (name != target.name, name.endswith(MANIFEST), name)


def check_target(path: Path, *, overwrite: bool = False, listed: bool = False, is_file: bool = False) -> None:
    """Check that ``path`` can be written as :func:`write_atomically` does it; with ``is_file``, as one file.

    Raises:
        InputError: it cannot, or what is there would be lost.
    """
    where = str(path)
    if path.name in ("", ".", ".."):
        raise InputError("This is no name of a file or folder.", where=where, next="Write its name.")
    if not path.parent.is_dir():
        raise InputError(f"There is no folder {path.parent}.", where=where, next="Create it first.")
    if not path.exists() and not path.is_symlink():
        return
    if not overwrite:
        raise InputError("This exists already.", where=where, next="Use overwrite=True, or another name.")
    if path.is_symlink() or not (path.is_file() or (path.is_dir() and not is_file)):
        raise InputError("This is not a regular file or folder.", where=where, next="Use another name.")
    if path.is_file() and is_sqlite_file(path):
        raise InputError("This is a database, such as a run.", where=where, next="Use another name.")
    if path.is_dir():
        for kind, folder in (("working", Path.cwd()), ("home", Path.home())):
            if any(is_same_file(path, inner) for inner in (folder, *folder.parents)):
                what = f"The {kind} folder is this folder or lies in it."
                raise InputError(what, where=where, next="Use another name.")
    if listed or path.is_dir():
        check_export(path)


def _flush(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        _flush_folder(path)


def _flush_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _make_space_error(stage: Path, target: Path) -> BactrianError:
    """Return the error for a full disk; the bytes written so far, plus the free bytes, were not enough."""
    written = sum(file.stat().st_size for file in stage.rglob("*") if file.is_file())
    disk = os.statvfs(target.parent)
    free = disk.f_bavail * disk.f_frsize
    return BactrianError(
        f"No space is left on the disk: more than {written + free:,} bytes are needed. Nothing was written.",
        where=str(target),
        next=f"Free some space ({written + free:,} bytes are free now), and run the same command.",
    )


# Comparison of paths by the file they lead to (device and inode), never by their text.


def is_same_file(path: Path, other: Path) -> bool:
    """Return True if both paths lead to the same file, also through links, ``..`` and hard links.

    Two paths that do not exist are the same if they would create the same file.
    """
    if path.exists() and other.exists():
        return path.samefile(other)
    first, second = _resolve(path), _resolve(other)
    if first == second:
        return True
    if first.name != second.name or not (first.parent.exists() and second.parent.exists()):
        return False
    return first.parent.samefile(second.parent)


def check_replaceable(target: Path, protected: Iterable[Path]) -> None:
    """Check that writing ``target`` replaces neither a ``protected`` file nor a folder that contains such a file.

    Raises:
        InputError: it would replace such a file.
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


def is_sqlite_file(path: Path) -> bool:
    """Return True if the file at ``path`` is a database of SQLite. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return file.read(len(SQLITE_HEADER)) == SQLITE_HEADER


def raise_file_limit(needed: int) -> int:
    """Let this process open ``needed`` files, or as many as it may have; return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return needed
    most = needed if hard == resource.RLIM_INFINITY else min(hard, needed)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    return most


# A report as a file: a page, the same as a PDF, or its numbers as JSON, by the suffix of its name.


_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "microsoft-edge")
# A page that is printed needs no network, and the browser's own services would tell others that it ran: they are off,
# and what is left of them meets a proxy that does not answer. An address of this computer goes past no proxy either.
_OFFLINE = (
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-domain-reliability",
    "--disable-extensions",
    "--disable-sync",
    "--metrics-recording-only",
    "--no-first-run",
    "--proxy-bypass-list=<-loopback>",
    "--proxy-server=127.0.0.1:1",
)
_LONGEST = 120.0  # Seconds that the browser may take
# In the head of every page that this program writes, so that it replaces no page of anybody else.
_GENERATOR = b'<meta name="generator" content="bactrian">'


def check_report(path: Path) -> None:
    """Check the suffix of a report before the work for it begins.

    Raises:
        InputError: the suffix is neither .html, .json nor .pdf, or no browser can write a PDF.
    """
    page = path.with_suffix(".html")
    match path.suffix.lower():
        case ".html" | ".htm" | ".json":
            return
        case ".pdf":
            if _find_browser() is None:
                raise InputError(
                    "Chromium or Chrome writes the PDF, and neither is installed.",
                    where=str(path),
                    next=f"Install one, or write {page} and print that from a browser.",
                )
        case suffix:
            raise InputError(
                f"A report is not written as {suffix or 'a file without a suffix'}.",
                where=str(path),
                next=f"Name a file that ends in .html, .pdf or .json, such as {page}.",
            )


def check_own_report(path: Path) -> None:
    """Check a report that replaces one of before without being asked: as above, and only a page written here.

    Raises:
        InputError: the file is something else, or cannot be written.
    """
    check_report(path)
    if path.exists() and not _is_own(path):
        raise InputError(
            "This exists, and is no page that bactrian wrote.", where=str(path), next="Use another name."
        )
    check_target(path.absolute(), overwrite=True, is_file=True)


def write_report_file(path: Path, page: str, data: Mapping[str, Any]) -> None:
    """Write a report to ``path``: its ``page``, or its ``data`` as JSON.

    Raises:
        BactrianError: the browser cannot write the PDF.
    """
    match path.suffix.lower():
        case ".json":
            path.write_text(json.dumps(data), "utf-8")
        case ".pdf":
            path.write_bytes(_print_page(page))
        case _:
            path.write_text(page, "utf-8")


def _is_own(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return _GENERATOR in file.read(1024)


def _find_browser() -> str | None:
    return next((found for name in _BROWSERS if (found := shutil.which(name))), None)


def _print_page(page: str) -> bytes:
    """Return a page as PDF. The page allows neither scripts nor requests."""
    browser = _find_browser()
    with tempfile.TemporaryDirectory(prefix="bactrian-", ignore_cleanup_errors=True) as name:
        source, target = Path(name, "report.html"), Path(name, "report.pdf")
        source.write_text(page, "utf-8")
        options = ["--headless", "--disable-gpu", "--no-pdf-header-footer", f"--user-data-dir={name}/profile"]
        options += _OFFLINE
        if os.geteuid() == 0:  # the browser's own sandbox does not work for root
            options.append("--no-sandbox")
        command = [browser or _BROWSERS[0], *options, f"--print-to-pdf={target}", source.as_uri()]
        reason = "it wrote nothing"
        try:
            subprocess.run(command, check=False, capture_output=True, timeout=_LONGEST)  # noqa: S603 - fixed
            return target.read_bytes()
        except subprocess.TimeoutExpired:
            reason = f"it took more than {_LONGEST:.0f} seconds"
        except OSError as error:
            reason = reason if isinstance(error, FileNotFoundError) and browser else str(error)
    raise BactrianError(
        f"The browser could not write the PDF: {reason}.",
        where=browser,
        next="Name a file that ends in .html, and print that from a browser.",
    )
