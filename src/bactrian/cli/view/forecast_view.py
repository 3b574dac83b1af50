"""The forecast of a run, as a table or as JSON."""

from __future__ import annotations

import json as encoder

from bactrian.api.progress_rows import write_duration
from bactrian.cli.terminal.console import open_output
from bactrian.records.text import write_count
from bactrian.runs.cost import Estimate
from bactrian.runs.forecast import Forecast


def show_forecast(forecast: Forecast, *, json: bool, title: str = "") -> None:
    """Print the estimated cost of a run, below ``title`` if there are several."""
    if json:
        print(encoder.dumps({"event": "forecast", **_forecast_fields(forecast)}, ensure_ascii=False))
        return
    out = open_output()
    say = print
    if title:
        say(f"{title}:")
    out.say(f"{write_count(forecast.sessions, 'session')} {'is' if forecast.sessions == 1 else 'are'} left.")
    if forecast.equal_roles:
        out.say(
            f"{forecast.equal_roles:,} jobs with equal roles are not among them; --equal-roles adds them."
        )
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
        say(f"{'US dollars':<22}{'unknown':>18}   (give --price)")
    time = forecast.seconds
    say(
        f"{'time':<22}{write_duration(time.value):>18}   ({write_duration(time.low)} to {write_duration(time.high)})"
    )
    out.say(forecast.basis)
    if title:
        say("")


def _forecast_fields(forecast: Forecast) -> dict[str, object]:
    return {
        "sessions": forecast.sessions,
        "equal_roles_left_out": forecast.equal_roles,
        "calls": write_estimate(forecast.calls),
        "prompt_tokens": write_estimate(forecast.prompt),
        "completion_tokens": write_estimate(forecast.completion),
        "cached_tokens": write_estimate(forecast.cached),
        "usd": write_estimate(forecast.usd),
        "usd_cached": write_estimate(forecast.usd_cached),
        "seconds": write_estimate(forecast.seconds),
        "basis": forecast.basis,
    }


def write_estimate(estimate: Estimate | None) -> dict[str, float] | None:
    """Return an estimate as JSON."""
    return estimate and {"value": estimate.value, "low": estimate.low, "high": estimate.high}
