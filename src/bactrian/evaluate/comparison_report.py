"""The report on a comparison: as JSON content, beside the paper's figures, and as a page."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from bactrian.errors import BactrianError, InputError
from bactrian.evaluate.comparison import PairComparison, compare_pair, write_winner
from bactrian.evaluate.comparison_jobs import TITLES
from bactrian.evaluate.verdicts import JudgedTask, read_judged_tasks
from bactrian.files.atomic import write_atomically
from bactrian.records.text import to_line
from bactrian.stats.bootstrap import bootstrap_clusters
from bactrian.stats.comparisons import fit_bradley_terry
from bactrian.store import open_store

# The paper's figures that an evaluation is shown beside.


@dataclass(frozen=True, slots=True)
class PaperFigure:
    """One row of a table of the paper, in percent of its tasks or votes."""

    table: str
    data: str
    """Name of the recipe of its tasks."""
    judge: str
    other: str
    """The way of solving that CAMEL is compared with."""
    draw: float
    loss: float
    """Wins of the other way."""
    win: float
    """Wins of CAMEL."""

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON content."""
        return asdict(self)


FIGURES = (
    PaperFigure("Table 1", "ai-society", "people", "single_shot", 13.3, 10.4, 76.3),
    PaperFigure("Table 1", "ai-society", "GPT-4", "single_shot", 4.0, 23.0, 73.0),
    PaperFigure("Table 1", "code", "GPT-4", "single_shot", 0.0, 24.0, 76.0),
    PaperFigure("Table 8", "ai-society", "GPT-4", "chain_of_thought", 4.0, 28.0, 68.0),
    PaperFigure("Table 9", "ai-society", "GPT-4", "against", 0.0, 25.0, 75.0),
)
"""Tables 1, 8 and 9. The other way of table 9 are role-plays with ablated prompts (``--against``, pack ``ablated``)."""


def find_figures(pair: tuple[str, str], recipe: str, *, people: bool = False) -> Sequence[PaperFigure]:
    """Return the rows to compare with a pair of ways; for another recipe than the paper's, all with that pair."""
    if pair[0] != "extraction":
        return ()
    beside = [row for row in FIGURES if row.other == pair[1] and (row.judge == "people") == people]
    return [row for row in beside if row.data == recipe] or beside


# Table 2 of the paper: one stage of a training beside another, on sets of questions, judged by GPT-4.


STAGES = ("base", "ai-society", "code", "math", "science")
"""The stages of the paper; each adds its data to those before."""
PAPER_NAMES: Mapping[str, str] = {
    "base": "LLaMA-7B",
    "ai-society": "+ AI Society",
    "code": "+ Code",
    "math": "+ Math",
    "science": "+ Science",
}


@dataclass(frozen=True, slots=True)
class StageFigure:
    """One cell of table 2: how many questions each of two stages won."""

    first: str
    second: str
    questions: str
    """Name of the set."""
    draw: int
    first_wins: int
    second_wins: int

    @property
    def total(self) -> int:
        """Questions of the set."""
        return self.draw + self.first_wins + self.second_wins

    def to_figure(self) -> PaperFigure:
        """Return the cell as a row of a comparison, in percent."""
        draw, loss, win = (
            round(100 * count / self.total, 1) for count in (self.draw, self.second_wins, self.first_wins)
        )
        data = f"{PAPER_NAMES[self.first]}, {PAPER_NAMES[self.second]}"
        return PaperFigure("Table 2", data, "GPT-4", self.second, draw, loss, win)


_SETS = ("ai-society", "code", "math", "science")
_COUNTS: Mapping[tuple[str, str], Sequence[tuple[int, int, int]]] = {
    ("base", "ai-society"): ((0, 6, 14), (0, 0, 20), (9, 5, 6), (0, 13, 47)),
    ("ai-society", "code"): ((4, 8, 8), (1, 9, 10), (5, 8, 7), (1, 19, 40)),
    ("code", "math"): ((5, 6, 9), (1, 9, 10), (1, 3, 16), (3, 8, 49)),
    ("math", "science"): ((3, 1, 16), (1, 8, 11), (10, 5, 5), (9, 2, 49)),
    ("base", "science"): ((0, 0, 20), (0, 0, 20), (0, 0, 20), (0, 0, 60)),
}
TABLE_2 = tuple(
    StageFigure(*pair, questions, *counts)
    for pair, row in _COUNTS.items()
    for questions, counts in zip(_SETS, row, strict=True)
)
"""Draws, wins of the first and wins of the second stage, of 20 questions, and of 60 of science."""


