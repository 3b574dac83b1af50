"""How far a run has come: its jobs, endings, failures and cost, and the command that resumes it."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from bactrian.analyze.session_summary import UNFINISHED
from bactrian.api.commands import remove_credentials
from bactrian.api.reading.stored import StoredRun, read_stored_run
from bactrian.api.resume import find_command, is_resumable, write_resume_command
from bactrian.generate.forecast import Forecast, forecast_run
from bactrian.generate.run import RunOrder
from bactrian.generate.run_models import RunLimits
from bactrian.generate.spread import read_spread
from bactrian.models.pricing import choose_prices, make_pricing
from bactrian.models.registry import ModelOptions
from bactrian.models.wrappers.budget import Price, UsageMeter
from bactrian.records.run import Progress
from bactrian.records.text import show, to_printable, write_count, write_dollars
from bactrian.records.usage import Usage
from bactrian.stats.proportion import Proportion
from bactrian.store import RunReader, is_locked, name_run, open_store

_FAILED = "failed"
_WRITTEN = "being written"


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How far a run has come.

    Example:
        >>> status = run.status()
        >>> status.state, status.sessions, status.failed
        ('plays', 1, 0)
    """

    run: Path
    state: str
    """``complete``, ``incomplete``, ``being written``, ``imported`` or ``plays``."""
    recipe: str | None
    """Name of the recipe; None if the run was not made from one."""
    models: tuple[str, ...]
    seed: int | None
    jobs: int | None
    """Jobs that were asked for; None if the run was not made from a recipe."""
    left: int
    """Jobs, or sessions of plays, that have not ended."""
    sessions: int
    """Sessions that have begun."""
    open: int
    """Sessions that have begun and not ended."""
    failed: int
    imported: int
    endings: Mapping[str, Proportion]
    """Share of the sessions that ended, by code; the most frequent first."""
    usage: Usage
    usd: float | None
    """Cost so far in US dollars; None if a price is unknown."""
    forecast: Forecast | None
    """What the jobs that are left take; None if nothing is left, or it cannot be estimated."""
    command: str | None
    """The command that resumes it, quoted for the shell; None if nothing is left to do, or only the command or call
    that made it resumes it."""

    def describe(self) -> dict[str, Any]:
        """Return the status as a JSON object.

        Example:
            >>> run.status().describe()["endings"]["task_done"]["count"]
            1
        """
        coming = self.forecast
        return {
            "run": str(self.run),
            "state": self.state,
            "recipe": self.recipe,
            "models": list(self.models),
            "seed": self.seed,
            "jobs": self.jobs,
            "left": self.left,
            "sessions": self.sessions,
            "open": self.open,
            "failed": self.failed,
            "imported": self.imported,
            "endings": {
                code: {
                    "count": one.count,
                    "rate": one.rate,
                    "low": one.interval[0],
                    "high": one.interval[1],
                }
                for code, one in self.endings.items()
            },
            "prompt_tokens": self.usage.prompt,
            "completion_tokens": self.usage.completion,
            "usd": self.usd,
            "usd_left": None
            if coming is None or coming.usd is None
            else {"value": coming.usd.value, "low": coming.usd.low, "high": coming.usd.high},
            "command": self.command,
        }

    def show(self) -> None:
        """Display the status in a notebook, or print it elsewhere.

        Example:
            >>> run.status().show()
            run       tea.db (plays)
            ...
        """
        show(self)

    def __str__(self) -> str:
        return "\n".join(f"{name:<10}{to_printable(text)}" for name, text in self.list_facts())

    def _repr_html_(self) -> str:
        return render_facts(self.list_facts())

    def list_facts(self) -> list[tuple[str, str]]:
        """Return the lines that a person reads, each with its label.

        Example:
            >>> run.status().list_facts()[0]
            ('run', 'tea.db (plays)')
        """
        lines = [("run", f"{self.run} ({self.state})")]
        if self.recipe is not None:
            seed = "" if self.seed is None else f", seed {self.seed}"
            lines.append(("recipe", f"{self.recipe}{seed}"))
        if self.models:
            lines.append(("models", ", ".join(self.models)))
        lines.append(("sessions", self._count_sessions()))
        name_width = max(map(len, self.endings), default=0)
        for number, (code, one) in enumerate(self.endings.items()):
            low, high = one.interval
            label = "" if number else "endings"
            lines.append(
                (label, f"{code:<{name_width}} {one.count:>5,} {one.rate:>5.0%} ({low:.0%} to {high:.0%})")
            )
        if self.failed:
            lines.append(
                ("failures", f"{self.failed:,}; reasons: bactrian failures {shlex.quote(name_run(self.run))}")
            )
        lines.append(("cost", self._write_cost()))
        if self.command is not None:
            lines.append(("resume", self.command))
        elif self.left and self.state != _WRITTEN:
            lines.append(("resume", "Repeat the command, or the call in Python, that made it."))
        return lines

    def _count_sessions(self) -> str:
        if self.jobs is None:
            text = f"{self.sessions:,}"
            return f"{text}, {self.open:,} not ended" if self.open else text
        text = f"{self.jobs - self.left:,} of {write_count(self.jobs, 'job')} ended"
        if self.open:
            text += f", {self.open:,} begun and not ended"
        return f"{text}, {self.imported:,} imported" if self.imported else text

    def _write_cost(self) -> str:
        about = "about " if self.usage.estimated else ""
        tokens = f"{about}{self.usage.prompt:,} prompt and {self.usage.completion:,} completion tokens"
        text = f"{write_dollars(self.usd)} so far ({tokens})"
        coming = self.forecast
        if coming is None:
            return text
        if coming.usd is None:
            return f"{text}; to come: unknown"
        value, low, high = map(write_dollars, (coming.usd.value, coming.usd.low, coming.usd.high))
        return f"{text}; to come: {value} ({low} to {high})"


