"""The forecast of a run, and its progress: a display that redraws itself, plain lines, JSON lines, or nothing."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bactrian.amounts import write_dollars, write_duration, write_percent
from bactrian.api.dataset import run_order
from bactrian.api.known_runs import forecast_anywhere
from bactrian.api.progress_rows import ProgressRow, list_rows, write_line
from bactrian.cli.run_async import SOME_FAILED, StopControl
from bactrian.cli.terminal.console import fit_facts, open_output, open_progress
from bactrian.errors import BactrianError
from bactrian.models.budget import UsageMeter
from bactrian.records.text import to_json, write_count
from bactrian.runs.cost import Estimate
from bactrian.runs.forecast import Forecast, Way
from bactrian.runs.progress import ProgressSnapshot, RunProgress
from bactrian.runs.runner import Runner
from bactrian.runs.scheduler import WHOLE, Shard
from bactrian.runs.wiring import RunOrder, tune_gc
from bactrian.store import find_address, name_run

_REDRAWN = 0.5  # Seconds between two drawings
_LINES = 10.0, 60.0  # Seconds between two plain lines, in the first minutes and later


class ProgressView(Protocol):
    """Shows the progress of a run."""

    async def watch(self, progress: RunProgress) -> None:
        """Show the progress repeatedly, until cancelled."""
        ...

    def close(self, progress: RunProgress, run: Path) -> None:
        """Show the final state when the command ends."""
        ...


def choose_progress_view(*, json: bool, quiet: bool = False, noun: str = "") -> ProgressView:
    """Return the view for these flags and this terminal.

    ``noun`` is what the run contains if it is a step of a longer command, which says itself what comes next.
    """
    return _JsonProgress() if json else _Person(noun, quiet=quiet)


class _JsonProgress:
    async def watch(self, progress: RunProgress) -> None:
        while True:
            await asyncio.sleep(1)
            _write({"event": "progress", **_fields(progress.snapshot())})

    def close(self, progress: RunProgress, run: Path) -> None:
        _write(
            {
                "event": "ended",
                "run": name_run(run),
                **_fields(progress.snapshot(whole=True)),
                "open": progress.open,
                "short_lists": {
                    name: {"has": short.has, "wanted": short.wanted, "why": short.why}
                    for name, short in progress.short.items()
                },
                "reasons": dict(progress.reasons),
                "refused": progress.refused,
            }
        )


class _Person:
    def __init__(self, noun: str, *, quiet: bool) -> None:
        self._quiet = quiet
        self._console = open_progress()
        self._noun = noun

    async def watch(self, progress: RunProgress) -> None:
        if self._quiet:
            return
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            while True:
                now = progress.snapshot()
                await asyncio.sleep(_LINES[now.seconds > 120])
                self._console.print(write_line(progress.snapshot()))
        with (
            _fixed_width(self._console),
            Live(console=self._console, transient=True, auto_refresh=False, redirect_stdout=False) as live,
        ):
            while True:
                live.update(draw_progress(progress.snapshot(), self._console.width), refresh=True)
                await asyncio.sleep(_REDRAWN)

    def close(self, progress: RunProgress, run: Path) -> None:
        if self._quiet:
            return
        now = progress.snapshot(whole=True)
        out = open_output()
        whole = write_count(now.total, self._noun or "conversation")
        out.say(f"{_shorten(run)}: {now.done:,} of {whole}", style="bold")
        with _fixed_width(out):
            out.print(_tabulate(list_rows(now, ended=True), out.width))
        notes = [*_list_notes(progress, now, shlex.quote(name_run(run)))]
        if not self._noun:
            notes += _list_next(now, shlex.quote(name_run(run)))
        for line in notes:
            self._console.say(line.replace("\n", " "))


def _shorten(run: Path) -> str:
    """Return a run as a person in this folder writes it."""
    here = find_address(run) is None and run.is_relative_to(Path.cwd())
    return str(run.relative_to(Path.cwd())) if here else name_run(run)


@contextmanager
def _fixed_width(console: Console) -> Generator[None]:
    """Let ``console`` break lines itself, since a display has to know its number of lines."""
    console.soft_wrap = False
    try:
        yield
    finally:
        console.soft_wrap = True


def draw_progress(now: ProgressSnapshot, width: int) -> RenderableType:
    """Return the display of a run for a terminal of ``width`` columns."""
    count = f"{now.done:,} of {now.total:,}"
    share = write_percent(now.share_done, 0)
    bar = ProgressBar(
        total=1.0,
        completed=now.share_done,
        width=max(8, min(width, 100) - len(count) - len(share) - 3),
        style="bright_black",
        complete_style="cyan",
        finished_style="green",
    )
    head = Table.grid(padding=(0, 1))
    head.add_row(Text(count, style="bold"), bar, Text(share, style="bold"))
    return Group(head, _tabulate(list_rows(now), width))


def _tabulate(rows: Iterator[ProgressRow], width: int) -> Table:
    """Return rows with their labels, each fact whole on a line if it fits."""
    table = Table.grid(padding=(0, 1))
    for row in rows:
        lines = fit_facts(row.facts, width - 9)
        style = "yellow" if row.alarm else ""
        table.add_row(
            Text(row.label.rjust(7), style="bright_black" if not row.alarm else style),
            Text("\n".join(lines), style=style, no_wrap=True, overflow="ellipsis"),
        )
    return table


def _list_notes(progress: RunProgress, now: ProgressSnapshot, run: str) -> Iterator[str]:
    """Yield what the person should know of at the end."""
    for name, short in list(progress.short.items())[:5]:
        yield f"The list {name} stayed short: {short.has} of {short.wanted} items. {short.why}".rstrip()
    if len(progress.short) > 5:
        yield f"And {len(progress.short) - 5:,} more lists."
    yield from (f"Could not start {refused}" for refused in progress.refused[:5])
    if now.cache_warning:
        yield f"Warning: {now.cache_warning}"
    for change in progress.changes[:5]:
        yield f"Warning: the answering model changed during the run: {change}"
    yield from (f"{count:,} × {reason}" for reason, count in progress.reasons.most_common(5))
    if progress.open:
        jobs = write_count(progress.open, "job")
        yield f"{jobs} waited for the endpoint in vain. Check that it works, and run the same command again."
    if beside := progress.beside:
        yield f"The run has {write_count(beside, 'conversation')} beside; its tokens, cost and status include them."
    if now.open:
        cost = f" To finish takes about {write_dollars(now.usd_open)}." if now.usd_open else ""
        are, them = ("is", "it") if now.open == 1 else ("are", "them")
        yield f"{write_count(now.open, 'conversation')} {are} unfinished; the same command resumes {them}.{cost}"
    if failed := progress.endings["failed"]:
        yield f"{failed:,} failed; --retry-failed tries them again{', and short lists' if progress.short else ''}."
    elif progress.short:
        yield "--retry-failed asks for the rest of short lists."
    if progress.not_begun:
        yield f"{progress.not_begun:,} could not start; the same command tries again."
    if now.failed and now.failed_calls:
        yield f"Reasons and responses: bactrian failures {run}"


def _list_next(now: ProgressSnapshot, run: str) -> Iterator[str]:
    """Yield what to do next."""
    if now.done > now.failed:
        yield f"Next: bactrian analyze {run}"
        yield f"Or:   bactrian export {run} --format messages --out train.jsonl"


def _fields(now: ProgressSnapshot) -> dict[str, object]:
    return {
        "total": now.total,
        "done": now.done,
        "failed": now.failed,
        "in_flight": now.in_flight,
        "endings": dict(now.endings),
        "calls": now.calls,
        "failed_calls": now.failed_calls,
        "repeated_calls": now.repeated_calls,
        "prompt_tokens": now.usage.prompt,
        "completion_tokens": now.usage.completion,
        "cached_tokens": now.usage.cached,
        "cached_share": round(now.usage.cached_share, 4),
        "cache_warning": now.cache_warning,
        "usd": now.usd,
        "run_tokens": now.run_usage.total,
        "run_usd": now.run_usd,
        "seconds": round(now.seconds, 3),
        "calls_per_second": round(now.calls_per_second, 3),
        "tokens_per_second": round(now.tokens_per_second, 3),
        "seconds_left": None if now.seconds_left is None else round(now.seconds_left, 1),
        "requests_at_once": now.limit,
        "closed_for": round(now.closed_for, 1),
        "silent": now.silent,
        "left_open": now.open,
        "usd_expected": write_estimate(now.usd_expected),
        "tokens_expected": write_estimate(now.tokens_expected),
        "usd_open": now.usd_open,
        "changes": list(now.changes),
    }


def _write(fields: Mapping[str, object]) -> None:
    sys.stdout.write(to_json(fields) + "\n")
    sys.stdout.flush()


async def watch_run(order: RunOrder, ledger: ProgressView, stop_control: StopControl) -> int:
    """Run the remaining jobs, and return the exit code."""
    prepared: list[Runner] = []
    stop_control.meter = order.meter

    def begin(work: Runner) -> None:
        prepared.append(work)
        stop_control.stop = work.stop

    if order.plan.shard != WHOLE and order.meter.limited:
        open_progress().say(_write_share(order.plan.shard, order.meter))
    tune_gc()
    try:
        progress = await run_order(order, begin, lambda work: _shown(ledger, work))
    finally:
        for work in prepared:
            ledger.close(work.progress, order.run)
    return SOME_FAILED if progress.failed or progress.open or progress.short else 0


def _write_share(shard: Shard, meter: UsageMeter) -> str:
    dollars = [] if meter.max_usd is None else [write_dollars(meter.max_usd)]
    tokens = [] if meter.max_tokens is None else [write_count(meter.max_tokens, "token")]
    most = " and ".join((*dollars, *tokens))
    return f"Shard {shard} may use {most}, its part of the limit of all {shard.count:,} shards."


async def _shown(ledger: ProgressView, work: Runner) -> None:
    """Show the progress until the reader of the output leaves; then finish what is in flight."""
    try:
        await ledger.watch(work.progress)
    except BactrianError:
        await work.stop()


async def forecast_order(order: RunOrder, *, json: bool, title: str = "", pilot: bool = False) -> int:
    """Print the estimated cost of a run, and return the exit code."""
    show_forecast(await forecast_anywhere(order), json=json, title=title, pilot=pilot)
    return 0


def show_forecast(forecast: Forecast, *, json: bool, title: str = "", pilot: bool = False) -> None:
    """Print the estimated cost of a run, below ``title`` if there are several; ``pilot`` if the command has one."""
    if json:
        _write({"event": "forecast", **describe_forecast(forecast)})
        return
    out = open_output()
    say = print
    if title:
        say(f"{title}:")
    out.say(f"{write_count(forecast.sessions, 'session')} {'is' if forecast.sessions == 1 else 'are'} left.")
    if forecast.equal_roles:
        out.say(f"{forecast.equal_roles:,} jobs with equal roles are left out; --equal-roles includes them.")

    rows = [
        ("calls", forecast.calls),
        ("prompt tokens", forecast.prompt),
        ("  of them cacheable", forecast.cached),
        ("completion tokens", forecast.completion),
    ]
    for name, estimate in rows:
        say(f"{name:<22}{estimate.value:>18,.0f}   ({forecast.write_ends(estimate, '{:,.0f}'.format)})")
    for name, money in (("US dollars", forecast.usd), ("  with prefix cache", forecast.usd_cached)):
        if money is not None and (name == "US dollars" or money != forecast.usd):  # as without a third price
            say(f"{name:<22}{write_dollars(money.value):>18}   ({forecast.write_ends(money, write_dollars)})")
    if forecast.usd is None:
        say(f"{'US dollars':<22}{'unknown':>18}   (give --price)")
    time = forecast.seconds
    say(f"{'time':<22}{write_duration(time.value):>18}   (at most {write_duration(time.high)})")
    for way in forecast.ways:
        money = "unknown" if way.usd is None else write_dollars(way.usd.value)
        most = "" if way.usd is None else f"   (at most {write_dollars(way.usd.high)})"
        duration = f"{write_duration(way.seconds.value)} (at most {write_duration(way.seconds.high)})"
        say(f"{way.name:<22}{money:>18}{most}   {duration}")
    out.say(forecast.basis)
    if title:
        say("")
    elif pilot and not forecast.measured:
        out.say("With --pilot 10 it plays ten sessions, keeps them, and measures.")


def describe_forecast(forecast: Forecast) -> dict[str, object]:
    """Return a forecast as JSON."""
    estimates = {
        "calls": forecast.calls,
        "prompt_tokens": forecast.prompt,
        "completion_tokens": forecast.completion,
        "cached_tokens": forecast.cached,
        "usd": forecast.usd,
        "usd_cached": forecast.usd_cached,
        "seconds": forecast.seconds,
    }
    written = {name: write_estimate(of) for name, of in estimates.items()}
    # Where nothing is measured, the low end is the typical value, which is no bound.
    unbound = {"seconds"} if forecast.measured else set(written)
    written = {name: of and {**of, "low": None} if name in unbound else of for name, of in written.items()}
    return {
        "sessions": forecast.sessions,
        "equal_roles_left_out": forecast.equal_roles,
        "measured": forecast.measured,
        **written,
        "ways": {way.name: _describe_way(way, measured=forecast.measured) for way in forecast.ways},
        "basis": forecast.basis,
    }


def _describe_way(way: Way, *, measured: bool) -> dict[str, object]:
    usd, hours = write_estimate(way.usd), write_estimate(way.seconds.times(1 / 3600))
    return {
        "usd": usd if measured or not usd else {**usd, "low": None},
        "basis": way.basis,
        "hours": hours and {**hours, "low": None},
    }


def write_estimate(estimate: Estimate | None) -> dict[str, float] | None:
    """Return an estimate as JSON."""
    return estimate and {"value": estimate.value, "low": estimate.low, "high": estimate.high}
