"""The steps of the paper's items: each makes what it needs, and returns what it has measured."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bactrian.api.solution_comparison import compare_role_plays, guess_comparison, run_comparison
from bactrian.evaluate.comparison import OUTCOMES
from bactrian.evaluate.votes import read_tally
from bactrian.records.text import write_count
from bactrian.reproduce.items import Action, ItemStep, PaperItem, load_paper_items
from bactrian.reproduce.reproduction import (
    ItemPart,
    Measure,
    ReproductionOrder,
    Workshop,
    build_manifest,
    write_item,
)

Json = dict[str, Any]
# Makes a step of the item of this name. A forecast runs nothing and returns no part.
StepFunction = Callable[[ItemStep, str, Workshop], Awaitable[Sequence[ItemPart]]]


async def make_item(item: PaperItem, workshop: Workshop, command: str = "") -> Json | None:
    """Make an item, and return its report, which tells the ``command``; None for a forecast.

    Raises:
        BactrianError: it cannot go on; all results so far are stored.
    """
    parts: list[ItemPart] = []
    workshop.used.clear()
    for step in item.steps:
        parts += await STEPS[step.do](step, item.name, workshop)
    if workshop.series.forecast is not None:
        return None
    order: ReproductionOrder = workshop.order
    return write_item(item, order, parts, build_manifest(item, order, workshop.used, command))


# Solutions beside each other: tables 1, 8 and 9.


async def _compare(step: ItemStep, name: str, workshop: Workshop) -> Sequence[ItemPart]:
    order, series = workshop.order, workshop.series
    run, count = await workshop.converse(step.run, step.tasks), order.shrink(step.tasks)
    folder = (order.folder / name / f"{step.run}-{count}").absolute()
    ways = ("extraction", step.other)
    series.options = {**series.options, "tasks": count, "out": folder, "against": None}
    if series.forecast is not None and await workshop.count_ended(run) < count:
        guess = guess_comparison(folder, ways, count, order.model, order.extractor)
        await run_comparison(guess, [order.judge], series)
        return ()
    compared = await compare_role_plays(run, [order.judge], series, order.model, order.extractor, ways)
    if compared.report is None:
        return ()
    spec = load_paper_items().runs[step.run]
    for path in sorted(folder.glob("*.db")):
        workshop.used[path] = f"{spec.title}: {path.stem}"
    report = compared.report
    parts = [_describe_pair(pair, report["titles"], spec.title) for pair in report["comparisons"]]
    parts[0].warnings = report["warnings"]
    tally = await read_tally(folder)
    if tally["votes"]:
        parts.append(_describe_votes(tally, spec.title))
    return parts


def _describe_pair(pair: Json, titles: Mapping[str, str], data: str) -> ItemPart:
    first, second = (titles[way] for way in pair["pair"])
    paper = next(iter(pair["paper"]), None)
    judge = f"; paper: {paper['judge']}" if paper else ""
    n = sum(pair["counts"][outcome] for outcome in OUTCOMES)
    measures = _list_outcomes(pair["shares"], n, paper, f"{second} wins", f"{first} wins")
    return ItemPart(f"{data}, judge {pair['judge']}{judge}", measures, [pair["verdict"]])


def _describe_votes(tally: Json, data: str) -> ItemPart:
    paper = next(iter(tally["paper"]), None)
    measures = _list_outcomes(tally["pooled"], tally["votes"], paper, "Other wins", "Role-play wins")
    voters = write_count(tally["voters"], "voter")
    return ItemPart(f"{data}, {voters}" + ("; paper: people" if paper else ""), measures)


def _list_outcomes(shares: Json, n: int, paper: Json | None, loss: str, win: str) -> list[Measure]:
    """Return the shares of draws, losses and wins, each with the paper's."""
    measures: list[Measure] = []
    for outcome, label in zip(OUTCOMES, ("draw", loss, win), strict=True):
        printed = None if paper is None else float(paper[outcome]) / 100
        of = shares[outcome]
        measures.append(Measure(label, of["value"], of["low"], of["high"], n, printed))
    return measures


STEPS: Mapping[Action, StepFunction] = {"compare": _compare}
