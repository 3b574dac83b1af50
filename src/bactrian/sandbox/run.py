"""Runs one program in a sandbox."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping, Sequence

from bactrian.errors import BactrianError, InputError, SandboxError
from bactrian.sandbox.limits import Limits
from bactrian.sandbox.orders import ProcessOrder
from bactrian.sandbox.outcome import Outcome
from bactrian.sandbox.remote.tiers import read_tier
from bactrian.sandbox.start import start_process
from bactrian.sandbox.tiers import TIERS, Tier


@functools.cache
def choose_tier() -> Tier:
    """Return the tier that the environment variable ``BACTRIAN_TIER`` names, else the strongest that works here.

    A program was run in it.

    Raises:
        SandboxError: no tier works, or not the one that is named.
        InputError: no tier has that name.
    """
    why: list[str] = []
    if named := os.environ.get("BACTRIAN_TIER"):
        tier = find_tier(named)
        if (fault := try_tier(tier)) is not None:
            raise fault
        return tier
    if sys.platform == "linux":
        for tier in TIERS:
            if (fault := try_tier(tier)) is None:
                return tier
            why.append(f"{tier.name}: {fault.what}")
        next_action = (
            "Install bubblewrap (apt-get install bubblewrap); `bactrian doctor --sandbox` shows more."
        )
    else:
        why.append("Sandboxes need Linux.")
        next_action = "Set BACTRIAN_TIER to docker:IMAGE, podman:IMAGE or remote:COMMAND."
    raise SandboxError(
        f"This computer has no sandbox, so code of a model is not run. {'; '.join(why)}", next=next_action
    )


def try_tier(tier: Tier) -> BactrianError | None:
    """Run a program in ``tier``. Return the reason if that fails, else None."""
    try:
        process = start_process(ProcessOrder(tier))
    except BactrianError as error:
        return error
    process.close()
    return None


def find_tier(name: str | None) -> Tier:
    """Return the tier of that name; the strongest that works if None.

    Raises:
        InputError: no tier has that name.
        SandboxError: no tier works.
    """
    if name is None:
        return choose_tier()
    if (remote := read_tier(name)) is not None:
        return remote
    tiers = {tier.name: tier for tier in TIERS}
    if name not in tiers:
        raise InputError(
            f"There is no tier {name!r}.",
            where="--tier",
            next=f"Use one of: {', '.join(tiers)}, docker:IMAGE, podman:IMAGE, remote:COMMAND.",
        )
    return tiers[name]


def run(
    code: str | Sequence[str],
    files: Mapping[str, bytes] | None = None,
    limits: Limits | None = None,
    *,
    tier: Tier | None = None,
    packages: bool = False,
    collect: int = 0,
    name: str = "program.py",
) -> Outcome:
    """Run a program in a sandbox and return how it ended.

    Args:
        code: Python source, or a program of the system with its arguments.
        files: Content of files in the scratch folder, the working folder of the program, by relative name.
        limits: Default: :class:`Limits`.
        tier: Default: the strongest that works.
        packages: True to let Python import the packages of this environment.
        collect: Most bytes of written files to return.
        name: The program's name in tracebacks.

    Raises:
        SandboxError: no sandbox works here, or this one did not start. Nothing was run.
        InputError: the tier cannot enforce the limits, or a file has a wrong name.
    """
    limits = limits or Limits()
    command = () if isinstance(code, str) else tuple(code)
    order = ProcessOrder(tier or choose_tier(), limits, files or {}, packages, command, limits.wall)
    process = start_process(order)
    try:
        message = {"do": "command", "command": command} if command else {"do": "program", "code": code}
        process.send({**message, "name": name})
        report = process.wait()
        error = next((str(frame["error"]) for frame in process.take_frames() if "error" in frame), "")
        stdout, stderr = process.take_output()
        found = process.collect(collect)
    finally:
        process.close()
    exit_code, signal = report.decide_exit()
    return Outcome(
        ending=report.decide_ending(limits, process.overflow, error),
        exit_code=exit_code,
        signal=signal,
        stdout=stdout,
        stderr=stderr,
        cpu=report.cpu,
        wall=report.wall,
        memory=report.memory,
        tier=order.tier.name,
        refused=report.refused,
        wrote={one.name: one.size for one in found},
        files={one.name: one.content for one in found if one.content is not None},
    )
