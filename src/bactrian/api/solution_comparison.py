"""Comparisons of solutions from Python: role-plays beside single answers, two models, and extraction."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Unpack, cast

from bactrian import options as opts
from bactrian.api.arguments import ModelLike, check_base_url, choose_base_url
from bactrian.api.bridge import run_sync, shorten_errors
from bactrian.api.dataset import build_run_order, run_order, watch_progress
from bactrian.api.endpoints import check_askable, find_foreign
from bactrian.errors import InputError
from bactrian.evaluate import comparison_jobs
from bactrian.evaluate.comparison import OUTCOMES, ComparedRuns, build_comparison_report, write_dilemma
from bactrian.evaluate.question_sets import (
    draw_tasks,
    find_author,
    find_stored_draw,
    list_conversations,
    load_questions,
    read_task_file,
)
from bactrian.evaluate.verdicts import Style, read_solutions
from bactrian.evaluate.votes import name_folder
from bactrian.models.budget import UsageMeter
from bactrian.recipes.schema import Recipe
from bactrian.runs.plan import OtherPlan
from bactrian.runs.wiring import RunOrder
from bactrian.store import find_run, open_store
from bactrian.store.care import read_making

Json = dict[str, Any]
NO_OPTIONS: opts.GenerateOptions = {}
# Runs the jobs of an order that are left, and returns the exit code.
RunFunction = Callable[[RunOrder], Awaitable[int]]
# Shows what an order will cost, under a title.
ForecastFunction = Callable[[RunOrder, str], Awaitable[None]]


async def run_quietly(order: RunOrder) -> int:
    """Run the jobs of ``order`` that are left, and show nothing."""
    await run_order(order, lambda _: None, watch_progress(None))
    return 0


def order_questions(
    recipe: Recipe,
    path: Path,
    models: Mapping[str, ModelLike | None],
    options: opts.SpendingOptions,
    reads: Iterable[Path] = (),
    jobs: opts.GenerateOptions = NO_OPTIONS,
) -> RunOrder:
    """Return the order of a run of an evaluation. Of ``models``, the one without a name is for all agents.

    ``reads`` are the runs whose conversations it goes back to, besides those that its jobs name. ``jobs`` says which
    jobs of the recipe are made.

    Raises:
        InputError: a model or an option cannot be used.
    """
    run_options: dict[str, Any] = {name: options[name] for name in _OF_RUNS if name in options}  # type: ignore[literal-required]
    if "timeout" in run_options:
        run_options["max_wait"] = run_options["timeout"]
    if "" not in models:  # One address is given for all runs; this one may have no model that takes it.
        names = [name_model(model) for model in models.values() if model is not None]
        run_options["base_url"] = choose_base_url(run_options.get("base_url"), names)
    by_agent = {agent: model for agent, model in models.items() if agent and model is not None}
    return build_run_order(
        recipe,
        path,
        next(iter(models.values())),
        by_agent,
        limit=None,
        budget=options.get("budget"),
        options=cast("opts.GenerateOptions", {**run_options, **jobs}),
        reads=reads,
    )


_OF_RUNS = ("seed", "concurrency", "max_tokens", "price", "base_url", "tier", "timeout", "retry_failed")


class RunSeries:
    """The runs of an evaluation, one after another. Its limits apply to all of them together."""

    def __init__(
        self,
        options: opts.SpendingOptions,
        run: RunFunction = run_quietly,
        forecast: ForecastFunction | None = None,
    ) -> None:
        """Make a series; with ``forecast``, nothing is run, and the cost of each run is shown instead."""
        self.options = opts.fill_defaults(options, opts.AgentOptions)
        self.forecast = forecast
        self.code = 0  # The highest exit code of the runs so far
        self._budget = None if forecast else options.get("budget")
        self._tokens = options.get("max_tokens")
        self._spending = options
        self._run = run
        self._meters: dict[Path, UsageMeter] = {}

    async def run(
        self,
        title: str,
        recipe: Recipe,
        path: Path,
        models: Mapping[str, ModelLike],
        reads: Iterable[Path] = (),
        jobs: opts.GenerateOptions = NO_OPTIONS,
    ) -> RunOrder:
        """Run what is left of ``recipe`` in the file ``path``, within the limits that the other runs left.

        Return its order.

        ``reads`` are the runs whose conversations it goes back to; ``jobs`` says which jobs of the recipe are made.

        Raises:
            InputError: a model or an option cannot be used.
            BudgetReached: a limit is used up; what was paid for is stored.
        """
        left: Any = {**self._spending, **self.find_left(path)}
        order = order_questions(recipe, path, models, left, reads, jobs)
        if self.forecast is not None:
            await self.forecast(order, title)
            return order
        path.parent.mkdir(parents=True, exist_ok=True)
        await self.follow(order)
        return order

    async def follow(self, order: RunOrder) -> int:
        """Run what is left of an order, count what it uses, and return the exit code."""
        self._meters[order.run] = order.meter
        try:
            code = await self._run(order)
        except OtherPlan as error:
            next = "Use the models and options it was begun with, or another folder."
            raise InputError(error.what, where=error.where, next=next) from error
        self.code = max(self.code, code)
        return code

    def find_left(self, path: Path) -> dict[str, Any]:
        """Return the limits for the run ``path``: what the other runs left, earlier commands included."""
        others = [meter for run, meter in self._meters.items() if run != path]
        budget, tokens = self._budget, self._tokens
        if budget is not None:
            budget = max(0.0, budget - sum(meter.usd for meter in others))
        if tokens is not None:
            tokens = max(1, tokens - sum(meter.used.total for meter in others))
        return {"budget": budget, "max_tokens": tokens}


@dataclass(frozen=True, slots=True)
class SolutionPlan:
    """What to solve, with what, and which solutions to compare."""

    folder: Path  # Holds the runs of solutions and verdicts
    recipe: Recipe
    models: Mapping[str, ModelLike]  # By way
    pairs: Sequence[tuple[comparison_jobs.Way, comparison_jobs.Way]]
    tasks: int
    reads: Sequence[Path] = ()  # The runs of the conversations
    single_answer: bool = False  # True if each task has one right answer, so that judges solve it first

    @property
    def solutions(self) -> Path:
        """The run of the solutions."""
        return self.folder / "solutions.db"


@dataclass(frozen=True, slots=True)
class Comparison:
    """The runs of a comparison, and the report on them."""

    folder: Path
    solutions: Path
    report: Json | None = None  # None without a judge, and for a forecast
    # Of an extraction: session, task and solution of each conversation
    extracted: Sequence[Mapping[str, str]] = ()

    @property
    def is_read(self) -> bool:
        """False if no verdict of a judge on two ways can be read."""
        reports = (self.report or {}).get("sets", {"": self.report or {}}).values()
        pairs = [pair["counts"] for report in reports for pair in report.get("comparisons", ())]
        return all(any(counts[outcome] for outcome in OUTCOMES) for counts in pairs)


async def run_comparison(plan: SolutionPlan, judges: Sequence[ModelLike], series: RunSeries) -> ComparedRuns:
    """Write the solutions of ``plan``, and ask the judges.

    Raises:
        InputError: a model or an option cannot be used.
        BudgetReached: a limit is used up; what was paid for is stored.
    """
    options = series.options
    check_base_url(options["base_url"], map(name_model, (*plan.models.values(), *judges)))
    style: Style = "math" if options["math"] or plan.single_answer else "general"
    if series.forecast is None:  # What was asked before may be stored as a whole, which needs no key.
        asked = (
            {} if plan.solutions.exists() else {name_model(model): model for model in plan.models.values()}
        )
        asked |= {
            name: judge
            for judge in judges
            if not name_verdicts(plan.folder, name := name_model(judge), style).exists()
        }
        named = [name for name, model in asked.items() if isinstance(model, str)]
        check_askable(named, options["base_url"], plan.reads)
    await series.run("Solutions", plan.recipe, plan.solutions, plan.models, plan.reads)
    verdicts: dict[str, list[Path]] = {}
    for judge in judges:
        name = name_model(judge)
        verdicts[name] = []
        kinds = (False, True) if options["judge_cut"] else (False,)
        if series.forecast is not None:  # A pair is judged in one of the two runs, and counts once.
            kinds = kinds[-1:] if name_verdicts(plan.folder, name, style).exists() else kinds[:1]
        for cut in kinds:
            path = name_verdicts(plan.folder, name, style, cut=cut)
            recipe = comparison_jobs.build_verdict_recipe(
                plan.solutions,
                plan.pairs,
                plan.tasks,
                style,
                options["repeats"],
                max_tokens=options["judge_reply_length"]
                or options["reply_length"]
                or find_reply_length(path, comparison_jobs.Verdicts.key),
                cut=cut,
            )
            await series.run(f"Verdicts of {name}", recipe, path, {"judge": judge}, plan.reads)
            verdicts[name].append(path)
    return ComparedRuns(plan.solutions, verdicts)


def find_reply_length(run: Path, job: str) -> int | None:
    """Return the longest reply that an earlier command set for the table ``job`` of a run, which resumes with it."""
    return (read_making(run)[1] or {}).get("recipe", {}).get(job, {}).get("max_tokens")


async def _compare(plan: SolutionPlan, judges: Sequence[ModelLike], series: RunSeries) -> Comparison:
    runs = await run_comparison(plan, judges, series)
    report = None
    if judges and series.forecast is None:
        report = await build_comparison_report(runs, by_roles=series.options["by_roles"])
    return Comparison(plan.folder, plan.solutions, report)


async def compare_role_plays(
    run: str | Path,
    judges: Sequence[ModelLike],
    series: RunSeries,
    model: ModelLike | None = None,
    extractor: ModelLike | None = None,
    ways: Sequence[comparison_jobs.Way] = (),
    among: Collection[str] | None = None,
) -> Comparison:
    """Compare solutions of role-plays with single answers, or in other ``ways``; see :func:`evaluate_agents`.

    Tasks are drawn ``among`` these sessions, or among all.
    """
    options = series.options
    if not ways:
        usual = ("extraction", "against" if options["against"] else "single_shot")
        ways = (*usual, "chain_of_thought") if options["chain_of_thought"] else usual
    plan = await _plan_role_plays(run, ways, series, model, extractor, among)
    compared = await _compare(plan, judges, series)
    if options["dilemma"] and series.forecast is None:
        await write_dilemma(compared.solutions, Path(options["dilemma"]))
    return compared


def guess_comparison(
    folder: Path, ways: Sequence[comparison_jobs.Way], tasks: int, model: ModelLike, extractor: ModelLike
) -> SolutionPlan:
    """Return how ``tasks`` are solved and compared whose conversations are not played yet, for a forecast."""
    return SolutionPlan(
        folder,
        comparison_jobs.build_solution_recipe(
            [f"{number:03}" for number in range(1, tasks + 1)], comparison_jobs.Solutions(ways=tuple(ways))
        ),
        {way: extractor if way in comparison_jobs.EXTRACTED else model for way in ways},
        list(combinations(ways, 2)),
        tasks,
    )


async def compare_answers(
    models: tuple[ModelLike, ModelLike],
    questions: str,
    judges: Sequence[ModelLike],
    series: RunSeries,
    *,
    limit: int | None = None,
    out: str | Path | None = None,
) -> Comparison:
    """Compare the answers of two models to a set of questions; see :func:`compare_models`."""
    asked = load_questions(questions)
    tasks = draw_tasks(asked.questions, limit, series.options["seed"] or 0)
    names = _write_words("-".join(map(name_model, models)))[:100]
    folder = name_folder(Path(f"{names}.{asked.name}.db"), out, "pairwise")
    length = series.options["reply_length"]
    spec = comparison_jobs.Solutions(
        ways=("first", "second"),
        question_set=asked.name,
        task_label="question",
        max_tokens=find_reply_length(folder / "solutions.db", comparison_jobs.Solutions.key),
        lengths={"first": length, "second": length} if length else None,
    )
    plan = SolutionPlan(
        folder,
        comparison_jobs.build_solution_recipe(tasks, spec),
        {"first": models[0], "second": models[1]},
        [("first", "second")],
        len(tasks),
        single_answer=asked.has_one_answer,
    )
    return await _compare(plan, judges, series)


async def extract_role_plays(
    run: str | Path, series: RunSeries, model: ModelLike | None = None
) -> Comparison:
    """Write the solutions of role-plays, and return them with their run; see :func:`extract_solutions`."""
    plan = await _plan_role_plays(run, ["extraction"], series, model)
    await run_comparison(plan, (), series)
    extracted = await _read_extracted(plan.solutions) if series.forecast is None else ()
    return Comparison(plan.folder, plan.solutions, extracted=extracted)


async def _plan_role_plays(
    run: str | Path,
    ways: Sequence[comparison_jobs.Way],
    series: RunSeries,
    model: ModelLike | None,
    extractor: ModelLike | None = None,
    among: Collection[str] | None = None,
) -> SolutionPlan:
    """Draw the tasks of a run, and return how they are solved and compared.

    Raises:
        InputError: the run has no conversations to draw from.
        StoreError: a run cannot be read.
    """
    source, options = find_run(Path(run)), series.options
    folder = name_folder(source, options["out"], *(() if len(ways) > 1 else ways))
    against = find_run(Path(options["against"])) if options["against"] else None
    sessions = [each for each in await list_conversations(source) if among is None or each in among]
    if against is not None:
        others = set(await list_conversations(against))
        sessions = [session for session in sessions if session in others]
        if not sessions:
            raise InputError(
                "The two runs have no finished session in common.",
                where=str(against),
                next="`bactrian generate --fork NEW --keep-tasks` makes a second run on the same tasks.",
            )
    only, tasks = options["only"], options["tasks"]
    # A command that resumes keeps what an earlier one decided.
    stored = read_making(folder / "solutions.db")[1] or {}
    length = options["reply_length"]
    lengths = {
        way: (way in comparison_jobs.EXTRACTED and options["extractor_reply_length"]) or length
        for way in ways
    }
    spec = comparison_jobs.Solutions(
        ways=tuple(ways),
        source=comparison_jobs.name_input(source, folder),
        against=comparison_jobs.name_input(against, folder) if against else "",
        seed=options["seed"] or 0,
        drawn=None if only else tasks,
        max_tokens=stored.get("recipe", {}).get(comparison_jobs.Solutions.key, {}).get("max_tokens"),
        lengths={way: longest for way, longest in lengths.items() if longest} or None,
    )
    if only is not None:
        drawn = read_task_file(Path(only), sessions)
    else:
        drawn = find_stored_draw(stored, spec) or draw_tasks(sessions, tasks, spec.seed)
    models: dict[comparison_jobs.Way, ModelLike] = {}
    for way in ways:
        named = (extractor or model) if way in comparison_jobs.EXTRACTED else model
        usual = stored.get("models", {}).get(way, "python:")
        author = await find_author(against if way == "against" and against else source, drawn[0])
        chosen = named or (author if usual.startswith("python:") else usual)
        # A run may come from somebody else, so a key goes to an address in it only if a person names it.
        if chosen is None or (named is None and find_foreign([str(chosen)], None)):
            title = comparison_jobs.TITLES[way].lower()
            name = "extractor" if way in comparison_jobs.EXTRACTED else "model"
            raise InputError(
                f"The model that wrote the conversations cannot be asked for the {title}.",
                where=str(source),
                next=f"Name a model: {name}={author or 'MODEL'}",
            )
        models[way] = chosen
    return SolutionPlan(
        folder,
        comparison_jobs.build_solution_recipe(drawn, spec, folder),
        models,
        list(combinations(ways, 2)),
        len(drawn),
        [source, *([against] if against else ())],
    )


def name_model(model: ModelLike) -> str:
    """Return the name of a model, or the type of one that is an object."""
    if isinstance(model, str):
        return model
    return str(getattr(model, "__name__", type(model).__name__)).lower()


def name_verdicts(folder: Path, judge: str, style: Style, *, cut: bool = False) -> Path:
    """Return the run of the verdicts of a judge, or of those on solutions that are ``cut``."""
    kind = f"{'.math' if style == 'math' else ''}{'.cut' if cut else ''}"
    return folder / f"verdicts.{_write_words(judge)[:80]}{kind}.db"


def _write_words(name: str) -> str:
    """Return the name of a model with hyphens for characters that a file's name should not have."""
    return re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-.")


