"""``bactrian sandbox``: runs one program in a sandbox, or serves one to another computer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

from bactrian.cli.flags import Argument
from bactrian.cli.terminal.console import say
from bactrian.errors import InputError
from bactrian.options import CPU, JSON, TIER, Option
from bactrian.records.text import to_printable
from bactrian.sandbox.orders import provide_sandbox
from bactrian.sandbox.outcome import MIB, Limits, Outcome
from bactrian.sandbox.programs import find_tier
from bactrian.sandbox.programs import run as run_program
from bactrian.sandbox.tiers import TIERS, Unsafe

_LARGEST = 16 * MIB


def run(
    program: Annotated[Path, Argument(metavar="FILE.py", help="The Python program.")],
    cpu: Annotated[float, CPU] = 10.0,
    wall: Annotated[float, Option("--wall", "Seconds from start to end.", min=0.1)] = 60.0,
    memory: Annotated[int, Option("--memory", "MiB of memory of each process.", min=128)] = 1024,
    processes: Annotated[
        int, Option("--processes", "Processes at once; more than 1 needs bubblewrap.", min=1)
    ] = 1,
    disk: Annotated[int, Option("--disk", "MiB of the scratch folder.", min=1)] = 64,
    output: Annotated[int, Option("--output", "KiB of output.", min=1)] = 1024,
    packages: Annotated[
        bool, Option("--packages", "Let the program import the packages of this environment.")
    ] = False,
    tier: Annotated[
        str | None,
        TIER,
        "bubblewrap, landlock, docker:IMAGE, podman:IMAGE, remote:COMMAND. Default: the strongest here.",
    ] = None,
    unsafe_exec: Annotated[
        bool,
        Option(
            "--unsafe-exec", "Run without containment, with all your rights. Limits only.", variable=False
        ),
    ] = False,
    as_json: Annotated[bool, JSON, "Write how it ended as JSON."] = False,
) -> None:
    """Run a Python program in a sandbox, and say how it ended and what it tried."""
    if unsafe_exec and tier:
        raise InputError("--unsafe-exec uses no sandbox.", where="--tier", next="Use one of the two options.")
    limits = Limits(
        cpu=cpu, wall=wall, memory=memory * MIB, processes=processes, disk=disk * MIB, output=output << 10
    )
    outcome = run_program(
        _read_program(program),
        limits=limits,
        tier=Unsafe() if unsafe_exec else find_tier(tier),
        packages=packages,
        name=program.name,
    )
    if as_json:
        print(json.dumps(outcome.to_json()))
    else:
        _show(outcome)
    raise SystemExit(0 if outcome.ending == "ok" else 1)


def serve(
    tier: Annotated[
        str | None,
        TIER,
        "bubblewrap or landlock. Default: the strongest that works here.",
    ] = None,
) -> None:
    """Serve one sandbox through standard input and standard output, for `--tier 'remote:ssh HOST …'`."""
    tiers = [local for local in TIERS if tier in (None, local.name)]
    if not tiers:
        raise InputError(
            f"{tier!r} is not a tier of this computer.",
            where="--tier",
            next=f"Use one of: {', '.join(local.name for local in TIERS)}.",
        )
    provide_sandbox(tiers)


def _read_program(path: Path) -> str:
    """Return the source.

    Raises:
        InputError: the file is not text, or too large.
    """
    with path.open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise InputError(
            f"The program is larger than {_LARGEST:,} bytes.",
            where=str(path),
            next="Give a smaller file, which reads its data from others.",
        )
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InputError(
            "The program is not UTF-8 text.", where=str(path), next="Save it as UTF-8."
        ) from None


def _show(outcome: Outcome) -> None:
    """Print what the program wrote to where it wrote it, and a summary to standard error."""
    sys.stdout.write(to_printable(outcome.stdout))
    sys.stdout.flush()
    sys.stderr.write(to_printable(outcome.stderr))
    code = outcome.signal or f"exit code {outcome.exit_code}"
    used = f"{outcome.cpu:.2f} s CPU · {outcome.wall:.2f} s · {outcome.memory / MIB:.0f} MiB"
    lines = [f"{outcome.ending} ({code}) · {used} · tier {outcome.tier}"]
    if outcome.refused:
        tried = ", ".join(f"{name} ×{count}" for name, count in sorted(outcome.refused.items()))
        lines.append(f"refused: {tried}")
    if outcome.wrote:
        names = [to_printable(f"{name} ({size:,} bytes)") for name, size in list(outcome.wrote.items())[:10]]
        more = f" and {len(outcome.wrote) - 10} more" if len(outcome.wrote) > 10 else ""
        lines.append(f"wrote: {', '.join(names)}{more}")
    for line in lines:
        say(line)
