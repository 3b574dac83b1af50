"""The facts of a run that every surface tells alike: contents, cost, jobs, endings, failures, and how to resume it."""

from __future__ import annotations

import asyncio
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bactrian import amounts
from bactrian.analyze.estimates import write_proportion
from bactrian.api import resumption
from bactrian.api.dataset import build_order, share_limit
from bactrian.api.known_runs import open_anywhere
from bactrian.batches.ledger import count_out
from bactrian.errors import BactrianError, InputError
from bactrian.records.run import WRITTEN, name_state
from bactrian.records.session import HUMAN
from bactrian.records.text import show, to_printable, write_count
from bactrian.records.turn import Usage
from bactrian.runs.forecast import Forecast, forecast_run, list_asked
from bactrian.runs.progress import LATE, list_caching, warn_of_cache
from bactrian.runs.spending import Prices, Spending, add_up, read_pricing
from bactrian.runs.wiring import RunOrder
from bactrian.stats.intervals import Proportion, are_independent
from bactrian.store import RunStore, find_address, name_run
from bactrian.store.care import is_locked
from bactrian.store.locations import find_known_runs

if TYPE_CHECKING:
    from bactrian.shared.reading import WorkerState


# The facts of a run that commands, reports and pages tell alike: what it contains, and what it cost.


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What a run contains and what it cost, as of one moment."""

    sessions: int
    messages: int
    imported: int
    open: int
    """Sessions that have begun and not ended."""
    endings: Mapping[str, Proportion]
    """Share of the sessions that have ended, by code, the most frequent first."""
    models: tuple[str, ...]
    """Models that wrote something in it, and ``human`` if a person did."""
    spending: Spending
    cache_warning: str
    """What is wrong with the servers' prefix cache; empty if nothing is known to be."""
    judged: Spending
    """What judges of findings cost, which :attr:`spending` leaves out."""

    @property
    def has_tokens(self) -> bool:
        """False if another program made all of it, and its tokens are not known."""
        return bool(self.spending.usage.total) or not self.imported or self.imported < self.sessions

    @property
    def failed(self) -> int:
        """Sessions that failed."""
        return self.endings["failed"].count if "failed" in self.endings else 0


async def describe_usage(store: RunStore, prices: Prices | None = None) -> dict[str, Any]:
    """Return what was paid for in a run, and its models, as the JSON of a report. ``prices`` as for read_facts."""
    facts = await read_facts(store, prices)
    spending = facts.spending
    return {
        **_count_tokens(spending.usage, known=facts.has_tokens),
        "estimated": spending.usage.estimated,
        "cached_share": spending.usage.cached_share,
        "cache_warning": facts.cache_warning,
        "usd": spending.usd,
        "unpriced": list(spending.unpriced),
        "prepared": spending.prepared,
        "agents": {agent: _count_tokens(usage) for agent, usage in spending.agents.items()},
        "models": list(facts.models),
    }


def _count_tokens(usage: Usage, end: str = "", *, known: bool = True) -> dict[str, int | None]:
    names = ("prompt", "completion", "cached", "total")
    return {f"{name}{end}": getattr(usage, name) if known else None for name in names}


async def read_facts(store: RunStore, prices: Prices | None = None) -> RunFacts:
    """Return the facts of a run. Reads the row of every turn, which takes seconds for a million.

    Args:
        store: The run; a snapshot of it if another process writes it.
        prices: Replace the prices that its commands counted by.
    """
    sessions, messages = await store.count_rows()
    by_session = await store.list_models()
    pricing = await read_pricing(store, prices)
    imported = len(await store.list_imported())
    spending = pricing.add_up(await store.list_spent(each=pricing.by_session))
    if imported and imported == sessions and not spending.usage.total:
        # Another program made all of it, and its tokens are not known.
        spending = replace(spending, usd=None)
    written = {model for models in by_session.values() for model in models.values()}
    people = {HUMAN} if await store.has_person() else set[str]()
    addresses: dict[str, str] = {}
    for command in await store.commands():
        addresses |= command.options.get("addresses") or {}
    caching = list_caching(written, addresses)
    judges = [
        (name.partition(" ")[0], usage) for name, usage in (await store.list_judged()).items() if usage.total
    ]
    return RunFacts(
        sessions,
        messages,
        imported,
        *await count_endings(store),
        tuple(sorted(people | (written or {*pricing.models.values()}) | spending.models)),
        spending,
        warn_of_cache(await store.count_late(LATE), caching) if caching else "",
        add_up((judge, judge, usage, pricing.judges(judge)) for judge, usage in judges),
    )


