"""The progress of a run as labelled rows of text, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bactrian import amounts
from bactrian.records.text import to_line, write_count
from bactrian.runs.progress import ProgressSnapshot


@dataclass(frozen=True, slots=True)
class ProgressRow:
    """One row: its label, and facts that may be put on one line or on several."""

    label: str
    facts: tuple[str, ...]
    alarm: bool = False  # True if something is wrong


def list_rows(now: ProgressSnapshot, *, ended: bool = False) -> Iterator[ProgressRow]:
    """Yield the rows; ``ended`` if the command has ended, so that nothing is expected of it."""
    here = " by this command" if ended and now.run_usage.total > now.usage.total else ""
    yield ProgressRow(
        "time", (f"{amounts.write_duration(now.seconds)}{here}",) if ended else tuple(_list_times(now))
    )
    if costs := tuple(_list_costs(now, ended=ended)):
        yield ProgressRow("cost", tuple(fact.removeprefix("cost ") for fact in costs))
    tokens = amounts.list_tokens(now.run_usage) if now.run_usage.total else ()
    if here:
        tokens += (f"{now.usage.total:,}{here}",)
    if tokens := (*tokens, *_list_limit(now, ended=ended)):
        yield ProgressRow("tokens", tokens)
    running = () if ended else (f"{write_count(now.in_flight, 'conversation')} in flight",)
    yield ProgressRow("calls", (f"{now.calls:,}{here}", f"{now.calls_per_second:,.1f}/s", *running))
    if now.endings:
        counts = sorted(now.endings.items(), key=lambda pair: -pair[1])
        yield ProgressRow("endings", tuple(f"{code} {count:,}" for code, count in counts))
    if now.last and not ended:
        yield ProgressRow("last", (to_line(now.last),))
    if not ended:
        yield from _list_waits(now)
    if now.failed or now.failed_calls:
        failed = [f"{write_count(now.failed, 'conversation')} failed"] * bool(now.failed)
        if now.failed_calls:
            failed += [f"{write_count(now.failed_calls, 'call')} failed, {now.repeated_calls:,} repeated"]
        yield ProgressRow("faults", tuple(failed), alarm=True)


def write_line(now: ProgressSnapshot) -> str:
    """Return the progress on one line, for logs and terminals that cannot redraw."""
    facts = [f"{now.done:,}/{now.total:,} done"]
    for row in list_rows(now):
        if row.label == "calls":
            facts += f"{now.calls:,} calls", *row.facts[1:]
        elif row.label == "cost":
            facts += _list_costs(now, ended=False)
        elif row.label == "tokens":
            facts += _list_limit(now, ended=False)
        elif row.label != "last":
            facts += row.facts
    return " · ".join(facts)


def _list_times(now: ProgressSnapshot) -> Iterator[str]:
    yield f"{amounts.write_duration(now.seconds)} so far"
    if now.seconds_left is not None and now.done < now.total:
        yield amounts.write_time_left(now.seconds_left, now.share_done)
    if not now.done and now.seconds_to_first is not None:
        yield f"first conversation in about {amounts.write_about_duration(now.seconds_to_first)}"
    elif not now.calls and now.slow_start:
        yield now.slow_start


def _list_limit(now: ProgressSnapshot, *, ended: bool) -> Iterator[str]:
    if now.max_tokens is not None:
        yield f"{now.run_usage.total:,} of {now.max_tokens:,} tokens"
        if not ended and now.tokens_expected:
            value = now.tokens_expected.value
            yield _compare(value, now.max_tokens, now, f"{value:,.0f} in the end")


def _list_costs(now: ProgressSnapshot, *, ended: bool) -> Iterator[str]:
    usd = now.run_usd
    if usd is None:
        yield f"cost {amounts.write_cost(None, now.unpriced)}"
        return
    if now.free and not usd:
        return
    yield amounts.write_cost(usd, budget=now.max_usd)
    if ended and now.usd is not None and usd > now.usd:
        yield f"{amounts.write_dollars(now.usd)} by this command"
    if ended or now.usd_expected is None or now.done >= now.total:
        return
    value, low, high = map(amounts.write_dollars, now.usd_expected)
    yield _compare(now.usd_expected.value, now.max_usd, now, f"{value} in the end ({low} to {high})")


def _compare(expected: float, limit: float | None, now: ProgressSnapshot, shown: str) -> str:
    if limit is not None and expected > limit:
        return f"enough for about {now.affordable:,} of {now.total:,}"
    return f"about {shown}"


def _list_waits(now: ProgressSnapshot) -> Iterator[ProgressRow]:
    if now.closed_for:
        why = "the endpoint does not answer" if now.silent else "the endpoint asks to wait"
        yield ProgressRow("waits", (why, f"next try in {now.closed_for:.0f} s"), alarm=True)
    if now.paused:
        text = f"{write_count(now.paused, 'conversation')}, until the budget pays for them"
        yield ProgressRow("paused", (text,))
