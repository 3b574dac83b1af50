"""``bactrian generate``: many sessions from one recipe."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Unpack, cast

from bactrian.api.dataset import build_run_order, run_order
from bactrian.cli.flags import SPEAKERS, Argument, SamplingFlags
from bactrian.cli.model_options import show_model_progress
from bactrian.cli.play_flags import check_critic_flags, split_models
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.view.forecast_view import show_forecast
from bactrian.cli.view.progress_view import ProgressView, choose_progress_view
from bactrian.errors import BactrianError, InputError
from bactrian.options import (
    FORECAST,
    JSON,
    LIMIT,
    QUIET,
    RUN,
    SET,
    AgentModels,
    Budget,
    GenerateOptions,
    Option,
)
from bactrian.recipes.load import load_recipe
from bactrian.runs.forecast import forecast_run
from bactrian.runs.progress import RunProgress
from bactrian.runs.runner import Runner
from bactrian.runs.wiring import RunOrder, tune_gc

SOME_FAILED = 4


class GenerateFlags(GenerateOptions, AgentModels, total=False):
    """The options of Python's :func:`bactrian.generate`, and a model for each agent."""


def generate(
    recipe: Annotated[str, Argument("Name of a built-in recipe, or a .toml file.")],
    run_file: Annotated[Path, RUN, "File of the run; the same command resumes it."],
    settings: Annotated[
        list[str] | None, SET, "Change the recipe, as in task.count=5. Can be repeated."
    ] = None,
    limit: Annotated[int | None, LIMIT, "Only the first N jobs of the recipe."] = None,
    budget: Budget = None,
    forecast: Annotated[bool, FORECAST, "Estimate the remaining cost, without any request."] = False,
    fork: Annotated[
        Path | None, Option("--fork", "Begin this new run with the unchanged lists of --run.")
    ] = None,
    json: Annotated[bool, JSON, "Write progress as JSON lines."] = False,
    quiet: Annotated[bool, QUIET, "Write only warnings and errors."] = False,
    sampling: Annotated[Mapping[str, Any], SamplingFlags((*SPEAKERS, "lister"))] = MappingProxyType({}),
    **flags: Unpack[GenerateFlags],
) -> None:
    """Generate the conversations of a recipe, or resume an interrupted run."""
    if fork is not None and fork.absolute() == run_file.absolute():
        raise InputError(
            "A run cannot be forked into itself.", where=str(fork), next="Give --fork a new name."
        )
    model, models, options = split_models(flags)
    origin = run_file if fork else None
    order = build_run_order(
        load_recipe(recipe, settings or ()),
        fork or run_file,
        model,
        models,
        limit=limit,
        budget=None if forecast else budget,
        options=cast("GenerateOptions", {**options, "origin": origin, "parameters": sampling}),
    )
    critic = (order.plan.recipe.critic and order.plan.recipe.critic.role) or order.plan.models.get("critic")
    check_critic_flags(critic, models, sampling, "Give the recipe a critic, too: --set critic.role=ROLE")
    order = replace(order, access=show_model_progress(order.access))
    if forecast:
        run_async(_forecast(order, json=json), resume="Nothing was spent.")
    stop_control = StopControl()
    work = watch_run(order, choose_progress_view(json=json, quiet=quiet), stop_control)
    run_async(
        work, resume=f"All results so far are stored. To resume: {_command()}", stop_control=stop_control
    )


def _command() -> str:
    return shlex.join(["bactrian", *sys.argv[1:]])


async def watch_run(order: RunOrder, ledger: ProgressView, stop_control: StopControl) -> int:
    """Run the remaining jobs, and return the exit code."""
    prepared: list[Runner] = []

    def begin(work: Runner) -> None:
        prepared.append(work)
        stop_control.stop = work.stop

    tune_gc()
    try:
        progress = await run_order(order, begin, lambda work: _shown(ledger, work))
    finally:
        for work in prepared:
            ledger.close(work.progress, order.run)
    return _exit_code(progress)


async def _shown(ledger: ProgressView, work: Runner) -> None:
    """Show the progress until the reader of the output leaves; then finish what is in flight."""
    try:
        await ledger.watch(work.progress)
    except BactrianError:
        await work.stop()


def _exit_code(progress: RunProgress) -> int:
    return SOME_FAILED if progress.failed or progress.open or progress.short else 0


async def _forecast(order: RunOrder, *, json: bool) -> int:
    show_forecast(await forecast_run(order), json=json)
    return 0
