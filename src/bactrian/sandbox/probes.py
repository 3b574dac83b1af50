"""Hostile programs of our own (``hostile.toml``), to see what a sandbox contains."""

from __future__ import annotations

import functools
import os
import socket
import sys
import tempfile
import tomllib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.resources import files
from itertools import chain, islice
from pathlib import Path

from bactrian.errors import SandboxError
from bactrian.sandbox.programs import run
from bactrian.sandbox.tiers import MIB, Limits, Outcome, Tier

# Small limits, so that programs that reach them do so soon.
LIMITS = Limits(cpu=2, wall=6, memory=256 * MIB, disk=16 * MIB, disk_files=1000, output=64 << 10)
_BEGUN = "the program has begun"
_ESCAPED = "ESCAPED"


@dataclass(frozen=True, slots=True)
class Probe:
    """A hostile program."""

    name: str
    tries: str  # what it tries, as "to …"
    code: str
    endings: Sequence[str] = ()  # the required ending; empty if any ending is fine
    beyond: Sequence[str] = ()  # Tiers that do not contain it
    machine: str = ""  # the architecture that it is for; empty for all
    wall: float = LIMITS.wall  # seconds until it is ended; fewer for a program that only waits
    cpu: float = LIMITS.cpu  # seconds of CPU time until it is ended; fewer for a program that only computes


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The result of a probe."""

    probe: Probe
    held: bool
    how: str  # how it ended, and in what it succeeded


@dataclass(frozen=True, slots=True)
class Bait:
    """What probes are after: a file of the user, and a server on this computer."""

    secret: Path
    server: socket.socket

    @property
    def port(self) -> int:
        """Port of the server."""
        return self.server.getsockname()[1]

    def is_touched(self) -> bool:
        """Return True if the file was changed, or the server was reached."""
        try:
            self.server.accept()[0].close()
        except BlockingIOError:
            content = self.secret.read_text("utf-8") if self.secret.exists() else ""
            return content != "secret" or self.secret.stat().st_mode & 0o777 != 0o644
        return True


@contextmanager
def provide_bait() -> Generator[Bait]:
    """Provide a file that every user of the computer may read, and a server."""
    with (
        tempfile.TemporaryDirectory(prefix="probe-") as folder,
        socket.create_server(("127.0.0.1", 0)) as server,
    ):
        server.setblocking(False)
        Path(folder).chmod(0o755)
        secret = Path(folder) / "secret.txt"
        secret.write_text("secret", "utf-8")
        secret.chmod(0o644)
        yield Bait(secret, server)


def load_probes() -> list[Probe]:
    """Return the probes for this machine."""
    rows = tomllib.loads(files("bactrian.sandbox").joinpath("hostile.toml").read_text("utf-8"))
    prelude = rows.pop("prelude")
    probes = [Probe(name, **{**row, "code": prelude + row["code"]}) for name, row in rows.items()]
    return [probe for probe in probes if probe.machine in ("", os.uname().machine)]


@functools.cache
def _list_packages() -> dict[str, list[str]]:
    """Return the folders of installed packages on this computer, each with some of their names."""
    known = [path for path in sys.path if path.endswith("-packages")]
    folders = [
        Path(os.__file__).parent.glob("*-packages"),
        Path("/usr").glob("lib*/py*/*-packages"),
        map(Path, known),
    ]
    return {
        str(folder): [path.name for path in islice(folder.iterdir(), 20)]
        for folder in chain(*folders)
        if folder.is_dir()
    }


def run_probe(probe: Probe, tier: Tier, bait: Bait) -> ProbeResult:
    """Run a probe in ``tier``. A probe that did not begin does not count: a broken sandbox would contain everything.

    Raises:
        SandboxError: the sandbox does not start.
    """
    packages = _list_packages()
    bait_lines = (
        f"SECRET, PORT, PARENT = {str(bait.secret)!r}, {bait.port}, {os.getpid()}\n"
        f"PACKAGES, NAMES = {list(packages)!r}, {sorted(set(chain(*packages.values())))!r}\n"
    )
    limits = replace(LIMITS, wall=probe.wall, cpu=probe.cpu)
    outcome = run(bait_lines + probe.code, limits=limits, tier=tier, name=f"{probe.name}.py")
    if _BEGUN not in outcome.stdout:
        raise SandboxError(f"The program {probe.name} did not begin.", where=f"tier {tier.name}")
    return ProbeResult(probe, *_judge(probe, outcome, bait))


def _judge(probe: Probe, outcome: Outcome, bait: Bait) -> tuple[bool, str]:
    escapes = [line for line in outcome.stdout.splitlines() if line.startswith(_ESCAPED)]
    if escapes:
        return False, escapes[0]
    if bait.is_touched():
        return False, "it changed a file outside, or reached the server"
    if probe.endings and outcome.ending not in probe.endings:
        return False, f"ended: {outcome.ending}"
    return True, outcome.ending
