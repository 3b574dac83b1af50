"""How far a run has come: its jobs, endings, failures and cost, and the command that resumes it."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import Any

from bactrian.analyze.aggregate import UNFINISHED
from bactrian.analyze.report import to_object
from bactrian.api.arguments import remove_credentials
from bactrian.api.dataset import build_order
from bactrian.api.resumption import (
    StoredRun,
    find_command,
    is_generated,
    is_resumable,
    read_stored_run,
    write_resume_command,
)
from bactrian.errors import BactrianError
from bactrian.models.budget import Price
from bactrian.models.pricing import make_pricing
from bactrian.records.run import Command
from bactrian.records.text import show, to_printable, write_count, write_dollars
from bactrian.records.turn import Usage
from bactrian.runs.forecast import Forecast, forecast_run
from bactrian.runs.wiring import RunOrder
from bactrian.stats.intervals import Proportion
from bactrian.store import RunStore, find_data_folder, find_runs, is_locked, name_run, open_store

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
        coming = self.forecast and self.forecast.usd
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
            "endings": {code: to_object(share) for code, share in self.endings.items()},
            "prompt_tokens": self.usage.prompt,
            "completion_tokens": self.usage.completion,
            "usd": self.usd,
            "usd_left": coming and {"value": coming.value, "low": coming.low, "high": coming.high},
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
            ('run', 'tea.db (plays)')
        """
        lines = [("run", f"{self.run} ({self.state})")]
        if self.recipe is not None:
            seed = "" if self.seed is None else f", seed {self.seed}"
            lines.append(("recipe", f"{self.recipe}{seed}"))
        if self.models:
            lines.append(("models", ", ".join(self.models)))
        lines.append(("sessions", self._count_sessions()))
        width = max(map(len, self.endings), default=0)
        for number, (code, share) in enumerate(self.endings.items()):
            low, high = share.interval
            line = f"{code:<{width}} {share.count:>5,} {share.rate:>5.0%} ({low:.0%} to {high:.0%})"
            lines.append(("" if number else "endings", line))
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


async def read_status(run: Path) -> RunStatus:
    """Return how far the run has come, as of one moment; another process may write it meanwhile.

    Raises:
        InputError: the file is not a run.
        StoreError: it cannot be read.
    """
    async with open_store(run, read_only=True) as opened, opened.snapshot() as store:
        endings = await count_endings(store)
        imported = await store.list_imported()
        spent = await store.count_spent()
        commands = await store.commands()
        stored = await read_stored_run(store) if await is_generated(store) else None
        if stored is None:
            models, usd = await _read_plays(store, commands)
            begun = [
                session.id
                async for session in store.progress()
                if session.ending is None and session.id not in imported
            ]
        else:
            models, usd, begun = tuple(dict.fromkeys(stored.plan.models.values())), _price(stored, spent), ()
    open_ = endings.pop(UNFINISHED, 0)
    ended = sum(endings.values())
    base = RunStatus(
        run=run,
        state=_WRITTEN if is_locked(run) else "imported" if len(imported) == ended + open_ else "plays",
        recipe=None,
        models=models,
        seed=None,
        jobs=None,
        left=open_ if begun else 0,
        sessions=ended + open_,
        open=open_,
        failed=endings.get("failed", 0),
        imported=len(imported),
        endings={code: Proportion(count, ended) for code, count in endings.items()},
        usage=sum(spent.values(), Usage()),
        usd=usd,
        forecast=None,
        command=None,
    )
    locked = base.state == _WRITTEN
    if stored is None:
        going = next((name for name in begun if is_resumable(find_command(commands, name))), None)
        resume = None if going is None or locked else shlex.join(["bactrian", "resume", name_run(run), going])
        return replace(base, command=resume)
    coming = await forecast_run(build_forecast_order(stored, run, limit=stored.options.get("limit")))
    left = coming.sessions
    return replace(
        base,
        state=_WRITTEN if locked else "incomplete" if left else "complete",
        recipe=stored.recipe.name,
        seed=stored.plan.seed,
        jobs=coming.jobs,
        left=left,
        forecast=coming if left else None,
        command=write_resume_command(run, stored) if left and not locked else None,
    )


