"""Many conversations from Python: a recipe, and :func:`generate`."""

from __future__ import annotations

import asyncio
import json
import warnings
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from bactrian.api.bridge import run_sync
from bactrian.api.models import ModelLike, build_model_options, choose_models
from bactrian.api.run import Run
from bactrian.errors import BactrianWarning, BudgetReached, InputError
from bactrian.generate.jobs.base import ModelChoice
from bactrian.generate.jobs.registry import choose_models as choose_run_models
from bactrian.generate.jobs.registry import find_job_kind, make_plan
from bactrian.generate.lists.source import ListFunction, ListSource
from bactrian.generate.progress import ProgressSnapshot, RunProgress
from bactrian.generate.run import PreparedRun, RunOrder, prepare_run
from bactrian.generate.run_models import RunLimits
from bactrian.models.pricing import choose_prices
from bactrian.models.wrappers.budget import UsageMeter
from bactrian.play.endings.own import EndingLike, read_endings
from bactrian.recipes.job_specs import RolePlay
from bactrian.recipes.load import load_recipe
from bactrian.recipes.schema import Recipe

_DEFAULT = ""
"""Stands for every agent without a model of its own."""
ListSourceLike = ListSource | ListFunction
"""An object with ``list_items``, or a function of a request that returns the items."""


class GenerateOptions(TypedDict, total=False):
    """What else :func:`generate` takes, by keyword."""

    seed: int | None
    """Of the sampling."""
    parameters: Mapping[str, Any]
    """Of the sampling: ``{"temperature": 0.2, "assistant": {"max_tokens": 500}}``; ``"none"`` leaves one out."""
    concurrency: int | None
    """Conversations at once; 64 unless given, 4 on a model in this process."""
    max_tokens: int | None
    """Stop before the run has used this many tokens."""
    price: str | None
    """US dollars per million tokens, ``"prompt/completion[/cached]"``; from a table unless given."""
    requests_per_minute: float | None
    tokens_per_minute: float | None
    base_url: str | None
    """Endpoint; that of ``OPENAI_BASE_URL`` unless given."""
    window: int | None
    """Context window of the endpoint's model, in tokens."""
    timeout: float
    """Longest wait for a reply, in seconds; 600 unless given."""
    max_wait: float
    """Seconds that an endpoint may ask to wait; 600 unless given."""
    retry_failed: bool
    """Take up failed jobs and short lists again."""
    origin: str | Path | None
    """Another run, whose lists this one takes over where they stay the same."""
    acknowledge_misuse: bool
    """Say that a run of a red-team recipe is research."""
    on_progress: Callable[[ProgressSnapshot], object] | None
    """Called once a second with how far the run is."""


def recipe(name: str | Path, **settings: object) -> Recipe:
    """Load a recipe by its built-in name or from a .toml file, and change it by ``settings``.

    A number for an axis is its count and a list its items; a table is changed by a dict. A list or dict is checked
    as the file would be.

    Example:
        >>> import bactrian as bt
        >>> bt.recipe("ai-society", assistant_role=2, user_role=["Pilot", "Nurse"], task=3).size
        12
        >>> bt.recipe("ai-society", role_play={"max_messages": 10}).job.max_messages
        10

    Raises:
        RecipeError: the file cannot be read, or is not a recipe.
        InputError: a setting names nothing, or its value does not fit.
    """
    axes = {axis.name for axis in load_recipe(str(name)).axes}
    return load_recipe(str(name), list(_write_settings(settings, axes)))


def generate(
    recipe: str | Path | Recipe,
    *,
    run: str | Path,
    model: ModelLike | None = None,
    models: Mapping[str, ModelLike] | None = None,
    limit: int | None = None,
    budget: float | None = None,
    endings: EndingLike | Iterable[EndingLike] = (),
    sources: Mapping[str, ListSourceLike] | None = None,
    **options: Unpack[GenerateOptions],
) -> Run:
    """Make the conversations of a recipe, or those that are left, and return the run.

    Everything is on disk as soon as it is said. The same call resumes a run that was interrupted, or that reached
    its budget; one with ``limit=0`` makes nothing and serves to forecast.

    Example:
        >>> import bactrian as bt
        >>> script = bt.Scripted({"task_specifier": ["Name a green tea."], "user": ["<CAMEL_TASK_DONE>"]})
        >>> small = bt.recipe("ai-society", assistant_role=["Tea merchant"], user_role=["Guest"], task=["Teas"])
        >>> run = bt.generate(small, run="teas.db", model=script)
        >>> run.endings
        {'task_done': 1}

    Args:
        recipe: A built-in name, a .toml file, or what :func:`recipe` returned.
        run: File of the run.
        model: Of every agent: a name, an object with ``reply``, or a function of messages that returns a text;
            the recipe's or ``"local"`` unless given.
        models: Of single agents: ``user``, ``assistant``, ``critic``, ``lister``, ``task`` (specifier and planner).
        limit: Only the first so many jobs of the recipe.
        budget: Stop before the run has cost this many US dollars, earlier calls included.
        endings: Of the user's own, besides the recipe's; for recipes of role-plays.
        sources: List sources of the user's own, by the name of an axis, or by what an axis has as its
            ``source``.
        options: See :class:`GenerateOptions`.

    Raises:
        InputError: something given cannot be used, or the run was begun with another plan.
        BactrianError: the run cannot go on; everything so far is kept. A budget that is reached warns instead.
        KeyboardInterrupt: after turns in flight are finished and stored; the second Ctrl-C does not wait for them.
    """
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
    running: list[PreparedRun] = []

    async def stop() -> None:
        for one in running:
            await one.runner.stop()

    try:
        run_sync(run_order(order, running.append, watch_progress(options.get("on_progress"))), stop)
    except BudgetReached as reached:
        warnings.warn(f"The run is not complete: {reached}", BactrianWarning, 2)
    return Run(order.run)


