"""Compares ways of solving by judges' verdicts: shares, the judge's leanings, how sure all of it is, and the page."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
import zipfile
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

from bactrian.amounts import write_percent, write_percents
from bactrian.analyze.report_page import render_template
from bactrian.errors import BactrianError, InputError
from bactrian.evaluate.comparison_jobs import TITLES
from bactrian.evaluate.verdicts import (
    JudgedTask,
    Outcome,
    is_answered,
    is_cut,
    join_pair,
    read_judged_tasks,
    read_solutions,
)
from bactrian.files.atomic import check_own_report, write_atomically, write_report_file
from bactrian.stats.clusters import estimate_ratio, estimate_statistics
from bactrian.stats.comparisons import (
    compute_sign_test,
    find_smallest_difference,
    fit_bradley_terry,
    fit_length_controlled_rate,
    scale_lengths,
)
from bactrian.store import open_store

Json = dict[str, Any]
Pair = tuple[str, str]
# The paper's columns: draw, the other's win, CAMEL's win
OUTCOMES: tuple[Outcome, ...] = ("draw", "loss", "win")
_WORTH: dict[Outcome, float] = {"win": 1.0, "draw": 0.5, "loss": 0.0}
_GOOD, _BAD = 7.0, 4.0  # mean scores of two solutions that are both good, or both bad


class NoVerdict(BactrianError):
    """No two solutions were judged: those there are were cut, or the judge has not answered."""


@cache
def load_paper() -> Json:
    """Return the paper's figures, as ``paper.toml`` has them."""
    return tomllib.loads(files("bactrian.evaluate").joinpath("paper.toml").read_text("utf-8"))


def find_figures(pair: Pair, recipe: str, *, ablated: bool = False, people: bool = False) -> list[Json]:
    """Return the paper's rows that were measured on this pair of ways of a recipe's tasks.

    ``ablated`` is True if the role-plays of the other run have the pack `ablated`, as those of table 9.
    """
    if pair[0] != "extraction" or (pair[1] == "against" and not ablated):
        return []
    asked = (pair[1], recipe, people)
    return [
        row
        for row in load_paper()["figures"]
        if (row["other"], row["data"], row["judge"] == "people") == asked
    ]


def find_stage_figures(pair: Pair, questions: str) -> list[Json]:
    """Return the paper's row for a pair of stages; none for other models."""
    paper = load_paper()
    rows = [row for row in paper["pairs"] if questions in row["sets"] and tuple(row["pair"]) == pair]
    titles = {**paper["stages"], **paper["models"]}
    figures: list[Json] = []
    for row in rows:
        first, second = row["pair"]
        draw, win, loss = (round(100 * n / sum(row["sets"][questions]), 1) for n in row["sets"][questions])
        data = f"{titles[first]}, {titles[second]}"
        figures.append(
            {"table": row["table"], "data": data, "judge": "GPT-4", "other": second}
            | {"draw": draw, "loss": loss, "win": win}
        )
    return figures


# The statistics of one pair.


