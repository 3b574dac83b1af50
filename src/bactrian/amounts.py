"""How amounts are written for people: money, shares, differences, tokens. Terminal, pages, reports and charts use this.

A percent sign follows a space, a negative number has a minus sign (U+2212), and money is in US dollars.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import floor, log10

from bactrian.records.turn import Usage

NOTHING = "–"
"""Stands for a value that is not known or not defined."""


def write_dollars(amount: float | None) -> str:
    """Return an amount of US dollars with two decimals; below 10 cents with two digits; ``unknown`` for None."""
    return "unknown" if amount is None else write_compared(amount)[0]


def write_compared(*amounts: float) -> tuple[str, ...]:
    """Return amounts of US dollars that stand together, all with the decimals of the smallest."""
    # 9.96 cents are 10, with two decimals
    positive = [float(f"{amount:.1e}") for amount in amounts if amount > 0]
    decimals = max(2, 1 - floor(log10(min(positive, default=1))))
    return tuple(f"${amount:,.{decimals}f}" for amount in amounts)


def write_dollar_change(difference: float | None) -> str:
    """Return a difference of US dollars with its sign."""
    if difference is None:
        return NOTHING
    return write_minus(f"{'-' if difference < 0 else '+'}{write_dollars(abs(difference))}")


def write_cost(
    usd: float | None,
    unpriced: Sequence[str] = (),
    budget: float | None = None,
    prepared: float | None = None,
) -> str:
    """Return what was paid, of which budget, and what of it prepared tasks and lists; or what has no known price."""
    if usd is None:
        return f"unknown (no price of {', '.join(unpriced)})" if unpriced else "unknown"
    text = write_dollars(usd) if budget is None else " of ".join(write_compared(usd, budget))
    return f"{text}, {write_dollars(prepared)} of it for tasks and lists" if prepared else text


def write_tokens(usage: Usage) -> str:
    """Return the tokens of prompts, with the share that was cached, and of completions."""
    return " and ".join(list_tokens(usage))


def list_tokens(usage: Usage) -> tuple[str, ...]:
    """Return the parts of :func:`write_tokens`."""
    if not usage.total:
        return ("unknown",)
    about = "about " if usage.estimated else ""
    cached = f" ({write_percent(usage.cached_share, 0)} cached)" if usage.cached else ""
    return f"{about}{usage.prompt:,} prompt{cached}", f"{usage.completion:,} completion"


def write_percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage: ``34.2 %``; a dash for None. All and nothing have no decimals."""
    return NOTHING if share is None else f"{_write_hundredfold(share, digits)} %"


def write_percents(low: float | None, high: float | None, digits: int = 1) -> str:
    """Return the ends of an interval of shares that stands alone: ``30.1–38.0 %``; a dash if they are not known."""
    return NOTHING if low is None or high is None else f"{write_ends(low, high, digits)} %"


def write_ends(low: float | None, high: float | None, digits: int = 1) -> str:
    """Return the ends of an interval beside its share, whose percent sign holds for them: ``30.1–38.0``."""
    if low is None or high is None:
        return NOTHING
    return f"{_write_hundredfold(low, digits)}–{_write_hundredfold(high, digits)}"


def write_points(difference: float | None, digits: int | None = None) -> str:
    """Return a difference of shares in percentage points, with its sign; by default a decimal if it is below one."""
    if difference is None:
        return NOTHING
    return write_signed(100 * difference, int(0 < abs(difference) < 0.01) if digits is None else digits)


def write_signed(value: float | None, digits: int = 1) -> str:
    """Return a difference with its sign."""
    return NOTHING if value is None else write_minus(f"{value:+,.{digits}f}")


def write_minus(text: str) -> str:
    """Return a formatted number with a minus sign instead of a hyphen."""
    return text.replace("-", "\N{MINUS SIGN}", 1) if text.startswith("-") else text


def _write_hundredfold(share: float, digits: int) -> str:
    # The end of an interval may differ from all or nothing in its last bits.
    whole = min(abs(share), abs(share - 1.0)) < 1e-9
    return write_minus(f"{100 * share:.{0 if whole else digits}f}")


def write_duration(seconds: float) -> str:
    """Return a duration in its two largest units."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days:,} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{seconds:.1f} s" if seconds < 10 else f"{rest} s"


def write_seconds(seconds: float | None) -> str:
    """Return how long a reply takes, with two digits; ``under 1 ms`` says enough of a shorter time."""
    if seconds is None or seconds < 0.001:
        return NOTHING if seconds is None else "under 1 ms"
    return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:,.0f} s"


def write_about_rate(per_second: float, what: str) -> str:
    """Return an estimated rate by the shortest time in which something happens: ``about 12 jobs a minute``."""
    units = (("second", 1), ("minute", 60), ("hour", 3600), ("day", 86_400))
    name, seconds = next((unit for unit in units if per_second * unit[1] >= 1), units[-1])
    number = round(per_second * seconds)
    return f"about {number:,} {what}{'' if number == 1 else 's'} a {name}"


_ROUGH = 0.1  # share of a run before which nobody has seen how long its conversations are


def write_time_left(seconds: float, done: float) -> str:
    """Return an estimate of the time left: about how long, or while too small a share is ``done``, a range.

    From 3 % of the time on, the range held the truth in nine of ten simulated runs or more (``docs/statistics.md``).
    """
    if done >= _ROUGH:
        return f"about {write_about_duration(seconds)} left"
    return f"{write_about_duration(seconds / 2)} to {write_about_duration(2 * seconds)} left"


def write_about_duration(seconds: float) -> str:
    """Return an estimated duration, no more exact than it is."""
    if seconds < 10:
        return f"{max(1, round(seconds))} s"
    step = 5 if seconds < 60 else 10 if seconds < 600 else 60
    rounded = round(seconds / step) * step
    return write_duration(rounded).removesuffix(" 0 s")


def join_facts(facts: Iterable[str], width: int) -> list[str]:
    """Return ``facts`` in lines of at most ``width`` cells; only a fact that is longer than a line exceeds it."""
    from rich.cells import cell_len

    lines: list[str] = []
    for fact in facts:
        line = " · ".join((lines[-1], fact)) if lines else fact
        if lines and cell_len(line) <= width:
            lines[-1] = line
        else:
            lines.append(fact)
    return lines