async def count_endings(store: RunStore) -> tuple[int, dict[str, Proportion]]:
    """Count the sessions that have not ended, and the others by the code of their ending, the most frequent first."""
    counts = Counter([session.ending or "" async for session in store.progress()])
    unfinished = counts.pop("", 0)
    independent = are_independent(*await store.count_distinct())
    shares = {code: Proportion(count, counts.total(), independent) for code, count in counts.most_common()}
    return unfinished, shares


# How far a run has come: its jobs, endings, failures and cost, and the command that resumes it.


@dataclass(frozen=True, slots=True)
class RunStatus:
    """How far a run has come.

    Example:
        >>> status = run.status()
        >>> status.state, status.sessions, status.failed
        ('complete', 1, 0)
    """

    run: Path
    state: str
    """``complete``, ``incomplete``, ``being written`` or ``imported``."""
    facts: RunFacts
    left: int
    """Jobs that have not ended; of plays, sessions that have not, failed or were stopped."""
    recipe: str | None = None
    """Name of the recipe; None if the run was not made from one."""
    seed: int | None = None
    jobs: int | None = None
    """Jobs that were asked for; None if the run was not made from a recipe."""
    others: int = 0
    """Sessions of no job that was asked for last: of other jobs, and of ``play``."""
    open_others: int = 0
    """Those of them that have not ended."""
    budget: float | None = None
    """Limit of the last command, in US dollars."""
    max_tokens: int | None = None
    """Limit of the last command, in tokens."""
    unanswered: int = 0
    """Sessions and lists that are not complete, and whose last request was not answered."""
    requests_out: int = 0
    """Requests in batches whose replies are not collected yet."""
    forecast: Forecast | None = None
    """What the jobs that are left take; None if nothing is left, or it cannot be estimated."""
    workers: tuple[WorkerState, ...] = ()
    """The processes that make a shared run, or did."""
    parts: tuple[Path, ...] = ()
    """The files that were read as one run; empty if it is one file."""
    command: str | None = None
    """The command that resumes it, quoted for the shell; None if nothing is left to do, or only the command or call
    that made it resumes it."""

    @property
    def sessions(self) -> int:
        """Sessions that have begun.

        Example:
            >>> status.sessions
            1
        """
        return self.facts.sessions

    @property
    def open(self) -> int:
        """Sessions that have begun and not ended.

        Example:
            >>> status.open
            0
        """
        return self.facts.open

    @property
    def failed(self) -> int:
        """Sessions that failed.

        Example:
            >>> status.failed
            0
        """
        return self.facts.failed

    @property
    def imported(self) -> int:
        """Sessions that were imported.

        Example:
            >>> status.imported
            0
        """
        return self.facts.imported

    @property
    def models(self) -> tuple[str, ...]:
        """Models that wrote something in the run.

        Example:
            >>> status.models
            ('scripted',)
        """
        return self.facts.models

    @property
    def endings(self) -> Mapping[str, Proportion]:
        """Share of the sessions that have ended, by code; the most frequent first.

        Example:
            >>> status.endings["task_done"].count
            1
        """
        return self.facts.endings

    @property
    def usage(self) -> Usage:
        """Tokens of all requests that were paid for.

        Example:
            >>> status.usage == run.usage
            True
        """
        return self.facts.spending.usage

    @property
    def usd(self) -> float | None:
        """Cost so far in US dollars; None if a price is unknown.

        Example:
            >>> status.usd
            0.0
        """
        return self.facts.spending.usd

    def describe(self) -> dict[str, Any]:
        """Return the status as a JSON object.

        Example:
            >>> run.status().describe()["endings"]["task_done"]["count"]
            1
        """
        coming, seconds = self.forecast and self.forecast.usd, self._find_seconds_left()
        return {
            "run": str(find_address(self.run) or self.run),
            **({"parts": list(map(str, self.parts))} if self.parts else {}),
            "state": self.state,
            "recipe": self.recipe,
            "models": list(self.models),
            "seed": self.seed,
            "jobs": self.jobs,
            "left": self.left,
            "sessions": self.sessions,
            "others": self.others,
            "messages": self.facts.messages,
            "open": self.open,
            "failed": self.failed,
            "unanswered": self.unanswered,
            "imported": self.imported,
            "endings": {code: write_proportion(share) for code, share in self.endings.items()},
            **_count_tokens(self.usage, "_tokens", known=self.facts.has_tokens),
            "estimated": self.usage.estimated,
            "cached_share": self.usage.cached_share,
            "cache_warning": self.facts.cache_warning,
            "usd": self.usd,
            "unpriced": list(self.facts.spending.unpriced),
            "prepared": self.facts.spending.prepared,
            "judged": {"tokens": self.facts.judged.usage.total, "usd": self.facts.judged.usd},
            "budget": self.budget,
            "max_tokens": self.max_tokens,
            "requests_out": self.requests_out,
            "seconds_left": None if seconds is None else round(seconds, 1),
            "usd_left": coming and {"value": coming.value, "low": coming.low, "high": coming.high},
            **({"workers": [asdict(worker) for worker in self.workers]} if find_address(self.run) else {}),
            "command": self.command,
        }

    def show(self) -> None:
        """Display the status in a notebook, or print it elsewhere.

        Example:
            >>> run.status().show()
            run       tea.db (complete)
            ...
        """
        show(self)

    def __str__(self) -> str:
        return "\n".join(f"{name:<10}{to_printable(text)}" for name, text in self.list_facts())

    def _repr_html_(self) -> str:
        left = ' style="text-align:left"'
        rows = "".join(
            f"<tr><th{left}>{escape(to_printable(name))}</th><td{left}>{escape(to_printable(text))}</td></tr>"
            for name, text in self.list_facts()
        )
        return f"<table>{rows}</table>"

    def list_facts(self) -> list[tuple[str, str]]:
        """Return the lines that a person reads, each with its label.

        Example:
            >>> run.status().list_facts()[0]
            ('run', 'tea.db (complete)')
        """
        runs = (
            f"{len(self.parts):,} parts, {self.parts[0]} to {self.parts[-1]}"
            if self.parts
            else find_address(self.run) or self.run
        )
        lines = [("run", f"{runs} ({self.state})")]
        if self.recipe is not None:
            seed = "" if self.seed is None else f", seed {self.seed}"
            lines.append(("recipe", f"{self.recipe}{seed}"))
        if self.models:
            lines.append(("models", ", ".join(self.models)))
        lines.append(("sessions", self._count_sessions()))
        width = max(map(len, self.endings), default=0)
        for number, (code, share) in enumerate(self.endings.items()):
            ends = "" if share.interval is None else f" ({amounts.write_ends(*share.interval)})"
            line = f"{code:<{width}} {share.count:>5,} {amounts.write_percent(share.rate):>7}{ends}"
            lines.append(("" if number else "endings", line))
        if self.failed or self.unanswered:
            name = "PART" if self.parts else shlex.quote(name_run(self.run))
            counts = ((self.failed, ""), (self.unanswered, " not answered"))
            told = ", ".join(f"{count:,}{what}" for count, what in counts if count)
            lines.append(("failures", f"{told}; reasons: bactrian failures {name}"))
        lines.append(("cost", self._write_cost()))
        most = "" if self.max_tokens is None else f"; {self.usage.total:,} of {self.max_tokens:,}"
        lines.append(("tokens", amounts.write_tokens(self.usage) + most))
        if self.facts.cache_warning:
            lines.append(("cache", self.facts.cache_warning))
        if self.requests_out:
            out = write_count(self.requests_out, "request")
            lines.append(("batches", f"{out} out, not counted above; the command below collects the replies"))
        if (seconds := self._find_seconds_left()) is not None:
            # Where nearly all that is left is being played, how soon that ends is no rate.
            is_steady = seconds and self.left > 2 * self.open
            rate = amounts.write_about_rate(self.left / seconds, "conversation") if is_steady else ""
            guess = "" if self.forecast and self.forecast.measured else "; a guess, as too little is measured"
            left = amounts.write_time_left(seconds, 1 - self.left / max(1, self.jobs or 0))
            lines.append(("time", f"{left}{rate and f', {rate}'}{guess}"))
        if (judged := self.facts.judged).usage.total:
            cost, tokens = amounts.write_dollars(judged.usd), amounts.write_tokens(judged.usage)
            lines.append(("judge", f"{cost} beside the cost above; tokens: {tokens}"))
        lines += self._list_workers()
        if self.command is not None:
            lines.append(("resume", self.command))
        elif self.left and self.state != WRITTEN:
            lines.append(("resume", "Repeat the command, or the call in Python, that made it."))
        return lines

    def _list_workers(self) -> Iterator[tuple[str, str]]:
        """Yield a line for each process that makes a shared run, and one for those that did."""
        at_work = [worker for worker in self.workers if worker.state in ("working", "silent")]
        for number, each in enumerate(at_work):
            text = f"{each.name}: {write_count(each.claimed, 'job')} claimed, {each.in_flight:,} in flight,"
            text += f" {write_count(each.calls, 'call')}, {amounts.write_dollars(each.usd)};"
            text += f" heard of {each.silent:.0f} s ago"
            lost = "" if each.state == "working" else f", longer than its lease of {each.lease:.0f} s"
            yield "" if number else "workers", text + lost
        ended = Counter(worker.state for worker in self.workers)
        if ended["lost"] or ended["left"]:
            text = f"{ended['left']:,} left, {ended['lost']:,} lost their lease"
            yield "" if at_work else "workers", f"before: {text}"

    def _find_seconds_left(self) -> float | None:
        """Return the seconds left; None if nothing is left, or if batches are out, whose time nobody knows."""
        return None if self.forecast is None or self.requests_out else self.forecast.seconds.value

    def _count_sessions(self) -> str:
        if self.jobs is None:
            text = f"{self.sessions:,}"
        else:
            text = f"{self.jobs - self.left:,} of {write_count(self.jobs, 'job')} ended"
        if begun := self.open - self.open_others:
            text += f", {begun:,} begun and not ended"
        if self.imported and self.jobs is not None:
            text += f", {self.imported:,} imported"
        if self.others:
            text += f"; {write_count(self.others, 'conversation')} beside, which all lines below count, too"
            text += f", {self.open_others:,} of them not ended" if self.open_others else ""
        return f"{text}; {write_count(self.facts.messages, 'message')}"

    def _write_cost(self) -> str:
        spent = self.facts.spending
        text = amounts.write_cost(self.usd, spent.unpriced, self.budget, spent.prepared_usd)
        coming = self.forecast
        if coming is None:
            return text
        if coming.usd is None:
            return f"{text} so far; to come: unknown"
        ends = coming.write_ends(coming.usd, amounts.write_dollars)
        return f"{text} so far; to come: {amounts.write_dollars(coming.usd.value)} ({ends})"