def compare_pair(pair: Pair, judge: str, tasks: Sequence[JudgedTask]) -> Json:
    """Compute all statistics of the judged ``tasks``, with 95 % intervals over their clusters.

    Shares are those of the first way of the pair. docs/evaluate.md describes the keys.
    """
    outcomes = Counter(task.outcome or "unreadable" for task in tasks)
    groups: defaultdict[str, list[JudgedTask]] = defaultdict(list)
    for task in tasks:
        groups[task.cluster].append(task)
    rows = [_sum_rows([list(_measure_task(task).values()) for task in of]) for of in groups.values()]
    ratios = {
        name: estimate_ratio((row[column] for row in rows), name="task")
        for column, name in enumerate(_RATIOS)
    }
    lengths = [
        [
            (_WORTH[task.outcome], float(task.lengths[0] - task.lengths[1]))
            for task in of
            if task.outcome is not None
        ]
        for of in groups.values()
    ]
    (length_controlled,) = estimate_statistics(lengths, _control_length, "share")
    levels = [task.mean_score or 0.0 for task in tasks if task.outcome == "draw"]
    good, bad = sum(level >= _GOOD for level in levels), sum(level <= _BAD for level in levels)
    orders: Json = {}
    for name, swapped in (("first_shown_first", False), ("second_shown_first", True)):
        signs = Counter(task.find_sign(swapped=swapped) for task in tasks)
        orders[name] = {"draw": signs[0], "loss": signs[-1], "win": signs[1], "unreadable": signs[None]}
    estimates = {name: ratio.to_json() for name, ratio in ratios.items()}
    unread = outcomes["unreadable"]
    worth = sum(_WORTH[task.outcome] for task in tasks if task.outcome)
    # Tasks that depend on each other have one vote.
    known = [[_WORTH[task.outcome] - 0.5 for task in of if task.outcome] for of in groups.values()]
    wins, losses, draws = _count_signs(sum(of) for of in known if of)
    read = wins + losses + draws
    longer, shorter, _ = _count_signs(2 * top - bottom for top, bottom in (row[-1] for row in rows))
    return {
        "pair": list(pair),
        "judge": judge,
        "counts": {name: outcomes[name] for name in (*OUTCOMES, "unreadable")},
        "shares": {name: estimates[name] for name in (*OUTCOMES, "win_rate")},  # of the tasks that were read
        # The win rate if all tasks that cannot be read were lost, and if all were won
        "bounds": {"low": worth / len(tasks), "high": (worth + unread) / len(tasks)} if unread else None,
        "each_order": orders,
        **{name: estimates[name] for name in ("first_seat", "consistent", "flips", "ties", "repeated")},
        "unreadable": sum(judgement.scores is None for task in tasks for judgement in task.judgements),
        "replies": sum(len(task.judgements) for task in tasks),
        "draws": {"good": good, "middling": len(levels) - good - bad, "bad": bad},
        "lengths": [fmean([task.lengths[side] for task in tasks]) if tasks else 0.0 for side in (0, 1)],
        "longer_wins": estimates["longer_wins"],
        # More often than chance would let it, also where there are too few tasks for an interval
        "prefers_longer": longer > shorter
        and compute_sign_test(longer, shorter) < (0.05 if shorter else 0.15),
        "length_controlled": length_controlled.to_json(),
        "cut": sum(task.cut for task in tasks),
        "p_value": compute_sign_test(wins, losses),
        "independent": read,
        "smallest_difference": find_smallest_difference(read, (wins + losses) / max(1, read)),
    }


def _count_signs(balances: Iterable[float]) -> tuple[int, int, int]:
    """Return how many are above, below and at zero."""
    signs = Counter((balance > 0) - (balance < 0) for balance in balances)
    return signs[1], signs[-1], signs[0]


_RATIOS = (*OUTCOMES, "win_rate", "first_seat", "consistent", "flips", "ties", "repeated", "longer_wins")


def _measure_task(task: JudgedTask) -> dict[str, tuple[float, float]]:
    """Return numerator and denominator of each ratio for one task, in the order of the names."""
    outcome = task.outcome
    read = float(outcome is not None)
    signs = [judgement.sign for judgement in task.judgements]
    # A swapped verdict for the second solution is one for the solution that was shown first.
    seats = [
        sign * (-1 if judgement.swapped else 1)
        for judgement, sign in zip(task.judgements, signs, strict=True)
        if sign
    ]
    straight, swapped = task.find_sign(swapped=False), task.find_sign(swapped=True)
    flipped = bool(outcome) and bool(straight) and bool(swapped) and straight != swapped
    longer = (task.lengths[0] > task.lengths[1]) - (task.lengths[0] < task.lengths[1])
    decided = float(outcome in ("win", "loss") and longer != 0)
    same = repeats = 0
    for order in (False, True):  # later judgements in an order, beside its first one
        first, *others = [of.sign for of in task.judgements if of.swapped == order] or [None]
        known = [sign for sign in others if sign is not None and first is not None]
        same += sum(sign == first for sign in known)
        repeats += len(known)
    return {
        **{name: (float(outcome == name), read) for name in OUTCOMES},
        "win_rate": (_WORTH[outcome] if outcome else 0.0, read),
        "first_seat": (float(seats.count(1)), float(len(seats))),
        "consistent": (float(bool(outcome) and straight == swapped), read),
        "flips": (float(flipped), read),
        "ties": (float(signs.count(0)), float(sum(sign is not None for sign in signs))),
        "repeated": (float(same), float(repeats)),
        "longer_wins": (float((outcome == "win") == (longer > 0)) if decided else 0.0, decided),
    }


