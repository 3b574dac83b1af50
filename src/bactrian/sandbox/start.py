"""Starts a sandboxed process: on this computer, in a container, or behind a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from bactrian.sandbox.artefacts import Artefact
from bactrian.sandbox.orders import ProcessOrder
from bactrian.sandbox.outcome import ExitReport
from bactrian.sandbox.process import SandboxProcess
from bactrian.sandbox.remote.process import RemoteProcess
from bactrian.sandbox.remote.tiers import CommandTier, ContainerTier


class Process(Protocol):
    """A process in a sandbox, wherever that is. One thread at a time may use it."""

    @property
    def ended(self) -> bool:
        """True if the process has ended and was reported, or is lost."""
        ...

    @property
    def overflow(self) -> bool:
        """True if the process wrote more than it may."""
        ...

    def send(self, message: Mapping[str, object]) -> None:
        """Queue a message for the process; :meth:`pump` sends it."""
        ...

    def take_frames(self) -> list[dict[str, object]]:
        """Return the messages that have arrived since the last call. The program may have forged them."""
        ...

    def take_output(self) -> tuple[str, str]:
        """Return standard output and standard error since the last call."""
        ...

    def pump(self, stop: Callable[[], bool], deadline: float) -> bool:
        """Exchange data until ``stop()`` is true. Returns False if ``deadline`` (monotonic) comes first, or the end."""
        ...

    def collect(self, most: int) -> list[Artefact]:
        """Return the files of the scratch folder, with up to ``most`` bytes of their content, until :meth:`close`."""
        ...

    def stop(self) -> ExitReport:
        """End the process if it still runs, and return how it ended. Raises SandboxError if it is lost."""
        ...

    def wait(self) -> ExitReport:
        """Wait for the end of the process. Raises SandboxError if it is lost."""
        ...

    def close(self) -> None:
        """End the process and remove its scratch folder. Can be called twice, from any thread."""
        ...


def start_process(order: ProcessOrder) -> Process:
    """Start the process that ``order`` describes.

    Raises:
        SandboxError: the sandbox does not start.
        InputError: the order cannot be fulfilled on this tier, or a file's name leads out of the scratch folder.
    """
    match order.tier:
        case ContainerTier() | CommandTier() as tier:
            return RemoteProcess(order, tier)
        case _:
            return SandboxProcess(order)