async def read_status(run: Path) -> RunStatus:
    """Return how far the run has come, as of one moment; another process may write it meanwhile.

    Raises:
        InputError: the file is not a run.
        StoreError: it cannot be read.
    """
    async with open_anywhere(run) as (store, workers):
        facts = await read_facts(store)
        commands = await store.commands()
        stored = await resumption.read_stored_run(store) if await resumption.is_generated(store) else None
        imported = await store.list_imported()
        unanswered = len([failure async for failure in store.failures() if failure.open])
        begun = [session.id async for session in store.progress() if session.goes_on]
        coming = stored and await forecast_run(build_forecast_order(stored, run), store)
    terms: Mapping[str, Any] = commands[-1].options if commands else {}
    budget, tokens = terms.get("budget"), terms.get("max_tokens")
    if stored is None or coming is None:
        left = [name for name in begun if name not in imported]
        going = next(
            (name for name in left if resumption.is_resumable(resumption.find_command(commands, name))), None
        )
        resume = None if going is None else shlex.join(["bactrian", "resume", name_run(run), going])
        state = "imported" if facts.sessions and facts.imported == facts.sessions else name_state(len(left))
        return _settle(
            RunStatus(
                run,
                state,
                facts,
                len(left),
                budget=budget,
                max_tokens=tokens,
                unanswered=unanswered,
                command=resume,
            )
        )
    return _settle(
        RunStatus(
            run,
            name_state(coming.sessions),
            facts,
            left=coming.sessions,
            recipe=stored.recipe.name,
            seed=stored.plan.seed,
            jobs=coming.jobs,
            others=facts.sessions - len(imported) - coming.begun,
            open_others=facts.open - coming.open,
            budget=share_limit(budget, stored.plan.shard),
            max_tokens=None if tokens is None else tokens // stored.plan.shard.count,
            unanswered=unanswered,
            requests_out=await asyncio.to_thread(count_out, run),
            forecast=coming if coming.sessions else None,
            workers=tuple(workers),
            command=resumption.write_resume_command(run, stored) if coming.sessions else None,
        )
    )