async def run_order(
    order: RunOrder,
    on_ready: Callable[[PreparedRun], object],
    watch: Callable[[PreparedRun], Coroutine[Any, Any, None]],
) -> RunProgress:
    """Do what is left of a run, and return how far it came. ``watch`` runs beside it until it ends.

    Raises:
        BactrianError: the run cannot go on; everything so far is kept.
    """
    async with prepare_run(order) as work:
        on_ready(work)
        watching = asyncio.create_task(watch(work))
        try:
            await work.runner.run()
        finally:
            watching.cancel()
            with suppress(asyncio.CancelledError):
                await watching
        return work.tally


def watch_progress(
    tell: Callable[[ProgressSnapshot], object] | None,
) -> Callable[[PreparedRun], Coroutine[Any, Any, None]]:
    """Make of ``tell`` what :func:`run_order` runs beside a run: it is called once a second, and at the end."""

    async def watch(work: PreparedRun) -> None:
        if tell is None:
            return
        try:
            while True:
                await asyncio.sleep(1)
                tell(work.tally.snapshot())
        finally:
            tell(work.tally.snapshot(whole=True))

    return watch


def build_run_order(
    recipe: str | Path | Recipe,
    run: str | Path,
    model: ModelLike | None,
    models: Mapping[str, ModelLike] | None,
    *,
    limit: int | None,
    budget: float | None,
    endings: EndingLike | Iterable[EndingLike] = (),
    sources: Mapping[str, ListSourceLike] | None = None,
    options: GenerateOptions,
) -> RunOrder:
    """Everything that :func:`generate` was given, as one order.

    Raises:
        InputError: something given cannot be used.
    """
    loaded = recipe if isinstance(recipe, Recipe) else load_recipe(str(recipe))
    rules, paper = read_endings(endings)
    if (rules or paper) and not isinstance(loaded.job, RolePlay):
        raise InputError(
            "Only a recipe of role-plays takes endings.", where="endings", next="Leave them out."
        )
    if paper:
        raise InputError(
            "The paper's endings are a setting of the recipe.",
            where="endings",
            next='For example recipe("ai-society", role_play={"endings": "paper"}).',
        )
    loaded = loaded.with_parameters(options.get("parameters", {}), "parameters")
    axes = [axis.name for axis in loaded.axes if axis.name in (sources or {}) and axis.source is None]
    loaded = loaded.with_list_sources(dict(zip(axes, axes, strict=True)))
    agents = find_job_kind(loaded).name_models(loaded, ModelChoice(""))
    chosen = choose_models((_DEFAULT, "lister", *agents), "" if model is None else model, models)
    by_agent = {agent: name for agent, name in chosen.names.items() if agent in chosen.given}
    choice = choose_run_models(loaded, chosen.names[_DEFAULT] or None, by_agent)
    plan = replace(make_plan(loaded, choice, options.get("seed")), endings=rules)
    check_acknowledged(loaded, acknowledged=options.get("acknowledge_misuse", False))
    access = build_model_options(
        options.get("base_url"),
        window=options.get("window"),
        timeout=options.get("timeout", 600.0),
        max_wait=options.get("max_wait", 600.0),
    )
    known = choose_prices(
        plan.models.values(), options.get("price"), access.base_url, budget=budget, own=chosen.objects
    )
    own = [name for name in chosen.objects if name.startswith("python:")]
    if budget is not None and own and options.get("price") is None:
        warnings.warn(
            f"The price of {own[0]!r} is not known, and counts as 0 towards the budget; give it with price=.",
            BactrianWarning,
            3,
        )
    origin = options.get("origin")
    return RunOrder(
        plan,
        Path(run),
        replace(access, objects=chosen.objects),
        UsageMeter(options.get("max_tokens"), budget, known),
        RunLimits(
            options.get("concurrency"), options.get("requests_per_minute"), options.get("tokens_per_minute")
        ),
        limit,
        options.get("retry_failed", False),
        None if origin is None else Path(origin),
        sources or {},
    )


def check_acknowledged(recipe: Recipe, *, acknowledged: bool) -> None:
    """Refuse a red-team recipe that is not acknowledged as such.

    Raises:
        InputError: it is not.
    """
    if recipe.red_team and not acknowledged:
        raise InputError(
            "This recipe is for red-team research only.",
            next="Say so with --acknowledge-misuse; everything it makes will be marked.",
        )


def _write_settings(settings: Mapping[str, object], axes: set[str], prefix: str = "") -> Iterable[str]:
    """``settings`` as ``key=value``, the value in TOML."""
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
    """A value that TOML writes as JSON does: a text, a number, true, false or a list of them.

    Raises:
        InputError: it is something else.
    """
    try:
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    except TypeError as error:
        raise InputError(
            f"{value!r} cannot be a setting of a recipe.",
            where="recipe",
            next="Give texts, numbers or lists.",
        ) from error
