"""``bactrian reproduce``: the tables and figures of the paper, each by one command."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Unpack, cast

from bactrian.amounts import NOTHING, write_about_duration, write_dollars, write_ends, write_percent
from bactrian.analyze.report_tables import write_table
from bactrian.api.solution_comparison import RunSeries
from bactrian.cli.commands.evaluate import Evaluation
from bactrian.cli.flags import Argument
from bactrian.cli.terminal.console import open_output, say
from bactrian.cli.view.training_progress import TrainingView
from bactrian.errors import InputError, MissingExtra, SandboxError
from bactrian.options import EXTRACTOR, FORECAST, JSON, JUDGE, MODEL, RUN, RUN_CODE, Option, SpendingOptions
from bactrian.records.text import to_json
from bactrian.reproduce.items import PaperItem, load_paper_items
from bactrian.reproduce.reproduction import REPORT, Needs, ReproductionOrder, Workshop, read_state
from bactrian.reproduce.steps import make_item

_SHOWN_FOR = "openai:gpt-4o-mini"  # The list shows its prices, unless a model is named.


class ReproduceFlags(SpendingOptions, total=False):
    """How models are asked, and what is shown."""

    forecast: Annotated[bool, FORECAST, "Estimate the cost, and make nothing."]
    as_json: Annotated[bool, JSON, "Write the reports, or the list, as JSON lines."]


def reproduce(
    item: Annotated[
        str | None, Argument(metavar="[ITEM]", help="table1, …, figure20, or all. Default: list them.")
    ] = None,
    model: Annotated[str | None, MODEL, "Model of the agents and of single answers. Default: local."] = None,
    judge: Annotated[str | None, JUDGE, "Model that judges. Default: that of --model."] = None,
    extractor: Annotated[str | None, EXTRACTOR, "Model that extracts solutions. Default: the judge."] = None,
    scale: Annotated[
        float,
        Option("--scale", "Size: 1 is the item's own, 0.04 makes a twenty-fifth of it.", above=0, max=1000),
    ] = 1.0,
    folder: Annotated[Path, RUN, "Folder of runs and reports; the same command resumes it."] = Path("paper"),
    pdf: Annotated[bool, Option("--pdf", "Also write each report as PDF (with Chromium).")] = False,
    run_code: Annotated[bool, RUN_CODE] = False,
    **flags: Unpack[ReproduceFlags],
) -> None:
    """Make a table or figure of the paper, or list all with what they need."""
    items = load_paper_items().find("all" if item is None else item)
    if folder.exists() and not folder.is_dir():
        raise InputError("This is a file.", where=f"--run {folder}", next="Name a folder, which may be new.")
    asked = model or (_SHOWN_FOR if item is None else "local")
    seed = flags.get("seed")
    judging = judge or asked
    order = ReproductionOrder(
        folder.absolute(),
        asked,
        judging,
        extractor or judging,
        scale,
        10 if seed is None else seed,
        pdf,
        run_code,
    )
    flags["seed"] = order.seed
    evaluation = Evaluation(flags)
    as_json = flags.get("as_json", False)
    if item is None or flags.get("forecast"):
        evaluation.end(_list(items, order, flags, as_json=as_json), "Nothing was spent.")
    evaluation.end(_make(items, order, evaluation, as_json=as_json))


async def _forecast(
    item: PaperItem, order: ReproductionOrder, flags: ReproduceFlags
) -> tuple[Needs, str | None]:
    """Return what an item needs, and why it cannot be made on this computer."""
    needs = Needs()
    try:
        await make_item(item, Workshop(order, RunSeries(flags, forecast=needs.add), flags))
    except (SandboxError, MissingExtra) as error:
        return needs, str(error)
    return needs, None


async def _list(
    items: Sequence[PaperItem], order: ReproductionOrder, flags: ReproduceFlags, *, as_json: bool
) -> int:
    """Show what items need, and whether they are made."""
    rows: list[tuple[str, ...]] = []
    together = Needs()
    for item in items:
        needs, problem = await _forecast(item, order, flags)
        together.merge(needs)
        state = "cannot be made here" if problem else read_state(order.folder, item)
        if as_json:
            row = {"item": item.name, "title": item.title, "besides": item.needs, "state": state}
            row["problem"] = problem or ""
            print(to_json({**row, **needs.sum_up()}))
        else:
            rows.append((item.name, item.title, *_write_needs(needs.sum_up()), item.needs, state))
    if not as_json:
        out = open_output()
        if len(items) > 1:
            rows.append(("all", "each run once", *_write_needs(together.sum_up()), "", ""))
        write_table(out, ("", "", "calls", "tokens", "US dollars", "time", "besides", "made"), rows)
        out.say(f"What is left at scale {order.scale:g}, by {', '.join(order.models)}.")
        name = items[0].name if len(items) == 1 else "table1"
        out.say(f"To make one: bactrian reproduce {name} --model MODEL --scale 0.04 --run FOLDER")
    return 0


def _write_needs(needs: dict[str, Any]) -> tuple[str, ...]:
    if not needs["calls"]:
        return (NOTHING,) * 4
    tokens = needs["prompt_tokens"] + needs["completion_tokens"]
    return (
        f"{needs['calls']:,.0f}",
        f"{tokens:,.0f}",
        write_dollars(needs["usd"]),
        write_about_duration(needs["seconds"]),
    )


async def _make(
    items: Sequence[PaperItem], order: ReproductionOrder, evaluation: Evaluation, *, as_json: bool
) -> int:
    """Forecast and make items one after another."""
    together = Needs()
    for item in items:
        together.merge((await _forecast(item, order, cast("ReproduceFlags", evaluation.flags)))[0])
    calls, tokens, dollars, time = _write_needs(together.sum_up())
    if calls != NOTHING:
        say(f"Forecast: {calls} calls, {tokens} tokens, {dollars}, {time}. --budget sets a limit.")
    spending = cast("SpendingOptions", evaluation.flags)
    series = RunSeries(spending, evaluation.run)
    view = TrainingView(quiet=as_json)
    command = shlex.join(["bactrian", *sys.argv[1:]])
    for item in items:
        try:
            report = await make_item(item, Workshop(order, series, spending, view.show_event), command)
        except (SandboxError, MissingExtra, InputError) as error:
            if len(items) == 1:
                raise
            say(f"{item.label} is left out: {error}")
            continue
        assert report is not None
        if as_json:
            print(json.dumps(report, ensure_ascii=False))
        else:
            _show(report)
        say(f"Report: {(order.folder / item.name / REPORT).with_suffix('.html')}")
    return series.code


def _show(report: dict[str, Any]) -> None:
    """Print a report: each number of the paper beside the one made here."""
    out = open_output()
    out.say(f"{report['label']}: {report['title']}", style="bold")
    for part in report["parts"]:
        out.say(part["title"])
        if part["measures"]:
            rows = [_list_cells(measure) for measure in part["measures"]]
            write_table(out, ("", "paper", "here", "95 % interval", "n"), rows)
        for title, text in part["texts"]:
            out.say(title, style="bold")
            out.say(text)
        for line in part["notes"]:
            out.say(line)
        for line in part["warnings"]:
            say(f"bactrian: warning: {line}")
    for line in (report["paper"] and f"The paper: {report['paper']}", *report["meaning"]):
        if line:
            out.say(line)


def _list_cells(measure: dict[str, Any]) -> Sequence[str]:
    low, high, n = measure["low"], measure["high"], measure["n"]
    if measure["share"]:
        ends = write_ends(low, high)
        paper, here = write_percent(measure["paper"]), write_percent(measure["value"])
    else:
        ends = NOTHING if low is None else f"{low:.3g}–{high:.3g}"
        paper, here = (
            NOTHING if (of := measure[name]) is None else f"{of:,.4g}" for name in ("paper", "value")
        )
    return measure["label"], paper, here, ends, NOTHING if n is None else f"{n:,}"
