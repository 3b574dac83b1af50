"""``bactrian generate``: many sessions from one recipe."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bactrian.cli.options import declare_option
from bactrian.cli.pricing_options import read_prices
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.sampling_options import add_sampling_flags
from bactrian.errors import BactrianError, InputError

if TYPE_CHECKING:
    from bactrian.cli.view.progress import ProgressView
    from bactrian.generate.progress import RunProgress
    from bactrian.generate.run import PreparedRun, RunOrder

SOME_FAILED = 4


@add_sampling_flags
def generate(
    recipe: Annotated[str, typer.Argument(help="Name of a built-in recipe, or a .toml file.")],
    run_file: Annotated[Path, declare_option("--run", "The run; the same command takes it up again.")],
    model: Annotated[
        str | None,
        declare_option(
            "--model", "Model of every agent; see `bactrian models`. Default: the recipe's, or local."
        ),
    ] = None,
    assistant_model: Annotated[
        str | None, declare_option("--assistant-model", "Model of the AI assistant.")
    ] = None,
    user_model: Annotated[str | None, declare_option("--user-model", "Model of the AI user.")] = None,
    task_model: Annotated[
        str | None, declare_option("--task-model", "Model of specifier and planner.")
    ] = None,
    critic_model: Annotated[str | None, declare_option("--critic-model", "Model of the critic.")] = None,
    list_model: Annotated[
        str | None, declare_option("--list-model", "Model that is asked for lists.")
    ] = None,
    base_url: Annotated[str | None, declare_option("--base-url", "Endpoint of openai:NAME.")] = None,
    settings: Annotated[
        list[str] | None,
        declare_option("--set", "Change the recipe, as in task.count=5. Can be given often."),
    ] = None,
    limit: Annotated[
        int | None, declare_option("--limit", "Only the first N jobs of the recipe.", min=1)
    ] = None,
    concurrency: Annotated[
        int | None,
        declare_option(
            "--concurrency", "Most conversations at once. Default: 64; 4 on a local model.", min=1
        ),
    ] = None,
    budget: Annotated[
        float | None, declare_option("--budget", "Stop before the run has cost this many US dollars.", min=0)
    ] = None,
    max_tokens: Annotated[
        int | None, declare_option("--max-tokens", "Stop before the run has used this many tokens.", min=1)
    ] = None,
    price: Annotated[
        str | None,
        declare_option(
            "--price", "US dollars per million tokens, prompt/completion[/cached]. Default: a table."
        ),
    ] = None,
    requests_per_minute: Annotated[
        float | None, declare_option("--requests-per-minute", "Most requests a minute.", min=0.001)
    ] = None,
    tokens_per_minute: Annotated[
        float | None, declare_option("--tokens-per-minute", "Most tokens a minute.", min=0.001)
    ] = None,
    seed: Annotated[int | None, declare_option("--seed", "Seed of the sampling.")] = None,
    window: Annotated[
        int | None, declare_option("--window", "Context window of openai:NAME, in tokens.", min=1)
    ] = None,
    timeout: Annotated[
        float, declare_option("--timeout", "Longest wait for a reply, in seconds.", min=0)
    ] = 600.0,
    max_wait: Annotated[
        float,
        declare_option(
            "--max-wait",
            "Seconds that an endpoint may ask to wait; one that fails gets three times as long.",
            min=0,
        ),
    ] = 600.0,
    forecast: Annotated[
        bool, declare_option("--forecast", "Say what is left to spend, and spend nothing.")
    ] = False,
    retry_failed: Annotated[
        bool, declare_option("--retry-failed", "Take up failed jobs and short lists again.")
    ] = False,
    fork: Annotated[
        Path | None,
        declare_option("--fork", "Begin this new run with the lists of --run that are still the same."),
    ] = None,
    acknowledge_misuse: Annotated[
        bool,
        declare_option(
            "--acknowledge-misuse", "The run is for red-team research, and what it makes is kept from misuse."
        ),
    ] = False,
    json: Annotated[bool, declare_option("--json", "Write progress as JSON lines.")] = False,
    sampling: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Make every conversation of a recipe, and go on where an earlier command stopped."""
    from bactrian.cli.model_options import read_model_options
    from bactrian.cli.view.progress import choose_progress_view
    from bactrian.generate.jobs.registry import choose_models, make_plan
    from bactrian.generate.run import RunOrder
    from bactrian.generate.run_models import RunLimits
    from bactrian.models.wrappers.budget import UsageMeter
    from bactrian.recipes.load import load_recipe

    if fork is not None and fork.absolute() == run_file.absolute():
        raise InputError("A run cannot be its own fork.", where=str(fork), next="Give --fork a new name.")
    loaded = load_recipe(recipe, settings or ())
    own = {
        "assistant": assistant_model,
        "user": user_model,
        "task_specifier": task_model,
        "task_planner": task_model,
        "critic": critic_model,
        "lister": list_model,
    }
    loaded = loaded.with_parameters(sampling, "flags")
    choice = choose_models(loaded, model, {agent: name for agent, name in own.items() if name is not None})
    plan = make_plan(loaded, choice, seed)
    if loaded.red_team and not acknowledge_misuse:
        raise InputError(
            "This recipe is for red-team research only.",
            next="Say so with --acknowledge-misuse; everything it makes will be marked.",
        )
    reach = read_model_options(base_url, window=window, timeout=timeout, longest_wait=max_wait)
    prices = read_prices(price, reach.base_url, needed=budget is not None)
    known_prices = {name: known for name in plan.models.values() if (known := prices(name)) is not None}
    unknown = sorted(set(plan.models.values()) - known_prices.keys())
    if budget is not None and unknown and not forecast:
        raise InputError(
            f"A limit in dollars needs the price of {unknown[0]!r}.",
            where="--budget",
            next="Give it with --price PROMPT/COMPLETION, or limit the tokens with --max-tokens.",
        )
    order = RunOrder(
        plan,
        fork or run_file,
        reach,
        UsageMeter(max_tokens, budget, known_prices),
        RunLimits(concurrency, requests_per_minute, tokens_per_minute),
        limit,
        retry_failed,
        run_file if fork else None,
    )
    if forecast:
        run_async(_forecast(order, json=json), resume="Nothing was spent.")
    brake = StopControl()
    work = _generate(order, choose_progress_view(json=json), brake)
    run_async(work, resume=f"All so far is kept. To go on: {_command()}", brake=brake)


def _command() -> str:
    import shlex

    return shlex.join(["bactrian", *sys.argv[1:]])


async def _generate(order: RunOrder, ledger: ProgressView, brake: StopControl) -> int:
    """Do what is left, and give the exit code."""
    import asyncio

    from bactrian.generate.run import prepare_run, tune_gc

    tune_gc()
    async with prepare_run(order) as work:
        brake.stop = work.runner.stop
        shown = asyncio.create_task(_shown(ledger, work))
        try:
            await work.runner.run()
        finally:
            shown.cancel()
            ledger.close(work.tally, order.run)
        return _exit_code(work.tally)


async def _shown(ledger: ProgressView, work: PreparedRun) -> None:
    """Show the run, as long as somebody looks; then finish what is in flight."""
    try:
        await ledger.watch(work.tally)
    except BactrianError:
        await work.runner.stop()


def _exit_code(tally: RunProgress) -> int:
    return SOME_FAILED if tally.failed or tally.open or tally.short else 0


async def _forecast(order: RunOrder, *, json: bool) -> int:
    from bactrian.cli.view.progress import show_forecast
    from bactrian.generate.forecast import forecast_run

    show_forecast(await forecast_run(order), json=json)
    return 0
