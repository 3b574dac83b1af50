"""Generating many conversations from Python: recipes, :func:`generate`, and the shard of the jobs that it makes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import warnings
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Unpack, cast

from bactrian.api import arguments
from bactrian.api.bridge import run_sync, shorten_traceback
from bactrian.api.endpoints import find_addresses, read_terms, use_run_terms
from bactrian.api.known_runs import find_copy
from bactrian.batches.ledger import count_out, find_folder
from bactrian.batches.trains import BatchTerms
from bactrian.errors import BactrianWarning, BatchesOut, BudgetReached, InputError
from bactrian.files.toml import suggest_name
from bactrian.models.budget import UsageMeter
from bactrian.models.model import BUILT_IN_MODEL, LOCAL_WEIGHTS, Model
from bactrian.models.open import check_tier, find_traits
from bactrian.models.pricing import choose_prices
from bactrian.models.telemetry import TelemetryTerms
from bactrian.options import GenerateArguments, GenerateOptions, check_options, fill_defaults
from bactrian.recipes.load import apply_job_table, build_job_table, load_recipe, read_job_table
from bactrian.recipes.schema import Recipe, RolePlay
from bactrian.records.text import write_count
from bactrian.roleplay.chosen_endings import EndingLike, find_code, read_endings
from bactrian.runs.jobs import ModelChoice
from bactrian.runs.kinds import choose_models as choose_run_models
from bactrian.runs.kinds import find_job_kind, make_plan
from bactrian.runs.lists import ListFunction
from bactrian.runs.plan import Plan
from bactrian.runs.progress import ProgressSnapshot, RunProgress
from bactrian.runs.runner import ListSource, Runner
from bactrian.runs.scheduler import IN_ORDER, WHOLE, Shard, Spread
from bactrian.runs.wiring import RunLimits, RunOrder, prepare_run
from bactrian.store import RunStore, find_address, name_run
from bactrian.store.locations import locate_run

if TYPE_CHECKING:
    from bactrian.api.stored_run import Run


# Which shard of the jobs a process makes: as a command says, or by its place in a SLURM array or in Kubernetes.


AUTO = "auto"
_MOST = 1_000_000


def read_shard(text: str | None, variables: Mapping[str, str] = os.environ) -> Shard:
    """Read ``K/N``, or ``auto`` or ``auto/N`` for the place that SLURM or Kubernetes gives this process.

    ``variables`` are those of the environment. All jobs are one shard without a ``text``.

    Raises:
        InputError: the text is none of these, or the environment does not tell the place.
    """
    if text is None:
        return WHOLE
    match = re.fullmatch(r"\s*(auto|\d{1,9})(?:\s*/\s*(\d{1,9}))?\s*", text, re.ASCII)
    if match is None or (match[1] != AUTO and match[2] is None):
        raise InputError(f"{text!r} is not a shard.", option="shard", next="Write K/N, such as 2/8, or auto.")
    count = None if match[2] is None else int(match[2])
    number, count = _find_place(count, variables) if match[1] == AUTO else (int(match[1]), count)
    if count is None or not 1 <= number <= count <= _MOST:
        raise InputError(
            f"There is no shard {number} of {count}.",
            option="shard",
            next=f"Write K/N with K from 1 to N, and N at most {_MOST:,}.",
        )
    return Shard(number, count)


def _find_place(count: int | None, variables: Mapping[str, str]) -> tuple[int, int]:
    """Return the number and the count of this process among those that its launcher started."""
    if "SLURM_ARRAY_TASK_ID" in variables:
        tasks = _read_number(variables, "SLURM_ARRAY_TASK_COUNT")
        first, step = (
            _read_number({name: "1", **variables}, name)
            for name in ("SLURM_ARRAY_TASK_MIN", "SLURM_ARRAY_TASK_STEP")
        )
        last = first + (tasks - 1) * step
        place, rest = divmod(_read_number(variables, "SLURM_ARRAY_TASK_ID") - first, max(step, 1))
        if rest or not 0 <= place < tasks or variables.get("SLURM_ARRAY_TASK_MAX", str(last)) != str(last):
            raise InputError(
                "The tasks of this SLURM array are not numbered in a row, so they are no shards.",
                option="shard",
                next="Begin a whole array, such as 1-8, or give shard=K/N.",
            )
        if count not in (None, tasks):
            raise InputError(
                f"The SLURM array has {tasks:,} tasks and not {count:,}.",
                option="shard",
                next="Begin the whole array, or give shard=K/N with the number of each task.",
            )
        return place + 1, tasks
    if "JOB_COMPLETION_INDEX" in variables:
        if count is None and "JOB_COMPLETION_COUNT" not in variables:
            raise InputError(
                "Kubernetes tells the number of this shard, and not of how many.",
                option="shard",
                next="Write auto/N, with the completions of the job, or set JOB_COMPLETION_COUNT.",
            )
        count = count or _read_number(variables, "JOB_COMPLETION_COUNT")
        return _read_number(variables, "JOB_COMPLETION_INDEX") + 1, count
    raise InputError(
        "Nothing tells which shard this is: neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set.",
        option="shard",
        next="Write K/N, such as 2/8, or begin it from a SLURM array or an Indexed Job of Kubernetes.",
    )


def _read_number(variables: Mapping[str, str], name: str) -> int:
    text = variables.get(name, "")
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII):
        raise InputError(
            f"{name} is {text!r}, and not a number." if text else f"{name} is not set.",
            option="shard",
            next="Write K/N, such as 2/8.",
        )
    return int(text)


# Generating many conversations from Python: recipes, and :func:`generate`.


_DEFAULT = ""  # The key for all agents without a model of their own
# An object with `list_items`, or a function of a request that returns the items.
ListSourceLike = ListSource | ListFunction


_OF_RECIPE = ("max_messages", "specify", "plan", "protocol", "critic", "tools", "language", "prompts")
_IN_RECIPE = (
    "Set it in the recipe: bt.recipe(NAME, role_play={'max_messages': 10}); see `bactrian help recipes.md`."
)


def recipe(name: str | Path, **settings: object) -> Recipe:
    """Load a recipe by its built-in name or from a .toml file, and change its ``settings``.

    For an axis, a number is the count and a list the items; a dict changes a table. The result is validated like a
    file.

    Example:
        >>> import bactrian as bt
        >>> bt.recipe("ai-society", assistant_role=2, user_role=["Pilot", "Nurse"], task=3).size
        12
        >>> bt.recipe("ai-society", role_play={"max_messages": 10}).job.max_messages
        10

    Raises:
        RecipeError: the file cannot be read, or is not a valid recipe.
        InputError: a setting does not exist, or its value is not valid.
    """
    with shorten_traceback():
        axes = {axis.name for axis in load_recipe(str(name)).axes}
        return load_recipe(str(name), list(_write_settings(settings, axes)))


def generate(
    recipe: str | Path | Recipe,
    *,
    run: str | Path,
    model: arguments.ModelLike | None = None,
    models: Mapping[str, arguments.ModelLike] | None = None,
    limit: int | None = None,
    budget: float | None = None,
    endings: EndingLike | Iterable[EndingLike] = (),
    sources: Mapping[str, ListSourceLike] | None = None,
    on_progress: Callable[[ProgressSnapshot], object] | None = None,
    **options: Unpack[GenerateOptions],
) -> Run:
    """Generate the conversations of a recipe, or the remaining ones, and return the run.

    Each turn is on disk before the next request. The same call resumes a run that was interrupted or that reached
    its budget; ``limit=0`` generates nothing, for a forecast.

    Example:
        >>> import bactrian as bt
        >>> script = bt.Scripted({"task_specifier": ["Name a green tea."], "user": ["<CAMEL_TASK_DONE>"]})
        >>> small = bt.recipe("ai-society", assistant_role=["Tea merchant"], user_role=["Guest"], task=["Teas"])
        >>> run = bt.generate(small, run="teas.db", model=script)
        >>> run.endings
        {'task_done': 1}

    Args:
        recipe: A built-in name, a .toml file, or a result of :func:`recipe`.
        run: File of the run.
        model: Model of every agent: a name, an object with ``reply``, or a function of messages that returns a text;
            default is the recipe's, or ``"local"``.
        models: Models by agent: ``user``, ``assistant``, ``critic``, ``lister``, ``task`` (specifier and planner).
        limit: Only the first ``limit`` jobs of the recipe.
        budget: Stop before the run costs more than this many US dollars, earlier calls included.
        endings: User-defined endings besides the recipe's; for recipes of role-plays.
        sources: User-defined list sources, by the name of an axis or by the value of its ``source``.
        on_progress: Called once a second with the progress of the run. By default, a notebook shows it below the cell.
        options: See :class:`GenerateOptions`.

    Raises:
        InputError: an argument cannot be used, or the run was begun with another plan.
        BactrianError: the run cannot continue; its results so far are stored. A reached budget is a warning instead.
        KeyboardInterrupt: Ctrl-C, after turns in flight are stored; a second Ctrl-C does not wait for them.
    """
    from bactrian.api.stored_run import Run  # which resumes and forecasts with the orders of this module

    with shorten_traceback():
        named = {"run": run, "limit": limit, "budget": budget, "on_progress": on_progress}
        hints = dict.fromkeys(_OF_RECIPE, _IN_RECIPE)
        check_options(generate, {**named, **options}, GenerateArguments, **hints)
        order = build_run_order(
            recipe,
            run,
            model,
            models,
            limit=limit,
            budget=budget,
            endings=endings,
            sources=sources,
            options=options,
        )
    complete_run(order, on_progress)
    return Run(find_copy(order.run))


def complete_run(order: RunOrder, on_progress: Callable[[ProgressSnapshot], object] | None = None) -> None:
    """Make the jobs that are left, and warn of what failed. Raises what :func:`generate` raises."""
    # The command line generates without this: what a notebook shows takes as long to load as all else here.
    from bactrian.api.notebook import open_display

    running: list[Runner] = []

    async def stop() -> None:
        for runner in running:
            await runner.stop()

    try:
        watch = watch_progress(on_progress or open_display())
        if problem := _explain_rest(run_sync(run_order(order, running.append, watch), stop)):
            warnings.warn(f"The run {name_run(order.run)} is not complete: {problem}", BactrianWarning, 3)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            f"The run {name_run(order.run)} was interrupted; the same call resumes it."
        ) from None
    except (BudgetReached, BatchesOut) as reached:
        warnings.warn(f"The run is not complete: {reached}", BactrianWarning, 3)


def _explain_rest(progress: RunProgress) -> str:
    """Return what failed or is missing, with the next action; empty if the run is complete."""
    parts = [
        (progress.failed, "job", "failed"),
        (len(progress.short), "list", "stayed short"),
        (progress.open, "job", "was left open" if progress.open == 1 else "were left open"),
    ]
    listed = ", ".join(f"{write_count(count, noun)} {what}" for count, noun, what in parts if count)
    if not listed:
        return ""
    reasons = f" ({progress.reasons.most_common(1)[0][0]})" if progress.reasons else ""
    retries = progress.endings["failed"] or progress.short
    again = "The same call with retry_failed=True" if retries else "The same call"
    return f"{listed}{reasons}. {again} tries again; run.failures() gives the reasons."


async def run_order(
    order: RunOrder,
    on_ready: Callable[[Runner], object],
    watch: Callable[[Runner], Coroutine[Any, Any, None]],
) -> RunProgress:
    """Run the remaining jobs, and return the progress. ``watch`` runs concurrently until the run ends.

    Raises:
        BactrianError: the run cannot continue; its results so far are stored.
    """
    async with prepare_run(order) as work:
        on_ready(work)
        watching = asyncio.create_task(watch(work))
        try:
            await work.run()
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        return work.progress


def watch_progress(
    tell: Callable[[ProgressSnapshot], object] | None,
) -> Callable[[Runner], Coroutine[Any, Any, None]]:
    """Return the ``watch`` argument of :func:`run_order` that calls ``tell`` once a second, and at the end."""

    async def watch(work: Runner) -> None:
        if tell is None:
            return
        try:
            while True:
                await asyncio.sleep(1)
                tell(work.progress.snapshot())
        finally:
            tell(work.progress.snapshot(whole=True))

    return watch


def build_run_order(
    recipe: str | Path | Recipe,
    run: str | Path,
    model: arguments.ModelLike | None,
    models: Mapping[str, arguments.ModelLike] | None,
    *,
    limit: int | None,
    budget: float | None,
    endings: EndingLike | Iterable[EndingLike] = (),
    sources: Mapping[str, ListSourceLike] | None = None,
    options: GenerateOptions,
    reads: Iterable[Path] = (),
) -> RunOrder:
    """Combine the arguments of :func:`generate` into one order. It ``reads`` these runs besides those of its jobs.

    Raises:
        InputError: an argument cannot be used.
    """
    filled = fill_defaults(options, GenerateOptions)
    loaded = recipe if isinstance(recipe, Recipe) else load_recipe(str(recipe))
    loaded = _with_jobs(loaded, filled["jobs"])
    rules, paper = read_endings(endings)
    if (rules or paper) and not isinstance(loaded.job, RolePlay):
        raise InputError(
            "Only a recipe of role-plays takes endings.", option="endings", next="Leave them out."
        )
    if paper:
        raise InputError(
            "The paper's endings are a setting of the recipe.",
            option="endings",
            next='For example recipe("ai-society", role_play={"endings": "paper"}).',
        )
    loaded = loaded.with_parameters(options.get("parameters", {}), "parameters")
    _check_sources(loaded, sources or {})
    axes = [axis.name for axis in loaded.axes if axis.name in (sources or {}) and axis.source is None]
    loaded = loaded.with_list_sources(dict(zip(axes, axes, strict=True)))
    agents = find_job_kind(loaded).name_models(loaded, ModelChoice(""))
    chosen = arguments.choose_models((_DEFAULT, "lister", *agents), "" if model is None else model, models)
    by_agent = {agent: name for agent, name in chosen.names.items() if agent in chosen.named}
    choice = choose_run_models(loaded, chosen.names[_DEFAULT] or None, by_agent)
    plan = make_plan(loaded, choice, filled["seed"])
    plan = replace(plan, endings=rules, shard=read_shard(filled["shard"]))
    arguments.check_base_url(filled["base_url"], plan.models.values())
    arguments.check_unattended(loaded.critic and loaded.critic.role, plan.models)
    if loaded.red_team and not filled["acknowledge_misuse"]:
        raise InputError(
            "This recipe is for red-team research only.",
            next="Say so with acknowledge_misuse=True; everything it makes will be marked.",
        )
    check_runs_code(loaded, allowed=filled["run_code"])
    if filled["keep_tasks"] and options.get("origin") is None:
        raise InputError(
            "There are no tasks to keep without a fork.", option="keep_tasks", next="Give origin=RUN, too."
        )
    if filled["lists_only"] and plan.shard != WHOLE:
        raise InputError(
            "Lists that are made alone are for all shards.", option="shard", next="Leave the shard out."
        )
    if limit is not None and filled["sample"] is not None:
        raise InputError("A sample has its own number of jobs.", option="sample", next="Leave the limit out.")
    limit = filled["sample"] if limit is None else limit
    run_options = {**options, "limit": limit, "budget": budget}
    if (origin := options.get("origin")) is not None:
        run_options["origin"] = find_copy(origin)
    run_file = locate_run(run)
    if (filled["processes"] or 1) > 1:
        _check_alone(run_file)  # before the database is asked
    run_options = use_terms_of_runs(plan, run_file, run_options, reads)
    return build_order(plan, run_file, run_options, chosen.objects, sources or {})


def use_terms_of_runs(
    plan: Plan,
    run: Path,
    options: Mapping[str, Any],
    reads: Iterable[Path] = (),
    confirmed: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return ``options`` with the endpoint of the run, or of those that its jobs read.

    Raises:
        InputError: a conversation would go to another host, or a key to an address that a file names.
        StoreError: a run cannot be read.
    """
    origin = options.get("origin")
    inputs = (*find_job_kind(plan.recipe)(plan).list_inputs(), *reads, *([Path(origin)] if origin else ()))
    paths = {path.absolute(): path for path in inputs if path != run}  # A job names a run in full.
    sources = [read_terms(path) for path in paths.values()]
    return use_run_terms(options, plan.models.values(), read_terms(run), sources, confirmed)