def find_stage_figures(pair: tuple[str, str], questions: str) -> Sequence[PaperFigure]:
    """Return the row of table 2 for a pair of stages; for any two other models, all rows of the set."""
    rows = [row for row in TABLE_2 if row.questions == questions]
    exact = [row for row in rows if (row.first, row.second) == pair]
    return [row.to_figure() for row in exact or (rows if pair == ("first", "second") else ())]


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
    done = [
        session for session in sessions if session.ending is not None and session.ending.code == "answered"
    ]
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


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The runs of a comparison."""

    solutions: Path
    verdicts: Mapping[str, Path]
    """By the judge's name."""


async def build_comparison_report(runs: ComparedRuns, *, by_roles: bool = False) -> Json:
    """Return the report on a run of solutions and the verdicts on it.

    Raises:
        BactrianError: no verdict was given yet.
        StoreError: a run cannot be read.
    """
    solutions, verdicts = runs.solutions, runs.verdicts
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
                **comparison.to_json(),
                "verdict": write_winner(comparison, *(state.titles[way] for way in comparison.pair)),
                "paper": [row.to_json() for row in _find_paper_rows(comparison.pair, state)],
            }
            for comparison in comparisons
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
                tuple(judgement for of in tasks for judgement in of[name].judgements),
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
        for pair, worth in (result for cluster in clusters for result in cluster):
            wins[pair] = wins.get(pair, 0.0) + worth
            back = pair[1], pair[0]
            wins[back] = wins.get(back, 0.0) + 1 - worth
        try:
            fitted: Mapping[str, float] = fit_bradley_terry(wins)
        except ValueError:
            fitted = {}
        return [fitted.get(name) for name in names]

    estimates = bootstrap_clusters(list(by_task.values()), measure, resamples=_STRENGTH_RESAMPLES)
    return {name: estimate.to_json() for name, estimate in zip(names, estimates, strict=True)}


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
    for comparison in comparisons:
        left = state.done - sum(comparison.counts.values())
        if left > 0:
            warnings.append(
                f"{left} tasks have no complete judgement by {comparison.judge} and are left out."
            )
        if comparison.unreadable:
            replies = f"{comparison.unreadable} of {comparison.replies} replies"
            warnings.append(f"{replies} of {comparison.judge} cannot be read.")
        if comparison.cut:
            warnings.append(f"{comparison.judge} was shown only the beginning of {comparison.cut} solutions.")
        first = comparison.first_seat
        if first.low is not None and first.high is not None and not first.low <= 0.5 <= first.high:
            seat = "first" if first.low > 0.5 else "second"
            warnings.append(f"{comparison.judge} leans to the answer that is shown {seat}.")
    return list(dict.fromkeys(warnings))


def share_family(name: str, other: str) -> bool:
    """Return True if the names of two models begin with the same word, as ``gpt-4o`` and ``gpt-3.5`` do."""
    return _find_family(name) == _find_family(other)


def _find_family(name: str) -> str:
    model = name.partition("@")[0].rpartition("/")[2].rpartition(":")[2]
    word = re.match(r"[a-z]+", model.lower())
    return word[0] if word else model


# Reports as self-contained HTML files: no scripts, no fonts, no network.


def render_page(template: str, report: dict[str, Any]) -> str:
    """Return the page on ``report``; ``template`` is a file in the folder `pages`."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_read),
    )
    environment.filters["percent"] = _percent
    environment.filters["interval"] = _interval
    return environment.get_template(template).render(report=report)


def write_page(path: Path, template: str, report: dict[str, Any]) -> None:
    """Write the page on ``report`` to ``path``; an earlier page is replaced.

    Raises:
        InputError: the file cannot be written.
    """
    with write_atomically(path, overwrite=True) as folder:
        (folder / path.name).write_text(render_page(template, report), "utf-8")


def _read(template: str) -> str:
    return files("bactrian.evaluate").joinpath("pages", template).read_text("utf-8")


def _finalize(value: object) -> object:
    return to_line(value) if type(value) is str else value


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1%}"


def _interval(of: dict[str, Any]) -> str:
    return "–" if of["low"] is None else f"{of['low']:.1%} – {of['high']:.1%}"
