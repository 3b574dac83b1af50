"""What a sandboxed process sees of the file system: a named list of files, and no package unless it is asked for."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bactrian.errors import SandboxError
from bactrian.sandbox.payload import ISOLATED

# What an interpreter may need beside its library: time zones, and the tables of the loader and of locales.
_SHARED = ("/etc/ld.so.cache", "/usr/lib/locale", "/usr/share/zoneinfo")
# What programs of the system need.
_SYSTEM = (
    "/usr", "/bin", "/sbin", "/etc/alternatives", "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib",
)  # fmt: skip
# Folders of installed packages, below a folder that is shown: they may hold the tests of a benchmark.
_PACKAGES = ("*-packages", "py*/*-packages", "lib*/py*/*-packages", "local/lib*/py*/*-packages")
# Prints the folders from which an isolated interpreter imports, and the libraries that its modules load.
_PROBE = """
import json, os, sys
from ctypes import CDLL, CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_size_t, c_void_p
class Library(Structure): _fields_ = [("address", c_void_p), ("name", c_char_p)]
folders = [path for path in sys.path if os.path.isdir(path)]
modules = [os.path.join(folder, name) for folder in folders for name in os.listdir(folder) if name.endswith(".so")]
for path in (*modules, "libgcc_s.so.1"):
    try: CDLL(path, os.RTLD_LAZY)
    except OSError: pass
names = set()
def note(library, size, data):
    names.add(os.fsdecode(library.contents.name or b""))
    return 0
CDLL(None).dl_iterate_phdr(CFUNCTYPE(c_int, POINTER(Library), c_size_t, c_void_p)(note), None)
print(json.dumps([sys.path, [name for name in names - set(modules) if os.path.isabs(name)]]))
"""


@dataclass(frozen=True, slots=True)
class FileView:
    """What a sandboxed process sees of the file system."""

    interpreter: str
    # Files and folders to show, or with False to cover, parents before what they hold
    mounts: Mapping[str, bool]
    reads: tuple[str, ...]  # the files and folders among them that it may read
    lists: tuple[str, ...]  # folders of which it may read the names of all files
    packages: tuple[str, ...] = ()  # Folders to import packages from, in addition to the standard library


@functools.cache
def find_view(*, packages: bool = False, programs: bool = False) -> FileView:
    """Return the files of this interpreter: itself, the standard library, and the shared libraries that it loads.

    Args:
        packages: True to show the packages of this environment, too.
        programs: True to show the system's programs, too.

    Raises:
        SandboxError: the interpreter does not start.
    """
    interpreter = os.path.realpath(getattr(sys, "_base_executable", "") or sys.executable)
    folders, libraries = _ask_interpreter(interpreter)
    modules = [path for folder in folders for path in _list_modules(Path(folder))]
    around = {str(Path(path).parent) for path in libraries}
    shown = _list_packages() if packages else ()
    # Modules of packages may load any library of the system; those of the standard library are known.
    wide = (*shown, *(around if packages else ()), *(_SYSTEM if programs else ()))
    reads = dict.fromkeys((interpreter, *modules, *libraries, *_SHARED, *wide))
    known = [path for path in (interpreter, *folders, *around, *_SHARED, *wide) if Path(path).exists()]
    covers = {path for folder in known for path in _find_packages(folder)} - set(shown)
    mounts: dict[str, bool] = {}
    for path in sorted({*known, *covers}):
        above = [parent for parent in mounts if path.startswith(f"{parent}/")]
        # Each mount takes bubblewrap a millisecond: what is shown by its folder is not mounted again.
        if path in covers or not above or not mounts[above[-1]]:
            mounts[path] = path not in covers
    return FileView(
        interpreter, mounts, tuple(path for path in reads if Path(path).exists()), tuple(folders), shown
    )


@functools.cache
def _ask_interpreter(interpreter: str) -> tuple[list[str], list[str]]:
    """Return the folders of the standard library, and the paths of shared libraries.

    A program that cannot be listed otherwise is asked: distributions differ in where they keep them.
    """
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter
            (interpreter, *ISOLATED, "-c", _PROBE),
            capture_output=True,
            check=True,
            cwd="/",
            env={},
            timeout=60,
        )
        folders, libraries = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise SandboxError(
            f"The interpreter does not tell which files it needs: {error}.", where=interpreter
        ) from error
    return [path for path in folders if Path(path).exists()], sorted(libraries)


def _list_modules(folder: Path) -> list[str]:
    """Return what a folder of the standard library holds of it, and nothing that was installed beside it."""
    if folder.is_file() or folder.name == "lib-dynload":
        return [str(folder)]
    return [
        str(path)
        for path in folder.iterdir()
        if path.name.partition(".")[0] in sys.stdlib_module_names
        or path.name.startswith(("_sysconfig", "__pycache__"))
    ]


def _list_packages() -> tuple[str, ...]:
    paths = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))
    return tuple(dict.fromkeys(map(os.path.realpath, paths)))


def _find_packages(folder: str) -> Iterable[str]:
    for pattern in _PACKAGES:
        for path in Path(folder).glob(pattern):
            if path.is_dir() and not path.is_symlink():
                yield str(path)
