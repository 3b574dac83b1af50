"""Tiers: the ways to contain a program, here from the strongest to none, in a container, and behind a command."""

from __future__ import annotations

import secrets
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from bactrian.errors import InputError
from bactrian.sandbox.outcome import MIB, Limits
from bactrian.sandbox.payload import ISOLATED, build_bundle, write_boot
from bactrian.sandbox.view import FileView

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