def build_order(
    plan: Plan,
    run: Path,
    options: Mapping[str, Any],
    objects: Mapping[str, Model] = MappingProxyType({}),
    sources: Mapping[str, ListSourceLike] = MappingProxyType({}),
) -> RunOrder:
    """Return the order of a run with the options of :func:`generate`, its limit and its budget.

    Raises:
        InputError: a price is not known, and there is a budget.
    """
    filled = fill_defaults(options, GenerateArguments)
    access = arguments.build_model_options(options)
    for name in {*plan.models.values()}:
        check_tier(name, access.tier)
    addresses = find_addresses(plan.models.values(), access.base_url)
    budget = share_limit(options.get("budget"), plan.shard)
    tokens = None if filled["max_tokens"] is None else filled["max_tokens"] // plan.shard.count
    origin = options.get("origin")
    prices = choose_prices(plan.models.values(), filled["price"], access.base_url, objects, budget=budget)
    return RunOrder(
        plan,
        run,
        replace(
            access,
            objects=arguments.limit_time(objects, access.timeout),
            run=str(find_address(run) or run.absolute()),
            telemetry=TelemetryTerms(filled["telemetry"], filled["trace_share"], plan.recipe.name),
        ),
        UsageMeter(tokens, budget, prices),
        RunLimits(filled["concurrency"], filled["requests_per_minute"], filled["tokens_per_minute"]),
        options.get("limit"),
        filled["retry_failed"],
        None if origin is None else Path(origin),
        sources,
        arguments.describe_run(
            {**options, "sources": list(sources), "base_url": access.base_url, "addresses": addresses}
        ),
        spread=read_spread(options, plan.seed),
        keep_tasks=filled["keep_tasks"],
        lists_only=filled["lists_only"],
        opener=_find_opener(run),
        apart=_find_crew(filled, plan, run, objects),
        batch=_read_batch(filled, run),
    )