@shorten_errors
def evaluate_agents(
    run: str | Path,
    *,
    judge: ModelLike | Sequence[ModelLike],
    model: ModelLike | None = None,
    extractor: ModelLike | None = None,
    **options: Unpack[opts.AgentOptions],
) -> Json:
    """Compare the solutions of role-plays with single answers, by judges, as ``bactrian evaluate agents`` does.

    The same call resumes it.

    Example:
        >>> import bactrian as bt
        >>> script = {"user": ["Instruction: Name one.\\nInput: None", "<CAMEL_TASK_DONE>"], "assistant": ["Sencha."]}
        >>> _ = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, run="tea.db")
        >>> judge, model = bt.Scripted(["9 2", "2 9"]), bt.Scripted(["Take sencha.", "Any."])
        >>> report = bt.evaluate_agents("tea.db", judge=judge, model=model)
        >>> report["comparisons"][0]["counts"]["win"]
        1

    Args:
        run: A run of role-plays.
        judge: The model that judges, or several for a panel.
        model: Writes the single answers; default the model that wrote the conversation.
        extractor: Extracts all solutions from conversations; default ``model``, or for each the model that wrote it.
        options: See :class:`AgentOptions`.

    Returns:
        The report, as ``--json`` writes it.

    Raises:
        InputError: an argument cannot be used, or the run has no finished role-play.
        BudgetReached: a limit is reached; what was paid for is stored.
    """
    opts.check_options(evaluate_agents, options, opts.AgentOptions)
    work = compare_role_plays(run, _list_judges(judge), RunSeries(options), model, extractor)
    return run_sync(work).report or {}