def _sum_rows(rows: Sequence[Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    return [
        (sum(top for top, _ in column), sum(bottom for _, bottom in column))
        for column in zip(*rows, strict=True)
    ]


def _control_length(clusters: Sequence[Sequence[tuple[float, float]]]) -> list[float | None]:
    pairs = [pair for cluster in clusters for pair in cluster]
    scaled = scale_lengths([difference for _, difference in pairs])
    return [fit_length_controlled_rate([win for win, _ in pairs], scaled)]


def write_winner(comparison: Json, first: str, second: str) -> str:
    """Return which of two ways is better by the judge's verdicts, or that there is no winner yet.

    Nothing is a result if the judge gives both the same score in each reply. A way wins if the 95 % interval of its
    win rate, in which a draw is half a win, leaves out one half.
    """
    value, low, high = (comparison["shares"]["win_rate"][key] for key in ("value", "low", "high"))
    if value is None:
        return "No winner: no verdict can be read."
    if comparison["ties"]["value"] == 1:
        read = comparison["replies"] - comparison["unreadable"]
        return (
            f"No result: {comparison['judge']} gave both the same score in each of its {read:,} replies. "
            "It did not tell them apart, and these draws say nothing about them."
        )
    best, ends = first, None if low is None else (low, high)
    if value < 0.5:
        best, value, ends = second, 1 - value, ends and (1 - ends[1], 1 - ends[0])
    sure = "too few tasks for an interval" if ends is None else f"95 % interval {write_percents(*ends)}"
    win_rate = f"a win rate of {write_percent(value)} ({sure})"
    if ends and ends[0] > 0.5:
        bounds = comparison["bounds"]
        worst = 1.0 if bounds is None else bounds["low"] if best == first else 1 - bounds["high"]
        if worst <= 0.5:
            unread = comparison["counts"]["unreadable"]
            return (
                f"No winner yet: {best} has {win_rate}, but {unread} tasks cannot be read, "
                f"and it would be {write_percent(worst)} if they were all lost."
            )
        return f"{best} wins, with {win_rate}."
    if value == 0.5:
        return f"No winner: both have {win_rate}."
    smallest = comparison["smallest_difference"]
    shown = (
        f" So many tasks{describe_draws(comparison)} can show a difference of {write_percent(smallest)} and more."
        if smallest
        else ""
    )
    return f"No winner yet: {best} has {win_rate}, which may be chance.{shown}"


def describe_draws(comparison: Mapping[str, Any]) -> str:
    """Return what a power says of the draws, which decide nothing: nothing if there is none."""
    return ", with so many draws," if comparison["counts"]["draw"] else ""


# The strengths of several ways.


_SYSTEMS = 3  # Fewest systems for which strengths say more than the shares of a pair


def estimate_strengths(judges: Mapping[str, Mapping[Pair, Sequence[JudgedTask]]]) -> Json:
    """Return for each judge of three or more systems the strength of each, with intervals over tasks."""
    strengths: Json = {}
    for judge, judged in judges.items():
        names = sorted({way for pair in judged for way in pair})
        if len(names) < _SYSTEMS:
            continue
        by_task: defaultdict[str, list[tuple[Pair, float]]] = defaultdict(list)
        for pair, tasks in judged.items():
            for task in tasks:
                if task.outcome:
                    by_task[task.task].append((pair, _WORTH[task.outcome]))

        def measure(
            clusters: Sequence[Sequence[tuple[Pair, float]]], names: Sequence[str] = names
        ) -> list[float | None]:
            wins: defaultdict[Pair, float] = defaultdict(float)
            for (first, second), worth in (result for cluster in clusters for result in cluster):
                wins[first, second] += worth
                wins[second, first] += 1 - worth
            try:
                fitted: Mapping[str, float] = fit_bradley_terry(wins)
            except ValueError:
                fitted = {}
            return [fitted.get(name) for name in names]

        estimates = estimate_statistics(list(by_task.values()), measure, "difference")
        strengths[judge] = {name: estimate.to_json() for name, estimate in zip(names, estimates, strict=True)}
    return strengths


# The report on two runs: the solutions, and the verdicts on them.


@dataclass(frozen=True, slots=True)
class ComparedRuns:
    """The runs of a comparison."""

    solutions: Path
    # By the judge's name: one, and one of the solutions that are cut
    verdicts: Mapping[str, Sequence[Path]]


async def describe_solutions(solutions: Path) -> Json:
    """Return what a run of solutions contains, with the keys of a report.

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
    titles: Mapping[str, str] = spec.get("titles") or TITLES
    if spec.get("against") and (of := Path(spec["source"]).stem) != (beside := Path(spec["against"]).stem):
        titles = {**titles, "extraction": of, "against": beside}
    done = [session for session in sessions if is_answered(session)]
    cut = dict.fromkeys(models, 0)
    for turn in (turn for session in done for turn in session.turns):
        cut[turn.speaker] += is_cut(turn)
    wanted = {session.values.get("task", "") for session in done}
    origins = {
        way: await _read_origin(solutions.parent / spec[key], wanted)
        for way, key in (("extraction", "source"), ("against", "against"))
        if spec.get(key)
    }
    nothing = _Origin()
    return {
        "solutions": str(solutions),
        "recipe": origins.get("extraction", nothing).recipe,
        "ablated": origins.get("against", nothing).prompts == "ablated",
        "tasks": recipe["axes"][0]["count"] if recipe.get("axes") else len(done),
        "copies": len(done) - len({session.task.text.strip() for session in done}),
        "solved": len(done),
        "authors": {way: list(origins[way].authors) if way in origins else [models[way]] for way in models},
        "extractors": {way: models[way] if way in origins else None for way in models},
        "titles": {way: titles.get(way, way) for way in ways},
        "questions": spec.get("question_set", ""),
        "truncated": cut,
        "cut_tasks": {
            join_pair(*pair): sum(
                any(is_cut(turn) and turn.speaker in pair for turn in of.turns) for of in done
            )
            for pair in itertools.combinations(ways, 2)
        },
    }


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where conversations come from, whose solutions are extracted."""

    recipe: str = ""
    prompts: str = ""
    authors: tuple[str, ...] = ()  # The models of the assistants, which wrote the solutions


async def _read_origin(run: Path, wanted: Container[str]) -> _Origin:
    """Return where the conversations ``wanted`` of a run come from; nothing if the run was moved since."""
    try:
        async with open_store(run, read_only=True) as store:
            recipe = ((await store.recipe()) or {}).get("recipe", {})
            origins = [session.provenance async for session in store.sessions() if session.id in wanted]
    except InputError:
        return _Origin()
    authors = [origin.models.get("assistant", "") for origin in origins]
    prompts = {origin.prompts for origin in origins}
    return _Origin(
        recipe.get("name", ""),
        prompts.pop() if len(prompts) == 1 else "",
        tuple(dict.fromkeys(filter(None, authors))),
    )


def list_makers(state: Json, judges: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield who wrote, extracted and judged the solutions, as pairs of a name and a sentence."""
    for way, title in state["titles"].items():
        authors = " and ".join(state["authors"][way]) or "a model that is not known"
        extractor = state["extractors"][way]
        yield title, f"written by {authors}" + (f", extracted by {extractor}" if extractor else "")
    yield "judged by", ", ".join(judges)


async def build_comparison_report(runs: ComparedRuns, *, by_roles: bool = False) -> Json:
    """Return the report on a run of solutions and the verdicts on it.

    Raises:
        NoVerdict: there is no verdict yet.
        StoreError: a run cannot be read.
    """
    solutions, verdicts = runs.solutions, runs.verdicts
    state = await describe_solutions(solutions)
    judged = {
        judge: await read_judged_tasks(solutions, *paths, by_roles=by_roles)
        for judge, paths in verdicts.items()
    }
    if not any(judged.values()):
        cut = sum(state["truncated"].values())
        so = f" {cut:,} solutions are cut and are judged only with --judge-cut." if cut else ""
        raise NoVerdict(
            f"No verdict was given yet.{so}",
            where=str(next(iter(verdicts.values()), (solutions,))[0]),
            next="`bactrian failures RUN` shows the reasons; the same command resumes.",
        )
    panel = {"panel": _join_panel(list(judged.values()))} if len(judged) > 1 else {}
    comparisons = [
        compare_pair(pair, judge, tasks)
        for judge, of in {**judged, **panel}.items()
        for pair, tasks in of.items()
    ]
    for comparison in comparisons:
        first, second = comparison["pair"]
        comparison["verdict"] = write_winner(comparison, state["titles"][first], state["titles"][second])
        comparison["paper"] = (
            find_stage_figures((first, second), state["questions"])
            if state["questions"]
            else find_figures((first, second), state["recipe"], ablated=state["ablated"])
        )
    return {
        **state,
        "judges": {judge: str(paths[0]) for judge, paths in verdicts.items()},
        "makers": dict(list_makers(state, verdicts)),
        "clusters": "role pair" if by_roles else "task",
        "comparisons": comparisons,
        "strengths": estimate_strengths(judged),
        "warnings": list(dict.fromkeys(_list_warnings(state, comparisons, verdicts))),
    }


def _join_panel(judged: Sequence[Mapping[Pair, Sequence[JudgedTask]]]) -> dict[Pair, list[JudgedTask]]:
    """Return each task with the judgements of all judges, for tasks that all have judged."""
    joined: dict[Pair, list[JudgedTask]] = {}
    for pair in judged[0]:
        first, *others = [{task.task: task for task in of.get(pair, ())} for of in judged]
        tasks = [
            [task, *(of[name] for of in others)]
            for name, task in first.items()
            if all(name in of for of in others)
        ]
        if tasks:
            joined[pair] = [
                JudgedTask(
                    same[0].task,
                    same[0].cluster,
                    tuple(judgement for task in same for judgement in task.judgements),
                    same[0].lengths,
                    max(task.cut for task in same),
                )
                for same in tasks
            ]
    return joined


def _list_warnings(
    state: Json, comparisons: Sequence[Json], verdicts: Mapping[str, Sequence[Path]]
) -> Iterator[str]:
    done, tasks, titles = state["solved"], state["tasks"], state["titles"]
    if done < tasks:
        yield f"{tasks - done} of {tasks} tasks have no complete set of solutions and are left out."
    if state["copies"]:
        yield (
            f"{state['copies']} of {done} tasks are copies of others: "
            "all tasks with one text count as one observation."
        )
    cut = any(len(paths) > 1 for paths in verdicts.values())
    so = "and were judged." if cut else "and are judged only with --judge-cut."
    for way, count in state["truncated"].items():
        if count:
            yield (
                f"{count} of {done} solutions ({titles[way]}) are cut at the longest length of a reply, {so}"
            )
    for judge in verdicts:
        yield from _list_relatives(state, judge)
    for comparison in comparisons:
        yield from _list_leanings(state, comparison)


def _list_relatives(state: Json, judge: str) -> Iterator[str]:
    """Yield what is of the judge's family: those who wrote a solution, and an extractor of some of them only."""
    family, authors, extractors = _find_family(judge), state["authors"], state["extractors"]
    for way, names in authors.items():
        for name in names:
            if _find_family(name) == family:
                wrote = f"{name}, which wrote {state['titles'][way]}"
                yield f"The judge {judge} is of the family of {wrote}: judges prefer their own."
    if len(set(extractors.values())) > 1:
        for name in dict.fromkeys(extractors.values()):
            if name and name not in itertools.chain(*authors.values()) and _find_family(name) == family:
                yield f"The judge {judge} is of the family of the extractor {name}: judges prefer their own."


def _list_leanings(state: Json, comparison: Json) -> Iterator[str]:
    judge = comparison["judge"]
    cut = state["cut_tasks"].get(join_pair(*comparison["pair"]), 0)
    left = state["solved"] - sum(comparison["counts"].values()) - cut
    if left > 0:
        yield f"{left} tasks have no complete judgement by {judge} and are left out."
    if comparison["unreadable"]:
        replies = f"{comparison['unreadable']} of {comparison['replies']} replies"
        yield f"{replies} of {judge} cannot be read; --retry-failed asks again, `bactrian failures` shows them."
    if comparison["prefers_longer"]:
        share = f"it wins {write_percent(comparison['longer_wins']['value'])} of the tasks with a winner"
        yield f"{judge} prefers the longer of two solutions: {share}."
    if comparison["cut"]:
        yield f"{judge} was shown only the beginning of {comparison['cut']} solutions."
    low, high = comparison["first_seat"]["low"], comparison["first_seat"]["high"]
    if low is not None and not low <= 0.5 <= high:
        yield f"{judge} leans to the answer that is shown {'first' if low > 0.5 else 'second'}."


def _find_family(name: str) -> str:
    """Return the first word of a model's name: ``gpt-4o`` and ``gpt-3.5`` are of the same family."""
    model = name.partition("@")[0].rpartition("/")[2].rpartition(":")[2]
    word = re.match(r"[a-z]+", model.lower())
    return word[0] if word else model


def write_page(path: Path, template: str, report: Json) -> None:
    """Write ``report`` as a self-contained page to ``path``, by a template of this package; an older page goes.

    Raises:
        InputError: the file cannot be written.
    """
    check_own_report(path)
    with write_atomically(path, overwrite=True) as folder:
        page = render_template(template, "evaluate", report=report)
        write_report_file(folder / path.name, page, report)


# Solutions in the form that CAMEL's voting app (``apps/dilemma``) reads: a zip of JSON files.


async def write_dilemma(solutions: Path, path: Path) -> int:
    """Write the tasks that have an extracted solution and a single answer, and return how many there are.

    The app reads the keys ``specified_task``, ``gpt_solution`` and ``summary``; CAMEL's extractor writes
    ``solution_extraction`` instead of the last stage, so both are there.

    Raises:
        InputError: there is none, or the file cannot be written.
    """
    rows: dict[str, dict[str, str]] = {}
    async with open_store(solutions, read_only=True) as store:
        async for session in store.sessions():
            texts = read_solutions(session)
            if texts.keys() >= {"extraction", "single_shot"}:
                rows[f"{session.values['task']}.json"] = {
                    "specified_task": session.task.text,
                    "gpt_solution": texts["single_shot"],
                    "summary": texts["extraction"],
                    "solution_extraction": texts["extraction"],
                }
    if not rows:
        raise InputError(
            "No task has both an extracted solution and a single answer.",
            where=str(solutions),
            next="Run the same command again with retry_failed=True, or draw more tasks.",
        )
    with (
        write_atomically(path) as folder,
        zipfile.ZipFile(folder / path.name, "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name, row in rows.items():
            archive.writestr(name, json.dumps(row, ensure_ascii=False, indent=2))
    return len(rows)
