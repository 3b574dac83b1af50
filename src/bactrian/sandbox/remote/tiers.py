"""Tiers beyond this computer's own: containers of Docker and Podman, and sandboxes behind any command."""

from __future__ import annotations

import secrets
import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from bactrian.errors import InputError
from bactrian.sandbox.limits import MIB, Limits
from bactrian.sandbox.remote.bundle import BOOT, build_bundle
from bactrian.sandbox.tiers import FileView, Tier

IMAGE = "python:3.12-slim"
"""The image of a container, unless another one is named."""
_OWN_MEMORY = 128 * MIB
"""Bytes for the processes around the program."""
_OWN_TASKS = 8
_SCRATCH = "/tmp"  # noqa: S108 - of the container, which nobody else uses


@dataclass(frozen=True, slots=True)
class RemoteStart:
    """How to start the far side of a sandbox, and how to end it by force."""

    command: tuple[str, ...]
    greeting: bytes = b""
    """What to send before the first message."""
    end: tuple[str, ...] = ()
    """A command that ends it; empty if it ends with ``command``."""
    hint: str = "Run its command by hand to see why."
    """What to do if it does not start."""


class RemoteTier(Tier, Protocol):
    """A tier whose sandbox is reached through the standard streams of a command."""

    def prepare(self, limits: Limits) -> RemoteStart:
        """Return how to start a sandbox.

        Raises:
            InputError: the program is not installed.
        """
        ...


@dataclass(frozen=True, slots=True)
class ContainerTier:
    """A container of Docker or Podman for each sandbox, with Landlock and seccomp inside where its kernel has them."""

    program: Literal["docker", "podman"]
    image: str = IMAGE
    scratch: str = ""
    limits_processes: bool = False

    @property
    def name(self) -> str:
        """The name that users give."""
        return f"{self.program}:{self.image}"

    def wrap(self, command: Sequence[str], view: FileView) -> list[str]:  # noqa: ARG002
        """Return ``command``: the container wraps the whole far side."""
        return list(command)

    def prepare(self, limits: Limits) -> RemoteStart:
        """Return the command line of a container.

        Raises:
            InputError: the program is not installed.
        """
        program = find_program(self.program)
        name = f"bactrian-{secrets.token_hex(8)}"
        # A user of its own, so that limits on a user's processes count no other container's.
        user = 10_000 + secrets.randbelow(50_000)
        tasks = limits.processes + limits.threads + _OWN_TASKS
        memory = limits.memory + limits.disk + _OWN_MEMORY
        command = [
            program, "run", "--rm", "--interactive", "--name", name, "--pull", "never", "--log-driver", "none",
            "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--user", f"{user}:{user}", "--memory", str(memory), "--memory-swap", str(memory),
            "--pids-limit", str(tasks), "--ulimit", "core=0:0",
            "--ulimit", "nofile=1024:1024", "--ulimit", f"nproc={tasks}:{tasks}",
            "--tmpfs", f"{_SCRATCH}:rw,nosuid,nodev,mode=1777,size={limits.disk}", "--workdir", "/",
            "--env", f"TMPDIR={_SCRATCH}", "--env", f"HOME={_SCRATCH}", "--entrypoint", "python3",
            self.image, "-I", "-S", "-B", "-X", "utf8", "-c", BOOT,
        ]  # fmt: skip
        hint = f"Start {self.program}, and fetch the image: {self.program} pull {self.image}"
        return RemoteStart(tuple(command), build_bundle(), (program, "kill", name), hint)


@dataclass(frozen=True, slots=True)
class CommandTier:
    """A sandbox behind a command that speaks the protocol, such as ``ssh HOST bactrian sandbox serve``."""

    command: tuple[str, ...]
    scratch: str = ""
    limits_processes: bool = True
    """Assumed: the far side refuses what it cannot enforce."""

    @property
    def name(self) -> str:
        """The name that users give."""
        return f"remote:{shlex.join(self.command)}"

    def wrap(self, command: Sequence[str], view: FileView) -> list[str]:  # noqa: ARG002
        """Return ``command``: the far side wraps it."""
        return list(command)

    def prepare(self, limits: Limits) -> RemoteStart:  # noqa: ARG002
        """Return the command.

        Raises:
            InputError: its program is not installed.
        """
        return RemoteStart((find_program(self.command[0]), *self.command[1:]))


def read_tier(name: str) -> RemoteTier | None:
    """Return the tier of that name; None if it names none of these.

    Raises:
        InputError: the name lacks its command.
    """
    kind, _, rest = name.partition(":")
    match kind:
        case "docker" | "podman":
            if rest.startswith("-"):
                raise InputError(f"{rest!r} is not an image.", where="--tier", next=f"Write {kind}:IMAGE.")
            return ContainerTier(kind, rest or IMAGE)
        case "remote":
            try:
                command = tuple(shlex.split(rest))
            except ValueError as error:
                raise InputError(f"The command cannot be read: {error}.", where="--tier") from error
            if not command:
                raise InputError(
                    "A remote sandbox needs a command.",
                    where="--tier",
                    next="Write 'remote:ssh HOST bactrian sandbox serve'.",
                )
            return CommandTier(command)
        case _:
            return None


def find_program(name: str) -> str:
    """Return the path of a program.

    Raises:
        InputError: it is not installed.
    """
    found = shutil.which(name)
    if found is None:
        raise InputError(f"{name} is not installed.", where="--tier", next="Install it, or use another tier.")
    return found