@shorten_errors
def compare_models(
    first: ModelLike,
    second: ModelLike,
    *,
    questions: str | Path,
    judge: ModelLike | Sequence[ModelLike],
    limit: int | None = None,
    out: str | Path | None = None,
    **options: Unpack[opts.ComparisonOptions],
) -> Json:
    """Compare two models on a set of questions, by judges, as ``bactrian evaluate pairwise`` does.

    The same call resumes it.

    Example:
        >>> import bactrian as bt
        >>> verdict = bt.Scripted({"judge": ["9 2", "2 9"]})
        >>> one, other = bt.Scripted(["Sencha."]), bt.Scripted(["No idea."])
        >>> report = bt.compare_models(one, other, questions="code", judge=verdict, limit=2, out="compared")
        >>> report["tasks"]
        2

    Args:
        first: A model.
        second: Another model.
        questions: A set (``ai-society``, ``code``, ``math``, ``science``), or a file of JSON lines with ``text``.
        judge: The model that judges, or several for a panel.
        limit: Only so many questions, drawn at random.
        out: Folder of answers and verdicts.
        options: See :class:`ComparisonOptions`.

    Returns:
        The report, as ``--json`` writes it.

    Raises:
        InputError: an argument cannot be used.
        BudgetReached: a limit is reached; what was paid for is stored.
    """
    opts.check_options(compare_models, options, opts.ComparisonOptions)
    series = RunSeries(options)
    models = (first, second)
    work = compare_answers(models, str(questions), _list_judges(judge), series, limit=limit, out=out)
    return run_sync(work).report or {}


