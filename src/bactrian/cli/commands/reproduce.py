"""``bactrian reproduce``: the tables and figures of the paper, each by one command."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Unpack, cast

import click

from bactrian import amounts, errors
from bactrian import options as opts
from bactrian.analyze.report_tables import write_table
from bactrian.api.endpoints import check_askable, read_terms
from bactrian.api.solution_comparison import RunSeries
from bactrian.cli.commands.evaluate import Evaluation
from bactrian.cli.flags import Argument
from bactrian.cli.help_form import spell_error
from bactrian.cli.run_async import SOME_FAILED
from bactrian.cli.terminal.console import open_output, say, wrap_words
from bactrian.cli.view.progress_view import describe_forecast
from bactrian.cli.view.training_progress import TrainingView
from bactrian.records.text import to_json
from bactrian.reproduce.items import PaperItem, load_paper_items
from bactrian.reproduce.reproduction import (
    REPORT,
    Needs,
    ReproductionOrder,
    Workshop,
    begin_folder,
    check_folder,
    has_failed,
    read_state,
)
from bactrian.reproduce.steps import make_item
from bactrian.runs.forecast import Forecast

_SHOWN_FOR = "openai:gpt-4o-mini"  # The list shows its prices, unless a model is named.
# After these, no other item could be made either; what was paid for is stored.
_ENDS_ALL = (errors.BatchesOut, errors.BudgetReached, errors.Halted, errors.ModelError, errors.StoreError)
_LENGTHS = "Longest reply, in tokens. Default in role-plays: 1,024 of instructions and 2,048 of solutions."
_WIDTH = 100  # Columns of the list where no terminal says how many there are


class ReproduceFlags(opts.SpendingOptions, total=False):
    """How models are asked, and what is shown."""

    reply_length: Annotated[int | None, opts.REPLY_LENGTH, _LENGTHS]
    judge_cut: Annotated[bool, opts.JUDGE_CUT]

    forecast: Annotated[bool, opts.FORECAST, "Estimate the cost, and make nothing."]
    as_json: Annotated[bool, opts.JSON, "Write the reports, or the list, as JSON lines."]


def reproduce(
    item: Annotated[
        str | None, Argument(metavar="[ITEM]", help="table1, …, figure20, or all. Default: list them.")
    ] = None,
    model: Annotated[
        str | None, opts.MODEL, "Model of the agents and of single answers. Default: local."
    ] = None,
    judge: Annotated[str | None, opts.JUDGE, "Model that judges. Default: that of --model."] = None,
    extractor: Annotated[
        str | None, opts.EXTRACTOR, "Model that extracts solutions. Default: the judge."
    ] = None,
    scale: Annotated[
        float,
        opts.Option(
            "--scale", "Size: 1 is the item's own, 0.04 makes a twenty-fifth of it.", above=0, max=1000
        ),
    ] = 1.0,
    folder: Annotated[Path, opts.RUN, "Folder of runs and reports; the same command resumes it."] = Path(
        "paper"
    ),
    pdf: Annotated[bool, opts.Option("--pdf", "Also write each report as PDF (with Chromium).")] = False,
    run_code: Annotated[bool, opts.RUN_CODE] = False,
    yes: Annotated[bool, opts.YES, "Begin although the limit is below the forecast."] = False,
    **flags: Unpack[ReproduceFlags],
) -> None:
    """Make a table or figure of the paper, or list all with what they need."""
    items = load_paper_items().find("all" if item is None else item)
    if item is not None:  # The list writes nothing.
        check_folder(folder)
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
        evaluation.end(
            _list(items, order, flags, example=model is None and item is None, as_json=as_json),
            "Nothing was spent.",
        )
    evaluation.end(_make(items, order, evaluation, yes=yes, as_json=as_json))


async def _forecast(
    item: PaperItem, order: ReproductionOrder, flags: ReproduceFlags
) -> tuple[Needs, str | None]:
    """Return what an item needs, and why it cannot be made on this computer."""
    needs = Needs()
    try:
        with warnings.catch_warnings(action="ignore"):  # Nobody is asked; the run itself warns.
            await make_item(item, Workshop(order, RunSeries(flags, forecast=needs.add), flags, needs=needs))
    except (errors.SandboxError, errors.MissingExtra) as error:
        return needs, str(error)
    return needs, None


async def _list(
    items: Sequence[PaperItem],
    order: ReproductionOrder,
    flags: ReproduceFlags,
    *,
    example: bool,
    as_json: bool,
) -> int:
    """Show what items need, and whether they are made."""
    out, together = open_output(), Needs()
    width = min(out.width, _WIDTH) if out.is_terminal else _WIDTH

    def show(row: dict[str, str], forecast: Forecast | None) -> None:
        if as_json:
            print(to_json({**row, "forecast": forecast and describe_forecast(forecast)}))
            return
        for number, line in enumerate(wrap_words(row["title"], width - 10)):
            out.print(f"{'' if number else row['item']:<10}{line}", style="bold")
        besides = f"needs {row['besides']}" if row["besides"] else ""
        facts = filter(None, (*_write_needs(forecast), besides, row["state"]))
        for line in amounts.join_facts(facts, width - 10):
            out.print(f"{'':<10}{line}")

    row = dict.fromkeys(("item", "title", "besides", "state", "problem"), "")
    for item in items:
        needs, problem = await _forecast(item, order, flags)
        together.merge(needs)
        state = "cannot be made here" if problem else read_state(order.folder, item)
        named = {"item": item.name, "title": item.title, "besides": item.needs}
        show({**row, **named, "state": state, "problem": problem or ""}, needs.add_up())
    if len(items) > 1:
        show({**row, "item": "all", "title": "Each run made once"}, together.add_up())
    if not as_json:
        out.say(f"What is left at scale {order.scale:g}, by {', '.join(order.models)}.")
        if example:
            out.say("That model is an example: without --model, the built-in one makes an item.")
        for basis in dict.fromkeys(
            of.basis for of in together.runs.values() if of.calls.value and len(items) == 1
        ):
            out.say(basis)
        name, model = items[0].name if len(items) == 1 else "table1", "MODEL" if example else order.models[0]
        out.say(
            f"To make one: bactrian reproduce {name} --model {model} --scale {order.scale:g} --run FOLDER"
        )
    return 0


def _write_needs(forecast: Forecast | None) -> Iterator[str]:
    """Yield what is needed, as in the forecast of ``generate``: what is typical, and the range."""
    if forecast is None:
        yield "no model is asked"
        return
    tokens = forecast.prompt.plus(*forecast.completion)
    number = "{:,.0f}".format
    yield f"{number(forecast.calls.value)} calls ({forecast.write_ends(forecast.calls, number)})"
    yield f"{number(tokens.value)} tokens ({forecast.write_ends(tokens, number)})"
    if forecast.usd is None:
        yield "dollars unknown (give --price)"
    else:
        ends = forecast.write_ends(forecast.usd, amounts.write_dollars)
        yield f"{amounts.write_dollars(forecast.usd.value)} ({ends})"
    time, most = map(amounts.write_about_duration, (forecast.seconds.value, forecast.seconds.high))
    yield f"{time} (at most {most})"


def _check_limits(forecast: Forecast, spending: opts.SpendingOptions, *, yes: bool) -> None:
    """Ask whether to begin what the limits will probably not pay for; without a terminal, ``yes`` answers.

    Raises:
        InputError: the answer is no, or there is none.
    """
    budget, tokens = spending.get("budget"), spending.get("max_tokens")
    needed = forecast.prompt.value + forecast.completion.value
    if budget is not None and forecast.usd is not None and budget < forecast.usd.value:
        where, share = "--budget", budget / forecast.usd.value
    elif tokens is not None and tokens < needed:
        where, share = "--max-tokens", tokens / needed
    else:
        return
    what = f"This limit pays for about {amounts.write_percent(share, 0)} of what is left."
    if yes:
        say(what)
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        next = "Raise it, make --scale smaller, or begin with --yes; a larger limit goes on later."
        raise errors.InputError(what, where=where, next=next)
    if not click.confirm(f"{what} Begin?", err=True):
        raise errors.InputError("Nothing was begun.", where=where, next="Raise it, or make --scale smaller.")


async def _make(
    items: Sequence[PaperItem], order: ReproductionOrder, evaluation: Evaluation, *, yes: bool, as_json: bool
) -> int:
    """Forecast and make items one after another."""
    together = Needs()
    for item in items:
        together.merge((await _forecast(item, order, cast("ReproduceFlags", evaluation.flags)))[0])
    spending = cast("opts.SpendingOptions", evaluation.flags)
    if (forecast := together.add_up()) is not None:
        say(f"Forecast: {', '.join(_write_needs(forecast))}.")
        _check_limits(forecast, spending, yes=yes)
        terms = filter(None, map(read_terms, order.folder.rglob("*.db")))
        known = {name for each in terms for name in each.models}
        names = order.models if any(item.is_judged for item in items) else (order.model,)
        check_askable((name for name in names if name not in known), spending.get("base_url"), ())
    begin_folder(order.folder)
    series = RunSeries(spending, evaluation.run)
    view = TrainingView(quiet=as_json)
    command = shlex.join(["bactrian", *sys.argv[1:]])
    code = 0
    for item in items:
        workshop = Workshop(order, series, spending, view.show_event, (lambda _: None) if as_json else say)
        try:
            report = await make_item(item, workshop, command)
        except errors.BactrianError as error:
            if len(items) == 1 or isinstance(error, _ENDS_ALL):
                raise
            say(f"{item.label} is left out: {spell_error(error, sys.argv[1:])}")
            if not isinstance(error, (errors.SandboxError, errors.MissingExtra)):
                code = SOME_FAILED
            continue
        assert report is not None
        if as_json:
            print(to_json(report))
        else:
            _show(report)
        code = SOME_FAILED if has_failed(report) else code
        say(f"Report: {(order.folder / item.name / REPORT).with_suffix('.html')}")
    return max(series.code, code)


def _show(report: dict[str, Any]) -> None:
    """Print a report: each number of the paper beside the one made here."""
    out = open_output()
    out.say(f"{report['label']}: {report['title']}", style="bold")
    for part in report["parts"]:
        out.say(part["title"])
        if part["failure"]:
            out.say(part["failure"])
        if part["measures"]:
            rows = [_list_cells(measure) for measure in part["measures"]]
            heads = ("", "paper", "here", "95 % interval", "n")
            if not any(measure["paper"] is not None for measure in part["measures"]):
                heads, rows = (heads[0], *heads[2:]), [(row[0], *row[2:]) for row in rows]
            write_table(out, heads, rows)
        for title, text in part["texts"]:
            out.say(title, style="bold")
            out.say(text)
        for line in part["notes"]:
            out.say(line)
        for line in part["warnings"]:
            say(f"bactrian: warning: {line}")
    said = {"The paper": report["paper"], "What differs here": report["differs"]}
    for line in (*(f"{what}: {text}" for what, text in said.items() if text), *report["meaning"]):
        out.say(line)


def _list_cells(measure: dict[str, Any]) -> Sequence[str]:
    low, high, n = measure["low"], measure["high"], measure["n"]
    if measure["share"]:
        ends = amounts.write_ends(low, high)
        paper, here = amounts.write_percent(measure["paper"]), amounts.write_percent(measure["value"])
    else:
        ends = amounts.NOTHING if low is None else f"{low:.3g}–{high:.3g}"
        paper, here = (
            amounts.NOTHING if (of := measure[name]) is None else f"{of:,.4g}" for name in ("paper", "value")
        )
    return measure["label"], paper, here, ends, amounts.NOTHING if n is None else f"{n:,}"