def render_facts(facts: Iterable[tuple[str, str]]) -> str:
    """Return labelled facts as an HTML table; all text is escaped."""
    left = ' style="text-align:left"'
    rows = "".join(
        f"<tr><th{left}>{escape(to_printable(name))}</th><td{left}>{escape(to_printable(text))}</td></tr>"
        for name, text in facts
    )
    return f"<table>{rows}</table>"


async def read_status(run: Path) -> RunStatus:
    """Return how far the run has come, as of one moment; another process may write it meanwhile.

    Raises:
        InputError: the file is not a run.
        StoreError: it cannot be read.
    """
    async with open_store(run, read_only=True) as opened, opened.snapshot() as store:
        progress = [one async for one in store.progress()]
        imported = await store.list_imported()
        content = await store.recipe()
        stored = None if content is None or "recipe" not in content else await read_stored_run(store)
        spent = await store.count_spent()
        usd = await read_cost(store, stored, spent)
        models = await _find_models(store, stored)
        commands = await store.commands()
    locked = is_locked(run)
    base = _count(run, progress, imported, spent)
    if stored is None:
        open_ = [one.id for one in progress if one.ending is None and one.id not in imported]
        going = next((one for one in open_ if is_resumable(find_command(commands, one))), None)
        state = _WRITTEN if locked else "imported" if len(imported) == len(progress) else "plays"
        command = (
            None if going is None or locked else shlex.join(["bactrian", "resume", name_run(run), going])
        )
        left = base.open if open_ else 0
        return replace(base, state=state, models=models, usd=usd, left=left, command=command)
    order = build_forecast_order(stored, run, limit=stored.options.get("limit"))
    coming = await forecast_run(order)
    left = coming.sessions
    state = _WRITTEN if locked else "incomplete" if left else "complete"
    return replace(
        base,
        state=state,
        recipe=stored.recipe.name,
        models=models,
        seed=stored.plan.seed,
        jobs=coming.jobs,
        left=left,
        usd=usd,
        forecast=coming if left else None,
        command=write_resume_command(run, stored) if left and not locked else None,
    )


async def read_cost(store: RunReader, stored: StoredRun | None, spent: Mapping[str, Usage]) -> float | None:
    """Return what the run cost in US dollars; None if a price is unknown. Prices given to the run are used again."""
    if stored is not None:
        prices = make_pricing(stored.options.get("price"), _address(stored.options))
        models = stored.plan.models
        return _sum_cost(
            ((models.get(agent, models.get("lister", "")), used) for agent, used in spent.items()), prices
        )
    made = {one.session: one.options for one in await store.commands() if one.verb == "play"}
    stages = {name.rpartition("-")[0]: options for name, options in made.items()}
    totals: defaultdict[tuple[str | None, str | None], defaultdict[str, Usage]]
    totals = defaultdict(lambda: defaultdict(Usage))
    async for session in store.sessions():
        names = session.provenance.models
        if session.provenance.is_imported:
            continue
        options = made.get(session.id) or stages.get(session.id.rpartition("-")[0], {})
        total = totals[options.get("price"), _address(options)]
        total[names.get("task_specifier", "")] += session.preparation
        for turn in session.turns:
            total[names.get(turn.speaker, "")] += turn.usage
    costs = [_sum_cost(total.items(), make_pricing(*terms)) for terms, total in totals.items()]
    return None if None in costs else sum(filter(None, costs))


def _sum_cost(parts: Any, prices: Callable[[str], Price | None]) -> float | None:
    total = 0.0
    for name, used in parts:
        if not used.total:
            continue
        price = None if name.startswith("python:") else prices(name)
        if price is None:
            return None
        total += price.cost(used)
    return total


def _address(options: Mapping[str, Any]) -> str | None:
    address = options.get("base_url")
    return None if address is None else remove_credentials(address)


async def _find_models(store: RunReader, stored: StoredRun | None) -> tuple[str, ...]:
    if stored is not None:
        return tuple(dict.fromkeys(stored.plan.models.values()))
    names: dict[str, None] = {}
    async for session in store.sessions():
        names |= dict.fromkeys(session.provenance.models.values())
    return tuple(names)


def _count(
    run: Path, progress: list[Progress], imported: frozenset[str], spent: Mapping[str, Usage]
) -> RunStatus:
    counts: dict[str, int] = {}
    for one in progress:
        counts[one.ending or UNFINISHED] = counts.get(one.ending or UNFINISHED, 0) + 1
    open_ = counts.pop(UNFINISHED, 0)
    ended = sum(counts.values())
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return RunStatus(
        run=run,
        state="",
        recipe=None,
        models=(),
        seed=None,
        jobs=None,
        left=0,
        sessions=len(progress),
        open=open_,
        failed=counts.get(_FAILED, 0),
        imported=len(imported),
        endings={code: Proportion(count, ended) for code, count in ordered},
        usage=sum(spent.values(), Usage()),
        usd=None,
        forecast=None,
        command=None,
    )


def build_forecast_order(
    stored: StoredRun, run: Path, *, limit: int | None, price: str | None = None, base_url: str | None = None
) -> RunOrder:
    """Return an order to forecast the run with; nothing can be sent with it."""
    options = stored.options
    address = base_url or _address(options)
    known = choose_prices(stored.plan.models.values(), price or options.get("price"), address)
    limits = RunLimits(options.get("concurrency"))
    spread = read_spread(options, stored.plan.seed)
    return RunOrder(
        stored.plan, run, ModelOptions(address), UsageMeter(prices=known), limits, limit, spread=spread
    )
