"""The report of an evaluation: what its two runs contain, as JSON content."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bactrian.errors import BactrianError, InputError
from bactrian.evaluate.agents.comparison import PairComparison, compare_pair
from bactrian.evaluate.agents.judged import JudgedTask, read_judged_tasks
from bactrian.evaluate.agents.paper import PaperFigure, find_figures
from bactrian.evaluate.agents.paper_stages import find_stage_figures
from bactrian.evaluate.agents.solution_jobs import TITLES
from bactrian.evaluate.agents.winner import write_winner
from bactrian.stats.bradley_terry import fit_bradley_terry
from bactrian.stats.cluster_bootstrap import bootstrap_clusters
from bactrian.store import open_store

Json = dict[str, Any]
_SYSTEMS = 3
"""Fewest systems for which strengths say more than the shares of a pair."""
_WORTH = {"win": 1.0, "draw": 0.5, "loss": 0.0}


@dataclass(frozen=True, slots=True)
class SolutionState:
    """What a run of solutions contains."""

    recipe: str
    """Name of the recipe of the conversations; empty for questions."""
    models: Mapping[str, str]
    """By way."""
    titles: Mapping[str, str]
    """What the ways are called, in their order."""
    questions: str
    """Name of the set of questions; empty for conversations."""
    tasks: int
    done: int
    truncated: Mapping[str, int]
    """Solutions by way that reached the longest length of an answer."""


async def read_solution_state(solutions: Path) -> SolutionState:
    """Return what the run of solutions contains.

    Raises:
        StoreError: it cannot be read.
    """
    async with open_store(solutions, read_only=True) as store:
        content = await store.recipe() or {}
        sessions = [session async for session in store.sessions()]
    recipe = content.get("recipe", {})
    spec = recipe.get("solutions", {})
    ways: list[str] = spec.get("ways", [])
    models = {way: name for way, name in content.get("models", {}).items() if way in ways}
    named: Mapping[str, str] = spec.get("titles") or TITLES
    if spec.get("against"):
        named = {**named, **_name_runs(Path(spec["source"]), Path(spec["against"]))}
    titles = {way: named.get(way, way) for way in ways}
    done = [one for one in sessions if one.ending is not None and one.ending.code == "answered"]
    cut = dict.fromkeys(models, 0)
    for session in done:
        for turn in session.turns:
            cut[turn.speaker] += turn.finish == "length"
    source = await _read_recipe_name(Path(spec["source"])) if spec.get("source") else ""
    questions = spec.get("question_set", "")
    return SolutionState(source, models, titles, questions, recipe["axes"][0]["count"], len(done), cut)


def _name_runs(source: Path, against: Path) -> dict[str, str]:
    """Return what two runs of role-plays are called; nothing if their names are the same."""
    return {} if source.stem == against.stem else {"extraction": source.stem, "against": against.stem}


async def _read_recipe_name(run: Path) -> str:
    try:
        async with open_store(run, read_only=True) as store:
            return ((await store.recipe()) or {}).get("recipe", {}).get("name", "")
    except InputError:  # The run was moved since; only the paper's rows depend on its recipe.
        return ""


async def build_comparison_report(
    solutions: Path, verdicts: Mapping[str, Path], *, by_roles: bool = False
) -> Json:
    """Return the report on a run of solutions and one run of verdicts for each judge, by the judge's name.

    Raises:
        BactrianError: no verdict was given yet.
        StoreError: a run cannot be read.
    """
    state = await read_solution_state(solutions)
    judged = {
        judge: await read_judged_tasks(solutions, path, by_roles=by_roles) for judge, path in verdicts.items()
    }
    if not any(judged.values()):
        raise BactrianError(
            "No verdict was given yet.",
            where=str(next(iter(verdicts.values()), solutions)),
            next="`bactrian failures RUN` shows the reasons; the same command resumes.",
        )
    comparisons = [
        compare_pair(pair, judge, tasks) for judge, of in judged.items() for pair, tasks in of.items()
    ]
    if len(judged) > 1:
        comparisons += [
            compare_pair(pair, "panel", tasks) for pair, tasks in _join_panel(list(judged.values())).items()
        ]
    return {
        "solutions": str(solutions),
        "recipe": state.recipe,
        "tasks": state.tasks,
        "solved": state.done,
        "models": dict(state.models),
        "titles": dict(state.titles),
        "questions": state.questions,
        "truncated": dict(state.truncated),
        "judges": {judge: str(path) for judge, path in verdicts.items()},
        "clusters": "role pair" if by_roles else "task",
        "comparisons": [
            {
                **one.to_json(),
                "verdict": write_winner(one, *(state.titles[way] for way in one.pair)),
                "paper": [row.to_json() for row in _find_paper_rows(one.pair, state)],
            }
            for one in comparisons
        ],
        "strengths": {
            judge: estimate_strengths(of) for judge, of in judged.items() if _count_systems(of) >= _SYSTEMS
        },
        "warnings": list(_list_warnings(state, comparisons, list(verdicts))),
    }


def _find_paper_rows(pair: tuple[str, str], state: SolutionState) -> Sequence[PaperFigure]:
    if state.questions:
        return find_stage_figures(pair, state.questions)
    return find_figures(pair, state.recipe)


def _join_panel(
    judged: Sequence[Mapping[tuple[str, str], Sequence[JudgedTask]]],
) -> dict[tuple[str, str], list[JudgedTask]]:
    """Return each task with the judgements of all judges, for tasks that all have judged."""
    joined: dict[tuple[str, str], list[JudgedTask]] = {}
    for pair in judged[0]:
        tasks = [{task.task: task for task in of.get(pair, ())} for of in judged]
        common = [name for name in tasks[0] if all(name in of for of in tasks)]
        joined[pair] = [
            JudgedTask(
                name,
                tasks[0][name].cluster,
                tuple(one for of in tasks for one in of[name].judgements),
                tasks[0][name].lengths,
                max(of[name].cut for of in tasks),
            )
            for name in common
        ]
    return {pair: tasks for pair, tasks in joined.items() if tasks}


def _count_systems(judged: Mapping[tuple[str, str], object]) -> int:
    return len({way for pair in judged for way in pair})


def estimate_strengths(judged: Mapping[tuple[str, str], Sequence[JudgedTask]]) -> Json:
    """Return the strength of each system, with intervals by bootstrap over the tasks."""
    names = sorted({way for pair in judged for way in pair})
    by_task: dict[str, list[tuple[tuple[str, str], float]]] = {}
    for pair, tasks in judged.items():
        for task in tasks:
            if task.outcome:
                by_task.setdefault(task.task, []).append((pair, _WORTH[task.outcome]))

    def measure(clusters: Sequence[Sequence[tuple[tuple[str, str], float]]]) -> list[float | None]:
        wins: dict[tuple[str, str], float] = {}
        for pair, worth in (one for cluster in clusters for one in cluster):
            wins[pair] = wins.get(pair, 0.0) + worth
            back = pair[1], pair[0]
            wins[back] = wins.get(back, 0.0) + 1 - worth
        try:
            fitted: Mapping[str, float] = fit_bradley_terry(wins)
        except ValueError:
            fitted = {}
        return [fitted.get(name) for name in names]

    found = bootstrap_clusters(list(by_task.values()), measure, resamples=_STRENGTH_RESAMPLES)
    return {name: estimate.to_json() for name, estimate in zip(names, found, strict=True)}


_STRENGTH_RESAMPLES = 500
"""Fewer resamples than usual, because each one is a separate fit."""


def _list_warnings(
    state: SolutionState, comparisons: Sequence[PairComparison], judges: Sequence[str]
) -> list[str]:
    warnings: list[str] = []
    if state.done < state.tasks:
        warnings.append(
            f"{state.tasks - state.done} of {state.tasks} tasks have no complete set of solutions and are left out."
        )
    for way, count in state.truncated.items():
        if count:
            warnings.append(
                f"{count} solutions ({state.titles[way]}) reached the longest length of an answer."
            )
    warnings += [
        f"The judge {judge} and {state.titles[way]} ({name}) are of one family; judges prefer their own."
        for judge in judges
        for way, name in state.models.items()
        if share_family(judge, name)
    ]
    for one in comparisons:
        left = state.done - sum(one.counts.values())
        if left > 0:
            warnings.append(f"{left} tasks have no complete judgement by {one.judge} and are left out.")
        if one.unreadable:
            warnings.append(f"{one.unreadable} of {one.replies} replies of {one.judge} cannot be read.")
        if one.cut:
            warnings.append(f"{one.judge} was shown only the beginning of {one.cut} solutions.")
        first = one.first_seat
        if first.low is not None and first.high is not None and not first.low <= 0.5 <= first.high:
            seat = "first" if first.low > 0.5 else "second"
            warnings.append(f"{one.judge} leans to the answer that is shown {seat}.")
    return list(dict.fromkeys(warnings))


def share_family(one: str, other: str) -> bool:
    """Return True if the names of two models begin with the same word, as ``gpt-4o`` and ``gpt-3.5`` do."""
    return _find_family(one) == _find_family(other)


def _find_family(name: str) -> str:
    model = name.partition("@")[0].rpartition("/")[2].rpartition(":")[2]
    found = re.match(r"[a-z]+", model.lower())
    return found[0] if found else model
