"""What a sandboxed program may use and how it ended, and the tiers that contain it, from the strongest to none."""

from __future__ import annotations

import functools
import json
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from math import ceil, isfinite
from pathlib import Path
from typing import Any, Literal

from bactrian.errors import InputError, SandboxError
from bactrian.sandbox.payload import ISOLATED, build_bundle, write_boot

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """What a sandboxed program may use.

    Raises:
        InputError: a value is out of range.
    """

    cpu: float = 10.0
    """Seconds of CPU time of all processes and threads together, with the start of the interpreter."""
    wall: float = 60.0
    """Seconds from start to end, for programs that wait. Generous, so that a busy machine changes no result."""
    memory: int = 1024 * MIB
    """Bytes of address space of each process, and of memory of all together; pages that they share count once."""
    processes: int = 1
    """Processes at once. More than 1 needs bubblewrap."""
    threads: int = 32
    """Threads at once, in addition to the processes."""
    disk: int = 64 * MIB
    """Bytes in the scratch folder."""
    disk_files: int = 4096
    """Files in the scratch folder."""
    output: int = MIB
    """Bytes of standard output and standard error together."""
    answer: int = 8 * MIB
    """Bytes of one value that a sandboxed function returns."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if not (isfinite(value) and value > 0):
                raise InputError(
                    f"The limit {limit.name} must be more than 0, not {value}.",
                    where="the limits of the sandbox",
                    next="Give a positive number.",
                )
        if self.memory < 128 * MIB:
            raise InputError(
                f"{self.memory:,} bytes of memory are too few for an interpreter.",
                where="the limits of the sandbox",
                next="Allow at least 128 MiB.",
            )


# ``ok``: exit code 0. ``error``: another exit code. ``time``, ``memory``, ``output`` and ``disk``: that
# limit was reached. ``killed``: ended by a signal. ``refused``: failed after calls that the sandbox
# refused.
OutcomeEnding = Literal["ok", "error", "time", "memory", "output", "disk", "killed", "refused"]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a sandboxed program ended, and what it did."""

    ending: OutcomeEnding
    exit_code: int | None
    """None if a signal ended it."""
    signal: str
    """Name of the signal that ended it; empty if none did."""
    stdout: str
    stderr: str
    cpu: float
    """Seconds of CPU time of all its processes, with the start of the interpreter."""
    wall: float
    """Seconds."""
    memory: int
    """Peak of resident memory in bytes."""
    tier: str
    refused: Mapping[str, int] = field(default_factory=dict[str, int])
    """System calls that were refused, with their numbers."""
    wrote: Mapping[str, int] = field(default_factory=dict[str, int])
    """Files in the scratch folder at the end, with their sizes in bytes."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Content of those files, if it was asked for."""

    def to_json(self) -> dict[str, Any]:
        """Return the outcome without the content of files."""
        content = asdict(self)
        del content["files"]
        return content


@dataclass(frozen=True, slots=True)
class Artefact:
    """A regular file in a scratch folder."""

    name: str  # relative to the folder, with ``/`` between its parts. Not safe as a path of this computer.
    size: int
    content: bytes | None  # None if it was not asked for, or is too large


# How a program ended that the supervisor ended, by its reason.
_STOPPED: dict[str, OutcomeEnding] = {
    "wall": "time", "cpu": "time", "memory": "memory", "disk": "disk", "calls": "refused", "asked": "killed",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ExitReport:
    """What the supervisor says of a sandbox that has ended."""

    status: int  # As ``os.wait`` returns it
    stopped: str  # why the supervisor ended it; empty if it ended by itself
    cpu: float
    memory: int
    wall: float
    refused: Mapping[str, int]

    def decide_exit(self) -> tuple[int | None, str]:
        """Return the exit code, or None and the name of the signal."""
        code = os.waitstatus_to_exitcode(self.status)
        # bubblewrap reports a signal as a shell does.
        number = -code if code < 0 else code - 128 if code > 128 else 0
        if number in signal.valid_signals():
            return None, signal.Signals(number).name
        return code, ""

    def decide_ending(self, limits: Limits, overflow: bool, error: str) -> OutcomeEnding:
        """Return how the program ended. ``error`` is the type of its last exception, by its own account."""
        code, name = self.decide_exit()
        if overflow:
            return "output"
        if self.stopped in _STOPPED:
            return _STOPPED[self.stopped]
        if name in ("SIGKILL", "SIGXCPU") and self.cpu >= limits.cpu:
            return "time"
        if name:
            return "killed"
        if code == 0:
            return "ok"
        if error == "MemoryError":
            return "memory"
        return "refused" if self.refused else "error"


# What a sandboxed process sees of the file system: a named list of files, and no package unless it is asked for.


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


# Tiers: the ways to contain a program, here from the strongest to none, in a container, and behind a command.


_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, slots=True)
class Tier:
    """A way to contain a program."""

    name: str  # the name that users give
    # The scratch folder, as the process sees it; empty for a temporary folder of this computer.
    scratch: str = ""
    limits_processes: bool = False  # True if a process and all its descendants can be ended with certainty

    def wrap(self, command: Sequence[str], view: FileView) -> list[str]:  # noqa: ARG002
        """Return the command that starts ``command`` in the sandbox.

        Raises:
            InputError: a program that the tier needs is not installed.
        """
        return list(command)


