"""Tiers: the ways to contain a program on this computer, from the strongest to none."""

from __future__ import annotations

import shutil
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from bactrian.errors import InputError

_LIBRARIES = (
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/usr/share/zoneinfo",
)
_PROGRAMS = ("/usr", "/bin", "/sbin", "/etc/alternatives")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True)
class FileView:
    """What a sandboxed process sees of the file system."""

    interpreter: str
    reads: tuple[str, ...]
    """Files and folders that it may read."""
    packages: tuple[str, ...] = ()
    """Folders to import packages from, in addition to the standard library."""


class Tier(Protocol):
    """Starts a command in a sandbox."""

    @property
    def name(self) -> str:
        """The name that users give."""
        ...

    @property
    def scratch(self) -> str:
        """The scratch folder, as the process sees it; empty for a temporary folder of this computer."""
        ...

    @property
    def limits_processes(self) -> bool:
        """True if a process and all its descendants can be ended with certainty."""
        ...

    def wrap(self, command: Sequence[str], view: FileView) -> list[str]:
        """Return the command that starts ``command`` in the sandbox.

        Raises:
            InputError: a program that the tier needs is not installed.
        """
        ...


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """Namespaces of its own by bubblewrap, with Landlock and seccomp inside."""

    name: str = "bubblewrap"
    scratch: str = "/scratch"
    limits_processes: bool = True

    def wrap(self, command: Sequence[str], view: FileView) -> list[str]:
        """Return the command that starts ``command`` under ``bwrap``."""
        program = shutil.which("bwrap", path="/usr/bin:/bin:/usr/local/bin")
        if program is None:
            raise InputError(
                "bubblewrap is not installed.", where="bwrap", next="Install it: apt-get install bubblewrap"
            )
        binds = [part for path in sorted(view.reads) for part in ("--ro-bind-try", path, path)]
        devices = [part for path in _DEVICES for part in ("--dev-bind-try", path, path)]
        # The worker mounts the scratch folder, to limit its number of files, and then drops the capability.
        return [
            program, "--unshare-all", "--unshare-user", "--die-with-parent", "--hostname", "sandbox",
            "--cap-add", "CAP_SYS_ADMIN", *binds, *devices, "--dir", self.scratch, "--chdir", "/", "--", *command,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class LandlockOnly:
    """Landlock and seccomp alone: no program is needed, and no namespaces."""

    name: str = "landlock"
    scratch: str = ""
    limits_processes: bool = False

    def wrap(self, command: Sequence[str], view: FileView) -> list[str]:  # noqa: ARG002
        """Return ``command``: it restricts itself."""
        return list(command)


@dataclass(frozen=True, slots=True)
class Unsafe:
    """No containment: programs run with the rights of the user. Limits of time, memory and output apply."""

    name: str = "unsafe"
    scratch: str = ""
    limits_processes: bool = False

    def wrap(self, command: Sequence[str], view: FileView) -> list[str]:  # noqa: ARG002
        """Return ``command``."""
        return list(command)


TIERS: tuple[Tier, ...] = (Bubblewrap(), LandlockOnly())
"""The tiers that contain hostile programs, the strongest first."""


def find_view(*, packages: bool = False, programs: bool = False) -> FileView:
    """Return the files of this interpreter.

    Args:
        packages: True to show the packages of this environment, too.
        programs: True to show the system's programs, too.
    """
    interpreter = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
    prefix = Path(sys.base_prefix).resolve()
    own = (prefix / "lib",) if prefix in (Path("/usr"), Path("/usr/local")) else (prefix,)
    shown = (Path(sysconfig.get_path("purelib")), Path(sysconfig.get_path("platlib"))) if packages else ()
    folders = tuple(dict.fromkeys(str(path.resolve()) for path in shown))
    paths = (*map(str, own), str(interpreter), *_LIBRARIES, *folders, *(_PROGRAMS if programs else ()))
    return FileView(str(interpreter), tuple(dict.fromkeys(paths)), folders)
