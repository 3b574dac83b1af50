"""``bactrian generate``: many sessions from one recipe."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

from bactrian import options as opts
from bactrian.cli.flags import SPEAKERS, Argument, SamplingFlags
from bactrian.errors import InputError

if TYPE_CHECKING:
    from bactrian.runs.wiring import RunOrder


class GenerateFlags(opts.GenerateOptions, opts.AgentModels, total=False):
    """The options of Python's :func:`bactrian.generate`, and a model for each agent."""


_OF_THE_CRITIC = ("models.critic", "parameters.critic")


def generate(
    recipe: Annotated[str, Argument("Name of a built-in recipe, or a .toml file.")],
    run_file: Annotated[Path, opts.RUN, "File of the run; the same command resumes it."],
    settings: Annotated[
        list[str] | None,
        opts.SET,
        "Change the recipe, as in task.count=5, or name a .toml file of changes. Can be repeated.",
    ] = None,
    limit: Annotated[int | None, opts.LIMIT, "Only the first N jobs of the recipe."] = None,
    budget: opts.Budget = None,
    forecast: Annotated[bool, opts.FORECAST, "Estimate the remaining cost, without any request."] = False,
    pilot: Annotated[
        int | None,
        opts.Option(
            "--pilot",
            "With --forecast: play N jobs, at least 10, which are kept, and measure what the others will cost.",
            min=10,
        ),
    ] = None,
    fork: Annotated[
        Path | None, opts.Option("--fork", "Begin this new run with the unchanged lists of --run.")
    ] = None,
    json: Annotated[bool, opts.JSON, "Write progress as JSON lines."] = False,
    quiet: Annotated[bool, opts.QUIET, "Write only warnings and errors."] = False,
    sampling: Annotated[Mapping[str, Any], SamplingFlags((*SPEAKERS, "lister"))] = MappingProxyType({}),
    **flags: Unpack[GenerateFlags],
) -> None:
    """Generate the conversations of a recipe, or resume an interrupted run."""
    # Imported here, so that the help does not wait for the engine.
    from bactrian.api.dataset import build_run_order
    from bactrian.cli.model_options import show_model_progress, split_models
    from bactrian.cli.run_async import StopControl, run_async
    from bactrian.cli.view.progress_view import choose_progress_view, forecast_order, watch_run
    from bactrian.recipes.load import load_recipe
    from bactrian.runs.forecast import choose_pilot

    if pilot is not None and not forecast:
        raise InputError("A pilot is for a forecast.", where="--pilot", next="Add --forecast.")
    if fork is not None and fork.absolute() == run_file.absolute():
        raise InputError(
            "A run cannot be forked into itself.", where=str(fork), next="Give --fork a new name."
        )
    model, models, options = split_models(flags)
    if fork and "origin" in options:
        raise InputError("A fork has the lists of --run.", where="--lists", next="Leave it out.")
    origin = run_file if fork else options.get("origin")
    order = build_run_order(
        load_recipe(recipe, settings or ()),
        fork or run_file,
        model,
        models,
        limit=limit,
        budget=None if forecast and pilot is None else budget,
        options=cast("opts.GenerateOptions", {**options, "origin": origin, "parameters": sampling}),
    )
    critic = (order.plan.recipe.critic and order.plan.recipe.critic.role) or order.plan.models.get("critic")
    if critic is None and any(text.startswith(_OF_THE_CRITIC) for text in settings or ()):
        raise InputError(
            "This is for the critic, and there is no critic.",
            where=f"--set {_OF_THE_CRITIC[0]}",
            next="Give the recipe a critic, too: --set critic.role=ROLE",
        )
    order = replace(order, access=show_model_progress(order.access))
    if forecast and pilot is None:
        run_async(forecast_order(order, json=json, pilot=True), resume="Nothing was spent.")
    stop_control = StopControl()
    view = choose_progress_view(json=json, quiet=quiet, noun="" if pilot is None else "pilot conversation")
    work = watch_run(order if pilot is None else choose_pilot(order, pilot), view, stop_control)
    if pilot is not None:
        work = _forecast_after(work, order, json=json)
    again = shlex.join(["bactrian", *sys.argv[1:]])
    run_async(work, resume=f"All results so far are stored. To resume: {again}", stop_control=stop_control)


async def _forecast_after(pilot: Coroutine[Any, Any, int], order: RunOrder, *, json: bool) -> int:
    """Play the pilot, and print what the rest of the run will cost by it."""
    from bactrian.cli.terminal.console import open_output
    from bactrian.cli.view.progress_view import forecast_order

    code = await pilot or await forecast_order(order, json=json, pilot=True)
    if not code and not json:
        open_output().print("The same command without --forecast and --pilot plays the rest.")
    return code