@shorten_errors
def extract_solutions(
    run: str | Path, *, model: ModelLike | None = None, **options: Unpack[opts.DrawOptions]
) -> list[dict[str, str]]:
    """Write the solution of each conversation as one text in the solver's own voice, and return them.

    Each has ``session``, ``task`` and ``solution``. The same call resumes it.

    Example:
        >>> import bactrian as bt
        >>> script = {"user": ["Instruction: Name one.\\nInput: None", "<CAMEL_TASK_DONE>"], "assistant": ["Sencha."]}
        >>> _ = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, run="tea.db")
        >>> bt.extract_solutions("tea.db", model=bt.Scripted(["Take sencha."]))[0]["solution"]
        'Take sencha.'

    Raises:
        InputError: an argument cannot be used, or the run has no finished role-play.
        BudgetReached: a limit is reached; what was paid for is stored.
    """
    opts.check_options(extract_solutions, options, opts.DrawOptions)

    return [dict(row) for row in run_sync(extract_role_plays(run, RunSeries(options), model)).extracted]


async def _read_extracted(solutions: Path) -> list[dict[str, str]]:
    """Return the extracted solutions of a run, in the order of its sessions. Raises StoreError."""
    async with open_store(solutions, read_only=True) as store:
        solved = [session async for session in store.sessions() if session.turns]
    return [
        {
            "session": session.values["task"],
            "task": str(session.task.text),
            "solution": read_solutions(session)["extraction"],
        }
        for session in sorted(solved, key=lambda session: session.id)
    ]


def _list_judges(judge: ModelLike | Sequence[ModelLike]) -> list[ModelLike]:
    if not isinstance(judge, (list, tuple)):
        return [cast("ModelLike", judge)]
    if not judge:
        raise InputError("There is no judge.", option="judge", next="Give one or more models.")
    return list(cast("Sequence[ModelLike]", judge))
