"""The progress of a run: one line that is updated on a terminal, or JSON lines."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from rich.live import Live
from rich.text import Text

from bactrian.cli.terminal.console import open_progress, to_printable
from bactrian.generate.forecast import Forecast
from bactrian.generate.progress import ProgressSnapshot, RunProgress
from bactrian.generate.session_cost import Estimate


class ProgressView(Protocol):
    """Shows the progress of a run."""

    async def watch(self, progress: RunProgress) -> None:
        """Show the progress repeatedly, until cancelled."""
        ...

    def close(self, progress: RunProgress, run: Path) -> None:
        """Show the final state when the command ends."""
        ...


def choose_progress_view(*, json: bool) -> ProgressView:
    """Return the view for these flags and this terminal."""
    return _JsonProgress() if json else _Person()


class _JsonProgress:
    async def watch(self, progress: RunProgress) -> None:
        while True:
            await asyncio.sleep(1)
            _write({"event": "progress", **_fields(progress.snapshot())})

    def close(self, progress: RunProgress, run: Path) -> None:
        _write(
            {
                "event": "ended",
                "run": str(run),
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
    def __init__(self) -> None:
        self._console = open_progress()

    async def watch(self, progress: RunProgress) -> None:

        if not self._console.is_terminal or self._console.is_dumb_terminal:
            while True:
                await asyncio.sleep(10)
                self._console.print(write_line(progress.snapshot()))
        self._console.soft_wrap = False  # a live display has to know its number of lines
        try:
            with Live(console=self._console, transient=True, auto_refresh=False) as live:
                while True:
                    live.update(Text(write_line(progress.snapshot())), refresh=True)
                    await asyncio.sleep(0.5)
        finally:
            self._console.soft_wrap = True

    def close(self, progress: RunProgress, run: Path) -> None:
        now = progress.snapshot(whole=True)
        say = self._console.print
        say(f"{now.done:,} of {now.total:,} sessions are in {run}.")
        if now.endings:
            say("Endings: " + _counts(now.endings))
        money = f", ${now.usd:,.4f}" if now.usd is not None else ""
        say(
            f"This command: {now.calls:,} calls in {_duration(now.seconds)}, {now.usage.prompt:,} prompt tokens "
            f"({now.cached_share:.0%} cached), {now.usage.completion:,} completion tokens{money}."
        )
        if now.run_tokens is not None:
            money = f", ${now.run_usd:,.4f}" if now.run_usd is not None else ""
            say(f"The whole run: {now.run_tokens:,} tokens{money}.")
        for name, short in list(progress.short.items())[:5]:
            say(
                to_printable(
                    f"The list {name} stayed short: {short.has} of {short.wanted} items. {short.why}"
                )
            )
        if len(progress.short) > 5:
            say(f"And {len(progress.short) - 5:,} more lists.")
        for refused in progress.refused[:5]:
            say(to_printable(f"Could not start {refused}"))
        for change in progress.changes[:5]:
            say(to_printable(f"Warning: the answering model changed during the run: {change}"))
        if progress.open:
            say(f"{progress.open:,} are unfinished; the same command resumes them.")
        for reason, count in progress.reasons.most_common(5):
            say(to_printable(f"{count:,} times: {reason}"))
        if now.failed or progress.short:
            say(f"{now.failed:,} failed; --retry-failed retries them and incomplete lists.")
        if now.failed:
            say(f"Reasons and responses: bactrian failures {shlex.quote(str(run))}")


def write_line(now: ProgressSnapshot) -> str:
    """Return the progress of a run as one line."""
    parts = [f"{now.done:,}/{now.total:,} done"]
    if now.seconds_left is not None:
        parts.append(f"{_duration(now.seconds_left)} left")
    parts += [
        f"{now.in_flight} in flight",
        f"{now.calls:,} calls",
        f"{now.calls_per_second:,.1f}/s",
        f"{now.tokens_per_second:,.0f} tokens/s",
    ]
    if now.usage.cached:
        parts.append(f"{now.cached_share:.0%} cached")
    if now.run_usd is not None:
        parts.append(f"${now.run_usd:,.4f} in all")
    elif now.usd:
        parts.append(f"${now.usd:,.4f}")
    if now.closed_for:
        why = "endpoint does not answer" if now.silent else "endpoint asks to wait"
        parts.append(f"{why}, next try in {now.closed_for:.0f} s")
    if now.failed_calls:
        parts.append(f"{now.failed_calls:,} calls failed")
    if now.endings:
        parts.append(_counts(now.endings))
    return " · ".join(parts)


def show_forecast(forecast: Forecast, *, json: bool) -> None:
    """Print the estimated cost of a run."""
    if json:
        _write({"event": "forecast", **_forecast_fields(forecast)})
        return
    say = print
    say(f"{forecast.sessions:,} sessions are left.")
    rows = [
        ("calls", forecast.calls),
        ("prompt tokens", forecast.prompt),
        ("  of them cacheable", forecast.cached),
        ("completion tokens", forecast.completion),
    ]
    for name, estimate in rows:
        say(f"{name:<22}{estimate.value:>18,.0f}   ({estimate.low:,.0f} to {estimate.high:,.0f})")
    for name, money in (("US dollars", forecast.usd), ("  with prefix cache", forecast.usd_cached)):
        if money is not None:
            say(f"{name:<22}{money.value:>18,.2f}   ({money.low:,.2f} to {money.high:,.2f})")
    if forecast.usd is None:
        say(f"{'US dollars':<22}{'unknown':>18}   (give --price, or pip install 'bactrian[prices]')")
    time = forecast.seconds
    say(f"{'time':<22}{_duration(time.value):>18}   ({_duration(time.low)} to {_duration(time.high)})")
    say(forecast.basis)
    say("Every call sends the whole conversation again, so prompt tokens grow with the square of its length.")


def _forecast_fields(forecast: Forecast) -> dict[str, object]:
    return {
        "sessions": forecast.sessions,
        "calls": _three(forecast.calls),
        "prompt_tokens": _three(forecast.prompt),
        "completion_tokens": _three(forecast.completion),
        "cached_tokens": _three(forecast.cached),
        "usd": _three(forecast.usd),
        "usd_cached": _three(forecast.usd_cached),
        "seconds": _three(forecast.seconds),
        "basis": forecast.basis,
    }


def _three(estimate: Estimate | None) -> dict[str, float] | None:
    return estimate and {"value": estimate.value, "low": estimate.low, "high": estimate.high}


def _fields(now: ProgressSnapshot) -> dict[str, object]:
    return {
        "total": now.total,
        "done": now.done,
        "failed": now.failed,
        "in_flight": now.in_flight,
        "endings": dict(now.endings),
        "calls": now.calls,
        "failed_calls": now.failed_calls,
        "prompt_tokens": now.usage.prompt,
        "completion_tokens": now.usage.completion,
        "cached_tokens": now.usage.cached,
        "cached_share": round(now.cached_share, 4),
        "usd": now.usd,
        "run_tokens": now.run_tokens,
        "run_usd": now.run_usd,
        "seconds": round(now.seconds, 3),
        "calls_per_second": round(now.calls_per_second, 3),
        "tokens_per_second": round(now.tokens_per_second, 3),
        "seconds_left": None if now.seconds_left is None else round(now.seconds_left, 1),
        "requests_at_once": now.limit,
        "closed_for": round(now.closed_for, 1),
        "silent": now.silent,
        "left_open": now.open,
        "usd_expected": _three(now.usd_expected),
        "tokens_expected": _three(now.tokens_expected),
        "usd_open": now.usd_open,
        "changes": list(now.changes),
    }


def _counts(endings: Mapping[str, int]) -> str:
    return ", ".join(
        f"{code} {count:,}" for code, count in sorted(endings.items(), key=lambda pair: -pair[1])
    )


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days:,} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s" if seconds < 10 else f"{rest} s"


def _write(fields: Mapping[str, object]) -> None:
    sys.stdout.write(json.dumps(fields, ensure_ascii=False) + "\n")
    sys.stdout.flush()