async def count_endings(store: RunStore) -> dict[str, int]:
    """Count sessions by code of their ending, the most frequent first; ``unfinished`` for those without one."""
    counts = Counter([session.ending or UNFINISHED async for session in store.progress()])
    return dict(counts.most_common())


def _price(stored: StoredRun, spent: Mapping[str, Usage]) -> float | None:
    """Return the cost of a run of a recipe, by the prices that were given to it; None if one is unknown."""
    models, options = stored.plan.models, stored.options
    parts = [(models.get(agent, models.get("lister", "")), usage) for agent, usage in spent.items()]
    return _sum_cost(parts, make_pricing(options.get("price"), _find_address(options)))


async def _read_plays(store: RunStore, commands: Sequence[Command]) -> tuple[tuple[str, ...], float | None]:
    """Return the models of plays, and their cost by the prices given to each; None if a price is unknown."""
    made = {command.session: command.options for command in commands if command.verb == "play"}
    stages = {name.rpartition("-")[0]: options for name, options in made.items()}
    models: dict[str, None] = {}
    totals: defaultdict[tuple[str | None, str | None], defaultdict[str, Usage]]
    totals = defaultdict(lambda: defaultdict(Usage))
    async for session in store.sessions():
        names = session.provenance.models
        models |= dict.fromkeys(names.values())
        if session.provenance.is_imported:
            continue
        options = made.get(session.id) or stages.get(session.id.rpartition("-")[0], {})
        total = totals[options.get("price"), _find_address(options)]
        total[names.get("task_specifier", "")] += session.preparation
        for turn in session.turns:
            total[names.get(turn.speaker, "")] += turn.usage
    costs = [_sum_cost(total.items(), make_pricing(*terms)) for terms, total in totals.items()]
    return tuple(models), None if None in costs else sum(filter(None, costs))


def _sum_cost(parts: Iterable[tuple[str, Usage]], prices: Callable[[str], Price | None]) -> float | None:
    total = 0.0
    for name, usage in parts:
        if not usage.total:
            continue
        price = None if name.startswith("python:") else prices(name)
        if price is None:
            return None
        total += price.cost(usage)
    return total


def _find_address(options: Mapping[str, Any]) -> str | None:
    address = options.get("base_url")
    return None if address is None else remove_credentials(address)


def build_forecast_order(
    stored: StoredRun, run: Path, *, limit: int | None, price: str | None = None, base_url: str | None = None
) -> RunOrder:
    """Return an order to forecast the run with; nothing can be sent with it."""
    options = stored.options
    address = base_url or _find_address(options)
    changes = {"price": price or options.get("price"), "base_url": address, "limit": limit, "budget": None}
    return build_order(stored.plan, run, {**options, **changes})


async def read_price(store: RunStore) -> str | None:
    """Return the price that was given when the run was made; None if none was given."""
    prices = [
        command.options.get("price") for command in await store.commands() if command.verb == "generate"
    ]
    return prices[-1] if prices else None


async def read_common_price(*runs: Path) -> str | None:
    """Return the price that all ``runs`` were made with; None if it differs, or none was given."""
    prices: set[str | None] = set()
    for run in runs:
        async with open_store(run, read_only=True) as store:
            prices.add(await read_price(store))
    return prices.pop() if len(prices) == 1 else None


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
            "jobs": status and status.jobs,
            "endings": {code: share.count for code, share in status.endings.items()} if status else {},
            "usd": status and status.usd,
            "changed": self.changed,
            **({"problem": self.problem} if self.problem else {}),
        }


async def list_runs(folders: Iterable[Path] = ()) -> list[RunSummary]:
    """Return the runs in ``folders``, by default the data folder and the working folder; the newest first."""
    folders = tuple(folders) or (find_data_folder(), Path())
    paths = {path.resolve(): path for folder in folders for path in find_runs(folder)}
    runs = [await _summarize(path) for path in paths.values()]
    return sorted(runs, key=lambda run: -run.changed)


async def _summarize(path: Path) -> RunSummary:
    files = (path, path.with_name(f"{path.name}-wal"))
    changed = max((file.stat().st_mtime for file in files if file.exists()), default=0.0)
    try:
        return RunSummary(path, changed, await read_status(path))
    except BactrianError as error:
        return RunSummary(path, changed, None, error.what)
