"""Comparisons of solutions from Python: role-plays beside single answers, two models, and extraction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict, Unpack, cast

from bactrian.api.bridge import run_sync
from bactrian.api.checks import check_names
from bactrian.api.evaluation.plan import (
    AgentsDraw,
    RunSettings,
    SolutionPlan,
    check_address,
    name_model,
    order_solutions,
    order_verdicts,
    plan_agents,
    plan_questions,
)
from bactrian.api.generate import GenerateOptions, run_order, watch_progress
from bactrian.api.models import ModelLike
from bactrian.evaluate.agents.report import build_comparison_report
from bactrian.evaluate.agents.scores import Style
from bactrian.evaluate.agents.solution_jobs import Way
from bactrian.evaluate.agents.verdict_jobs import read_solutions
from bactrian.generate.run import PreparedRun, RunOrder
from bactrian.language.argument_names import use_python_words
from bactrian.store import find_run, open_store

Json = dict[str, Any]


class ComparisonOptions(TypedDict, total=False):
    """Keyword options of :func:`evaluate_agents` and :func:`compare_models`."""

    math: bool
    """Judges solve the problem first, for tasks with one answer."""
    repeats: int
    """Judgements in each of the two orders; default 1."""
    by_roles: bool
    """Intervals by resampling pairs of roles instead of tasks."""
    only: str | Path | None
    """Instead of a draw: a file of session ids, one a line."""
    seed: int | None
    """Seed of the draw and of the sampling."""
    max_tokens: int | None
    """Stop before all runs together use this many tokens."""
    concurrency: int | None
    """Concurrent requests."""
    price: str | None
    """US dollars per million tokens, ``"prompt/completion[/cached]"``."""
    base_url: str | None
    """Address of the endpoint; default ``OPENAI_BASE_URL``."""
    timeout: float
    """Maximum wait for a reply, in seconds; default 600."""
    retry_failed: bool
    """Ask again where a model failed."""


_OF_RUNS = ("seed", "concurrency", "price", "base_url", "timeout", "retry_failed")


@use_python_words()
def evaluate_agents(
    run: str | Path,
    *,
    judge: ModelLike | Sequence[ModelLike],
    tasks: int = 100,
    model: ModelLike | None = None,
    extractor: ModelLike | None = None,
    chain_of_thought: bool = False,
    against: str | Path | None = None,
    out: str | Path | None = None,
    budget: float | None = None,
    **options: Unpack[ComparisonOptions],
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
        tasks: Tasks to draw at random.
        model: Writes the single answers; default the run's assistant.
        extractor: Extracts solutions from conversations; default ``model``.
        chain_of_thought: Also compare with answers that think step by step.
        against: Another run, whose role-plays on the same tasks take the place of single answers.
        out: Folder of solutions and verdicts; default ``RUN.agents``.
        budget: US dollars for all runs together.
        options: See :class:`ComparisonOptions`.

    Returns:
        The report, as ``--json`` writes it.

    Raises:
        InputError: an argument cannot be used, or the run has no finished role-play.
        BudgetReached: a limit is reached; what was paid for is stored.
    """
    check_names(evaluate_agents, options, ComparisonOptions)
    ways: list[Way] = ["extraction", "against" if against else "single_shot"]
    if chain_of_thought:
        ways.append("chain_of_thought")
    path = find_run(Path(run))
    only = options.get("only")
    draw = AgentsDraw(
        path,
        tuple(ways),
        None if against is None else find_run(Path(against)),
        tasks,
        None if only is None else Path(only),
        options.get("seed"),
        model,
        extractor,
    )
    folder = Path(out or path.with_name(f"{path.stem}.agents")).absolute()
    return run_sync(_plan_and_compare(draw, folder, _list_judges(judge), budget, options))