@dataclass(frozen=True, slots=True)
class Bubblewrap(Tier):
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
        binds = [
            part
            for path, shown in view.mounts.items()
            for part in (("--ro-bind-try", path, path) if shown else ("--tmpfs", path))
        ]
        devices = [part for path in _DEVICES for part in ("--dev-bind-try", path, path)]
        # The worker mounts the scratch folder, to limit its number of files, and then drops the capability.
        return [
            program, "--unshare-all", "--unshare-user", "--die-with-parent", "--hostname", "sandbox",
            "--cap-add", "CAP_SYS_ADMIN", *binds, *devices, "--dir", self.scratch, "--chdir", "/", "--", *command,
        ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class LandlockOnly(Tier):
    """Landlock and seccomp alone: no program is needed, and no namespaces."""

    name: str = "landlock"


@dataclass(frozen=True, slots=True)
class Unsafe(Tier):
    """No containment: programs run with the rights of the user. Limits of time, memory and output apply."""

    name: str = "unsafe"


# The tiers that contain hostile programs, the strongest first.
TIERS: tuple[Tier, ...] = (Bubblewrap(), LandlockOnly())


IMAGE = "python:3.12-slim"  # the image of a container, unless another one is named
_OWN_MEMORY = 256 * MIB  # bytes for the processes around the program, and the messages that they read
_OWN_TASKS = 8
_OWN_CPU = 60
_BARE = "-bare"
_SCRATCH = "/tmp"  # noqa: S108 - of the container, which nobody else uses


@dataclass(frozen=True, slots=True)
class RemoteStart:
    """How to start the far side of a sandbox, and how to end it by force."""

    command: tuple[str, ...]
    greeting: bytes = b""  # what to send before the first message
    end: tuple[str, ...] = ()  # A command that ends it; empty if it ends with ``command``
    hint: str = "Run its command by hand to see why."  # what to do if it does not start


@dataclass(frozen=True, slots=True)
class ContainerTier(Tier):
    """A container of Docker or Podman for each sandbox, with Landlock and seccomp inside.

    Its name is ``docker:IMAGE`` or ``podman:IMAGE``. With ``-bare`` before the colon it does without Landlock and
    seccomp, for kernels that lack them.
    """

    def prepare(self, limits: Limits) -> RemoteStart:
        """Return the command line of a container.

        Raises:
            InputError: the program is not installed.
        """
        kind, _, image = self.name.partition(":")
        kind, bare = kind.removesuffix(_BARE), kind.endswith(_BARE)
        program = find_program(kind)
        name = f"bactrian-{secrets.token_hex(8)}"
        # A user of its own, so that limits on a user's processes count no other container's.
        user = 10_000 + secrets.randbelow(50_000)
        tasks = limits.processes + limits.threads + _OWN_TASKS
        memory = limits.memory + limits.disk + _OWN_MEMORY
        # Of each process, in case that the supervisor inside is stopped
        cpu = 2 * ceil(limits.cpu) + _OWN_CPU
        command = [
            program, "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--log-driver", "none",
            "--network", "none", "--ipc", "none", "--read-only", "--no-healthcheck",
            "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--user", f"{user}:{user}", "--memory", str(memory), "--memory-swap", str(memory),
            "--pids-limit", str(tasks), "--ulimit", "core=0:0",
            "--ulimit", "nofile=1024:1024", "--ulimit", f"nproc={tasks}:{tasks}", "--ulimit", f"cpu={cpu}:{cpu}",
            "--tmpfs", f"{_SCRATCH}:rw,nosuid,nodev,mode=1777,size={limits.disk}", "--workdir", "/",
            "--env", f"TMPDIR={_SCRATCH}", "--env", f"HOME={_SCRATCH}", "--entrypoint", "python3",
            image, *ISOLATED, "-c", write_boot("Unsafe" if bare else "LandlockOnly"),
        ]  # fmt: skip
        hint = f"Start {kind}, and fetch the image: {kind} pull {image}"
        if not bare:
            hint += f". Where containers have no Landlock, --tier {kind}{_BARE}:{image} trusts the container alone."
        return RemoteStart(tuple(command), build_bundle(), (program, "kill", name), hint)


@dataclass(frozen=True, slots=True)
class CommandTier(Tier):
    """A sandbox behind a command that speaks the protocol. Its name is ``remote:ssh HOST bactrian sandbox serve``."""

    limits_processes: bool = True  # Assumed: the far side refuses what it cannot enforce

    def prepare(self, limits: Limits) -> RemoteStart:  # noqa: ARG002
        """Return the command.

        Raises:
            InputError: its program is not installed.
        """
        program, *arguments = shlex.split(self.name.removeprefix("remote:"))
        return RemoteStart((find_program(program), *arguments))


def read_tier(name: str) -> ContainerTier | CommandTier | None:
    """Return the tier of that name; None if it names none of these.

    Raises:
        InputError: the name lacks its command.
    """
    kind, _, rest = name.partition(":")
    match kind:
        case "docker" | "podman" | "docker-bare" | "podman-bare":
            if rest.startswith("-"):
                raise InputError(f"{rest!r} is not an image.", option="tier", next=f"Write {kind}:IMAGE.")
            return ContainerTier(f"{kind}:{rest or IMAGE}")
        case "remote":
            try:
                command = shlex.split(rest)
            except ValueError as error:
                raise InputError(
                    f"The command cannot be read: {error}.", option="tier", next="Check its quotes."
                ) from error
            if not command:
                raise InputError(
                    "A remote sandbox needs a command.",
                    option="tier",
                    next="Write 'remote:ssh HOST bactrian sandbox serve'.",
                )
            return CommandTier(name)
        case _:
            return None


def find_program(name: str) -> str:
    """Return the path of a program.

    Raises:
        InputError: it is not installed.
    """
    path = shutil.which(name)
    if path is None:
        raise InputError(f"{name} is not installed.", option="tier", next="Install it, or use another tier.")
    return path