def _settle(status: RunStatus) -> RunStatus:
    """Return the status of a run that another process may be writing: a file cannot be resumed then."""
    if find_address(status.run):
        writes = any(worker.state == "working" for worker in status.workers)
        return replace(status, state=WRITTEN) if writes else status
    return replace(status, state=WRITTEN, command=None) if is_locked(status.run) else status


def build_forecast_order(
    stored: resumption.StoredRun,
    run: Path,
    *,
    limit: int | None = None,
    sample: int | None = None,
    price: str | None = None,
    base_url: str | None = None,
) -> RunOrder:
    """Return an order to forecast the jobs of the run's last command, or others; nothing can be sent with it."""
    options = {**stored.options, "budget": None}
    if limit is not None or sample is not None:
        options |= {"limit": sample if limit is None else limit, "sample": sample}
    given = {"price": price, "base_url": base_url}
    options |= {name: value for name, value in given.items() if value is not None}
    return build_order(stored.plan, run, options)


async def list_asked_sessions(store: RunStore, run: Path) -> frozenset[str] | None:
    """Return the sessions of the jobs that the last command asked for; None if they are all, or if nobody knows."""
    if not await resumption.is_generated(store):
        return None
    stored = await resumption.read_stored_run(store)
    if stored.options.get("limit") is None:
        return None
    return await list_asked(build_forecast_order(stored, run))