@use_python_words()
def compare_models(
    first: ModelLike,
    second: ModelLike,
    *,
    questions: str | Path,
    judge: ModelLike | Sequence[ModelLike],
    limit: int | None = None,
    out: str | Path | None = None,
    budget: float | None = None,
    **options: Unpack[ComparisonOptions],
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
        budget: US dollars for all runs together.
        options: See :class:`ComparisonOptions`.

    Returns:
        The report, as ``--json`` writes it.

    Raises:
        InputError: an argument cannot be used.
        BudgetReached: a limit is reached; what was paid for is stored.
    """
    check_names(compare_models, options, ComparisonOptions)
    plan = plan_questions(
        (first, second),
        str(questions),
        limit=limit,
        seed=options.get("seed"),
        folder=None if out is None else Path(out),
    )
    return run_sync(_compare(plan, _list_judges(judge), budget, options))


@use_python_words()
def extract_solutions(
    run: str | Path,
    *,
    tasks: int = 100,
    model: ModelLike | None = None,
    out: str | Path | None = None,
    budget: float | None = None,
    **options: Unpack[ComparisonOptions],
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
    check_names(extract_solutions, options, ComparisonOptions)
    path = find_run(Path(run))
    draw = AgentsDraw(path, ("extraction",), tasks=tasks, seed=options.get("seed"), model=model)
    folder = Path(out or path.with_name(f"{path.stem}.extraction")).absolute()

    async def extract() -> list[dict[str, str]]:
        plan = await plan_agents(draw, folder)
        folder.mkdir(parents=True, exist_ok=True)
        await _run(order_solutions(plan, _make_settings(budget, options)))
        return await read_extracted(plan.solutions)

    return run_sync(extract())


async def read_extracted(solutions: Path) -> list[dict[str, str]]:
    """Return the extracted solutions of a run, in the order of its sessions. Raises StoreError."""
    async with open_store(solutions, read_only=True) as store:
        solved = [session async for session in store.sessions() if session.turns]
    return [
        {
            "session": session.values["task"],
            "task": str(session.task.text),
            "solution": read_solutions(session)["extraction"],
        }
        for session in sorted(solved, key=lambda one: one.id)
    ]


async def _plan_and_compare(
    draw: AgentsDraw,
    folder: Path,
    judges: Sequence[ModelLike],
    budget: float | None,
    options: ComparisonOptions,
) -> Json:
    return await _compare(await plan_agents(draw, folder), judges, budget, options)


async def _compare(
    plan: SolutionPlan, judges: Sequence[ModelLike], budget: float | None, options: ComparisonOptions
) -> Json:
    """Write the solutions, ask the judges and return the report."""
    style: Style = "math" if options.get("math") or plan.one_answer else "general"
    settings = _make_settings(budget, options)
    check_address(plan, judges, options.get("base_url"))
    plan.folder.mkdir(parents=True, exist_ok=True)
    order = order_solutions(plan, settings)
    await _run(order)
    verdicts: dict[str, Path] = {}
    for judge in judges:
        settings = settings.subtract(order)
        order = order_verdicts(plan, judge, settings, style=style, repeats=options.get("repeats", 1))
        await _run(order)
        verdicts[name_model(judge)] = order.run
    return await build_comparison_report(plan.solutions, verdicts, by_roles=options.get("by_roles", False))


def _make_settings(budget: float | None, options: ComparisonOptions) -> RunSettings:
    given = {name: options[name] for name in _OF_RUNS if name in options}  # type: ignore[literal-required]
    return RunSettings(budget, options.get("max_tokens"), cast("GenerateOptions", given))


def _list_judges(judge: ModelLike | Sequence[ModelLike]) -> list[ModelLike]:
    if isinstance(judge, (list, tuple)):
        return list(cast("Sequence[ModelLike]", judge))
    return [cast("ModelLike", judge)]


async def _run(order: RunOrder) -> None:
    ready: list[PreparedRun] = []
    await run_order(order, ready.append, watch_progress(None))
