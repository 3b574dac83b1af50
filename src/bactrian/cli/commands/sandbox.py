"""``bactrian sandbox``: runs one program in a sandbox, or serves one to another computer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from bactrian.cli.flags import Argument
from bactrian.cli.terminal.console import say
from bactrian.errors import InputError
from bactrian.options import CPU, JSON, OUT, OVERWRITE, PROCESSES, TIER, Option
from bactrian.records.text import to_line, to_printable, write_count
from bactrian.sandbox.kept_files import check_folder, keep_files
from bactrian.sandbox.orders import provide_sandbox
from bactrian.sandbox.programs import find_tier
from bactrian.sandbox.programs import run as run_program
from bactrian.sandbox.tiers import MIB, TIERS, Limits, Outcome, Unsafe

_LARGEST = 16 * MIB
_SHOWN = 10  # most files that are named


def run(
    program: Annotated[Path, Argument(metavar="FILE.py", help="The Python program.")],
    cpu: Annotated[float, CPU] = 10.0,
    wall: Annotated[float, Option("--wall", "Seconds from start to end.", min=0.1)] = 60.0,
    memory: Annotated[
        int, Option("--memory", "MiB of memory, of each process and of all together.", min=128)
    ] = 1024,
    processes: Annotated[int, PROCESSES, "Processes at once; more than 1 needs bubblewrap."] = 1,
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
    out: Annotated[Path | None, OUT, "Folder that keeps the files which the program writes."] = None,
    overwrite: Annotated[bool, OVERWRITE, "Let --out be a folder with files, and replace those."] = False,
    as_json: Annotated[bool, JSON, "Write how it ended as JSON."] = False,
) -> None:
    """Run a Python program in a sandbox, and say how it ended and what it tried."""
    if overwrite and out is None:
        raise InputError("--overwrite needs --out.", where="--overwrite", next="Name a folder by --out.")
    if unsafe_exec and tier:
        raise InputError("--unsafe-exec uses no sandbox.", where="--tier", next="Use one of the two options.")
    limits = Limits(
        cpu=cpu, wall=wall, memory=memory * MIB, processes=processes, disk=disk * MIB, output=output << 10
    )
    code = _read_program(program)
    if out is not None:
        check_folder(out, overwrite=overwrite)
    outcome = run_program(
        code,
        limits=limits,
        tier=Unsafe() if unsafe_exec else find_tier(tier),
        packages=packages,
        collect=0 if out is None else limits.disk,
        name=program.name,
    )
    faults: dict[str, str] = {}
    if out is not None:
        faults = {
            name: "it is too large" if size else "it is no file that can be read"
            for name, size in outcome.wrote.items()
            if name not in outcome.files
        }
        faults |= keep_files(out, outcome.files, overwrite=overwrite)
    if as_json:
        kept = {} if out is None else {"out": str(out), "not_kept": faults}
        print(json.dumps({**outcome.to_json(), **kept}))
    else:
        _show(outcome)
        _show_files(outcome, out, faults)
    raise SystemExit(0 if outcome.ending == "ok" and not faults else 1)


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
    # Frames are written past Python, to where the process has standard output.
    os.dup2(sys.stdout.fileno(), 1)
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
        lines.append(
            f"refused: {_list_shown([f'{name} ×{count}' for name, count in sorted(outcome.refused.items())])}"
        )
    for line in lines:
        say(line)


def _show_files(outcome: Outcome, out: Path | None, faults: Mapping[str, str]) -> None:
    """Say which files the program wrote, and whether they are kept."""
    for name, why in list(faults.items())[:_SHOWN]:
        say(to_line(f"not kept: {name}: {why}"))
    if not outcome.wrote:
        return
    sizes = [
        f"{name} ({write_count(size, 'byte')})" for name, size in outcome.wrote.items() if name not in faults
    ]
    end = "not kept; --out FOLDER keeps files" if out is None else f"kept in {out}"
    say(to_line(f"wrote: {_list_shown(sizes) or 'nothing else'} – {end}"))


def _list_shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