async def read_price(store: RunStore) -> str | None:
    """Return the price that was given when the run was made; None if none was given."""
    prices = [
        command.options.get("price") for command in await store.commands() if command.verb == "generate"
    ]
    return prices[-1] if prices else None


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list of runs."""

    run: Path
    changed: float  # When the file changed last, in seconds since 1970
    status: RunStatus | None
    problem: str = ""  # Why it cannot be read, if there is no status

    @property
    def recipe(self) -> str:
        """Name of the recipe; ``plays`` or ``import`` for other runs."""
        if self.status is None:
            return ""
        return self.status.recipe or ("import" if self.status.state == "imported" else "plays")

    def describe(self) -> dict[str, Any]:
        """Return the line as a JSON object."""
        status = self.status
        return {
            "run": str(self.run),
            "state": status.state if status else "unreadable",
            "recipe": self.recipe,
            "sessions": status.sessions if status else 0,
            "open": status.open if status else 0,
            "jobs": status and status.jobs,
            "endings": {code: share.count for code, share in status.endings.items()} if status else {},
            "usd": status and status.usd,
            "changed": self.changed,
            **({"problem": self.problem} if self.problem else {}),
        }


async def list_runs(folders: Iterable[Path] = ()) -> list[RunSummary]:
    """Return the runs in ``folders``, the newest first; by default those that are known.

    Raises:
        InputError: the address of a shared run stands for a folder.
    """
    folders = tuple(folders)
    for address in filter(None, map(find_address, folders)):
        raise InputError(
            "The runs of folders are listed, and this is the address of one run.",
            where=str(address),
            next="`bactrian status ADDRESS` shows it.",
        )
    paths = find_known_runs(folders)
    return sorted([await _summarize(path) for path in paths], key=lambda run: -run.changed)


async def _summarize(path: Path) -> RunSummary:
    files = (path, path.with_name(f"{path.name}-wal"))
    changed = max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
    try:
        return RunSummary(path, changed, await read_status(path))
    except BactrianError as error:
        return RunSummary(path, changed, None, error.what)