def _find_opener(run: Path) -> Callable[[RunOrder], Any] | None:
    """Return how a run in PostgreSQL is opened, by a worker; None for a file."""
    if (address := find_address(run)) is None:
        return None
    from bactrian.shared.lease import open_worker

    return partial(open_worker, address)


def _find_crew(
    options: Mapping[str, Any], plan: Plan, run: Path, objects: Mapping[str, Model]
) -> Callable[[RunOrder, RunStore], Any] | None:
    """Return what opens the processes that play the jobs; None if this one does.

    Raises:
        InputError: they cannot be played in other processes.
    """
    processes = options["processes"] or 1
    if processes == 1:
        return None
    _check_alone(run)
    computed = [name for name in plan.models.values() if find_traits(name) in (BUILT_IN_MODEL, LOCAL_WEIGHTS)]
    own = [*objects, *map(find_code, plan.endings)]
    if computed:
        problem = f"{computed[0]!r} is computed by all cores already, by one server for all conversations."
    elif own:
        problem = f"{own[0]!r} is an object of this Python process, which others do not have."
    elif options["batch"]:
        problem = "Requests in batches take hours and hardly any computing."
    else:
        from bactrian.shared.crew import open_crew

        return partial(open_crew, processes)
    raise InputError(problem, option="processes", next="Leave processes=N out.")


