"""``bactrian generate``: many sessions from one recipe."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from bactrian.api.checks import check_critic
from bactrian.api.generate import GenerateOptions, build_run_order, run_order
from bactrian.cli.model_options import show_model_progress
from bactrian.cli.options import declare_option
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.sampling_options import SPEAKERS, add_sampling_flags
from bactrian.cli.view.forecast import show_forecast
from bactrian.cli.view.progress import ProgressView, choose_progress_view
from bactrian.errors import BactrianError, InputError
from bactrian.generate.forecast import forecast_run
from bactrian.generate.progress import RunProgress
from bactrian.generate.run import PreparedRun, RunOrder, tune_gc
from bactrian.recipes.load import load_recipe

SOME_FAILED = 4


class JobOrder(StrEnum):
    """The order of the jobs."""

    depth = "depth"
    breadth = "breadth"


@add_sampling_flags(*SPEAKERS, "lister")
def generate(
    recipe: Annotated[str, typer.Argument(help="Name of a built-in recipe, or a .toml file.")],
    run_file: Annotated[Path, declare_option("--run", "File of the run; the same command resumes it.")],
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
        str | None, declare_option("--task-model", "Model of the task specifier and planner.")
    ] = None,
    critic_model: Annotated[str | None, declare_option("--critic-model", "Model of the critic.")] = None,
    list_model: Annotated[str | None, declare_option("--list-model", "Model that generates lists.")] = None,
    base_url: Annotated[str | None, declare_option("--base-url", "Endpoint of openai:NAME.")] = None,
    settings: Annotated[
        list[str] | None,
        declare_option("--set", "Change the recipe, as in task.count=5. Can be repeated."),
    ] = None,
    jobs: Annotated[
        Path | None,
        declare_option(
            "--jobs", "A .csv or .jsonl file with one job in each row, instead of all combinations."
        ),
    ] = None,
    limit: Annotated[
        int | None, declare_option("--limit", "Only the first N jobs of the recipe.", short="-n", min=1)
    ] = None,
    sample: Annotated[
        int | None,
        declare_option("--sample", "N jobs at random, spread over the grid; --seed chooses them.", min=1),
    ] = None,
    job_order: Annotated[
        JobOrder,
        declare_option("--order", "depth: all tasks of a pair first. breadth: every role once first."),
    ] = JobOrder.depth,
    equal_roles: Annotated[
        bool,
        declare_option("--equal-roles", "Keep pairs of equal roles, as the paper's data has them."),
    ] = False,
    concurrency: Annotated[
        int | None,
        declare_option(
            "--concurrency",
            "Maximum number of concurrent conversations. Default: 64; 4 on a local model.",
            min=1,
        ),
    ] = None,
    budget: Annotated[
        float | None,
        declare_option("--budget", "Stop before the run costs more than this many US dollars.", min=0),
    ] = None,
    max_tokens: Annotated[
        int | None,
        declare_option("--max-tokens", "Stop before the run uses more than this many tokens.", min=1),
    ] = None,
    price: Annotated[
        str | None,
        declare_option(
            "--price", "US dollars per million tokens, prompt/completion[/cached]. Default: a table."
        ),
    ] = None,
    requests_per_minute: Annotated[
        float | None,
        declare_option("--requests-per-minute", "Maximum number of requests per minute.", min=0.001),
    ] = None,
    tokens_per_minute: Annotated[
        float | None, declare_option("--tokens-per-minute", "Maximum number of tokens per minute.", min=0.001)
    ] = None,
    seed: Annotated[int | None, declare_option("--seed", "Seed of the sampling.")] = None,
    window: Annotated[
        int | None, declare_option("--window", "Context window of openai:NAME, in tokens.", min=1)
    ] = None,
    timeout: Annotated[
        float, declare_option("--timeout", "Longest wait for a reply, in seconds.", min=0.001)
    ] = 600.0,
    max_wait: Annotated[
        float,
        declare_option(
            "--max-wait",
            "Longest wait that an endpoint may ask for, in seconds; three times as long if it fails.",
            min=0,
        ),
    ] = 600.0,
    forecast: Annotated[
        bool, declare_option("--forecast", "Estimate the remaining cost, without any request.")
    ] = False,
    retry_failed: Annotated[
        bool, declare_option("--retry-failed", "Retry failed jobs and incomplete lists.")
    ] = False,
    fork: Annotated[
        Path | None,
        declare_option("--fork", "Begin this new run with the unchanged lists of --run."),
    ] = None,
    keep_tasks: Annotated[
        bool,
        declare_option("--keep-tasks", "With --fork: keep the specified tasks, too, to compare two models."),
    ] = False,
    acknowledge_misuse: Annotated[
        bool,
        declare_option(
            "--acknowledge-misuse",
            "Confirm that the run is for red-team research, and that its output is protected from misuse.",
        ),
    ] = False,
    run_code: Annotated[
        bool,
        declare_option("--run-code", "Let embodied assistants run what they write, in the sandbox."),
    ] = False,
    json: Annotated[bool, declare_option("--json", "Write progress as JSON lines.")] = False,
    quiet: Annotated[bool, declare_option("--quiet", "Write only warnings and errors.")] = False,
    sampling: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Generate the conversations of a recipe, or resume an interrupted run."""
    if fork is not None and fork.absolute() == run_file.absolute():
        raise InputError(
            "A run cannot be forked into itself.", where=str(fork), next="Give --fork a new name."
        )
    own = {
        "assistant": assistant_model,
        "user": user_model,
        "task": task_model,
        "critic": critic_model,
        "lister": list_model,
    }
    order = build_run_order(
        load_recipe(recipe, settings or ()),
        fork or run_file,
        model,
        {agent: name for agent, name in own.items() if name is not None},
        limit=limit,
        budget=None if forecast else budget,
        options=GenerateOptions(
            seed=seed,
            concurrency=concurrency,
            max_tokens=max_tokens,
            price=price,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
            base_url=base_url,
            window=window,
            timeout=timeout,
            max_wait=max_wait,
            retry_failed=retry_failed,
            jobs=jobs,
            origin=run_file if fork else None,
            keep_tasks=keep_tasks,
            sample=sample,
            order=job_order.value,
            equal_roles=equal_roles,
            acknowledge_misuse=acknowledge_misuse,
            run_code=run_code,
            parameters=sampling,
        ),
    )
    plan = order.plan
    check_critic(
        (plan.recipe.critic and plan.recipe.critic.role) or plan.models.get("critic"),
        {
            "--critic-model": None
            if critic_model == os.environ.get("BACTRIAN_CRITIC_MODEL")
            else critic_model,
            "--critic-temperature or its like": sampling.get("critic"),
        },
        "Give the recipe a critic, too: --set critic.role=ROLE",
    )
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
    prepared: list[PreparedRun] = []

    def begin(work: PreparedRun) -> None:
        prepared.append(work)
        stop_control.stop = work.runner.stop

    tune_gc()
    try:
        progress = await run_order(order, begin, lambda work: _shown(ledger, work))
    finally:
        for work in prepared:
            ledger.close(work.progress, order.run)
    return _exit_code(progress)


async def _shown(ledger: ProgressView, work: PreparedRun) -> None:
    """Show the progress until the reader of the output leaves; then finish what is in flight."""
    try:
        await ledger.watch(work.progress)
    except BactrianError:
        await work.runner.stop()


def _exit_code(progress: RunProgress) -> int:
    return SOME_FAILED if progress.failed or progress.open or progress.short else 0


async def _forecast(order: RunOrder, *, json: bool) -> int:
    show_forecast(await forecast_run(order), json=json)
    return 0
