"""``bactrian evaluate emergence``: what the stages of a training know, one after another."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bactrian.api.emergence.known_answers import (
    KnownAnswerOrder,
    check_stages,
    measure_known_answers,
    prepare_studies,
)
from bactrian.api.generate import GenerateOptions
from bactrian.cli.commands.generate import SOME_FAILED, watch_run
from bactrian.cli.options import declare_option, flatten_groups
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.view.emergence import show_matrix
from bactrian.cli.view.progress import choose_progress_view
from bactrian.errors import InputError
from bactrian.evaluate.emergence.facts import FactSize
from bactrian.evaluate.emergence.study import NOTHING
from bactrian.generate.run import RunOrder
from bactrian.language.escape import to_json

_RESUME = "All results so far are stored; the same command goes on."


@dataclass(frozen=True, slots=True)
class KnownAnswerFlags:
    """The known-answer experiment."""

    known_answers: Annotated[
        bool,
        declare_option("--known-answers", "Train on invented facts, and ask for them: answers are exact."),
    ] = False
    base: Annotated[
        str,
        declare_option(
            "--base", "What is trained: `nothing` (made from nothing), `built-in`, a GGUF file, a folder."
        ),
    ] = NOTHING
    seeds: Annotated[
        int, declare_option("--seeds", "Repetitions, each with facts and training of its own.", min=1)
    ] = 3
    seed: Annotated[int, declare_option("--seed", "The first seed.", min=0)] = 1
    facts: Annotated[int, declare_option("--facts", "Facts taught in each domain.", min=2)] = FactSize().facts
    wordings: Annotated[
        int, declare_option("--wordings", "Wordings in which each fact is taught.", min=1, max=6)
    ] = FactSize().wordings
    write_only: Annotated[
        bool,
        declare_option("--write-only", "Only write facts, conversations and recipes; train and ask nothing."),
    ] = False


@flatten_groups
def emergence(
    stages: Annotated[
        list[str] | None,
        typer.Argument(metavar="[STAGES]...", help="Models to ask, the base first, then each stage."),
    ] = None,
    known: KnownAnswerFlags = KnownAnswerFlags(),
    out: Annotated[
        Path, declare_option("--out", "Folder of the experiment; the same command resumes it.")
    ] = Path("emergence"),
    base_url: Annotated[str | None, declare_option("--base-url", "Endpoint of openai:NAME.")] = None,
    concurrency: Annotated[
        int | None, declare_option("--concurrency", "Maximum number of concurrent requests.", min=1)
    ] = None,
    retry_failed: Annotated[
        bool, declare_option("--retry-failed", "Ask again where a model failed.")
    ] = False,
    as_json: Annotated[bool, declare_option("--json", "Write the report as JSON.")] = False,
) -> None:
    """Measure what each stage of a training adds (tables 2 and 6 of the paper)."""
    if not known.known_answers:
        raise InputError("Nothing is asked.", where="--known-answers", next="Add --known-answers.")
    options = GenerateOptions(base_url=base_url, concurrency=concurrency, retry_failed=retry_failed)
    order = KnownAnswerOrder(
        out.absolute(),
        tuple(range(known.seed, known.seed + (1 if stages else known.seeds))),
        FactSize(facts=known.facts, wordings=known.wordings),
        known.base,
        check_stages(stages, options) if stages else (),
        options,
    )
    if known.write_only:
        for study in prepare_studies(order):
            typer.echo(shlex.quote(str(out / f"seed-{study.seed}")))
        return
    stop_control = StopControl()
    work = _measure_known_answers(order, stop_control, as_json=as_json)
    run_async(work, resume=_RESUME, stop_control=stop_control)


async def _measure_known_answers(order: KnownAnswerOrder, stop_control: StopControl, *, as_json: bool) -> int:
    async def run(asked: RunOrder) -> int:
        print(f"Asking {asked.run.stem}, {asked.run.parent.parent.name}.", file=sys.stderr)
        return await watch_run(asked, choose_progress_view(json=False, quiet=True), stop_control)

    result = await measure_known_answers(order, run)
    stop_control.stop = None
    report = result.to_json()
    if as_json:
        print(to_json(report))
    else:
        show_matrix(report)
    return SOME_FAILED if result.unanswered else 0