def _check_alone(run: Path) -> None:
    """Refuse several processes of one command for a shared run. Raises InputError."""
    if find_address(run):
        raise InputError(
            "A shared run is played by as many commands with its address as you start.",
            option="processes",
            next="Leave processes=N out.",
        )


def _read_batch(options: Mapping[str, Any], run: Path) -> BatchTerms | None:
    """Return how the run uses batches; None if it does not. Raises InputError if it would leave some that are out."""
    if options["batch"]:
        if address := find_address(run):
            raise InputError(
                "What is out in batches is known on the computer that sent it, and a shared run is made by any.",
                where=str(address),
                next="Leave batch=True out, or make the run in a file.",
            )
        return BatchTerms(options["batch_wait"], options["batch_live_after"])
    if count_out(run):
        raise InputError(
            "Batches of this run are out, and were or will be paid for.",
            option="batch",
            next=f"Add batch=True, which collects them; or delete {find_folder(run)}, which gives them up.",
        )
    return None


def share_limit(limit: float | None, shard: Shard) -> float | None:
    """Return the part of a limit of all shards that is this one's."""
    return None if limit is None else limit / shard.count


def check_runs_code(recipe: Recipe, *, allowed: bool) -> None:
    """Refuse a recipe whose agents run code, unless that is ``allowed``.

    Raises:
        InputError: it is not.
        SandboxError: this computer has no sandbox.
    """
    if not (isinstance(recipe.job, RolePlay) and recipe.job.embodied):
        return
    if not allowed:
        raise InputError(
            "The assistants of this recipe run Python that a model writes, in the sandbox.",
            option="role_play.embodied",
            next="Allow it with run_code=True.",
        )
    from bactrian.sandbox.programs import choose_tier

    choose_tier()


def _with_jobs(recipe: Recipe, jobs: str | Path | Sequence[Mapping[str, str]] | None) -> Recipe:
    """Return ``recipe`` with the jobs of a table.

    Raises:
        InputError: the table cannot be read, or does not fit the recipe.
    """
    if jobs is None:
        return recipe
    if isinstance(jobs, str | Path):
        return apply_job_table(recipe, read_job_table(Path(jobs)))
    return apply_job_table(recipe, build_job_table(jobs, "jobs", "job"))


def _check_sources(recipe: Recipe, sources: Mapping[str, ListSourceLike]) -> None:
    """Raise InputError if a source is for no axis of the recipe."""
    known = [name for axis in recipe.axes for name in (axis.name, axis.source) if name is not None]
    for name in sources:
        if name not in known:
            raise InputError(
                f"The recipe has no axis {name!r}.{suggest_name(name, known)}",
                option="sources",
                next=f"Its axes are {', '.join(axis.name for axis in recipe.axes)}.",
            )


def _write_settings(settings: Mapping[str, object], axes: set[str], prefix: str = "") -> Iterable[str]:
    """Yield ``settings`` as ``key=value``, the value in TOML."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _write_settings(cast("Mapping[str, object]", value), axes, f"{prefix}{key}.")
        elif not prefix and key in axes and isinstance(value, (list, tuple)):
            items = cast("list[object] | tuple[object, ...]", value)
            yield f"{key}.given={_to_toml(items)}"
            yield f"{key}.count={len(items)}"
        elif not prefix and key in axes:
            yield f"{key}.count={_to_toml(value)}"
        else:
            yield f"{prefix}{key}={_to_toml(value)}"


def _to_toml(value: object) -> str:
    """Write a value as TOML: a text, a number, a boolean or a list of them.

    Raises:
        InputError: the value is of another type.
    """
    try:
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    except TypeError as error:
        what = f"{value!r} cannot be a setting of a recipe."
        raise InputError(what, where="recipe", next="Give texts, numbers or lists.") from error


def read_spread(options: Mapping[str, Any], seed: int | None) -> Spread:
    """Return how the jobs of a run are spread, from its options.

    The whole grid has pairs of equal roles, as the paper's; a sample, or the first jobs up to a limit, would waste jobs
    on them.
    """
    equal = options.get("equal_roles")
    if equal is None:
        equal = options.get("sample") is None and options.get("limit") is None
    if options.get("sample") is not None:
        return Spread(seed or 0, equal_roles=equal)
    if options.get("order") == "breadth":
        return Spread(None, equal_roles=equal)
    return IN_ORDER if equal else Spread(depth=True)
