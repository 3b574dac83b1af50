"""Reports on a run, and on the differences between runs."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any, cast

from rich.console import Console

from bactrian.analyze.aggregate import Aggregate, measure
from bactrian.analyze.behaviours import OwnBehaviour, find_installed, load_definitions
from bactrian.analyze.excerpts import AnnotatedSession, choose_sessions, read_annotated
from bactrian.analyze.report import build_report, compare_reports
from bactrian.analyze.report_page import list_report_charts, render_report
from bactrian.analyze.report_tables import WIDE, write_comparison, write_differences, write_report
from bactrian.api.bridge import shorten_errors
from bactrian.api.status import describe_usage
from bactrian.errors import InputError
from bactrian.evaluate.label_queues import describe_labels, find_queues, read_given, read_queue
from bactrian.figures.chart import check_figures, save_charts
from bactrian.files.atomic import check_report, write_atomically, write_report_file
from bactrian.models.pricing import make_pricing
from bactrian.recipes.load import list_recipes, load_recipe
from bactrian.records.run import Command
from bactrian.records.text import show, to_json
from bactrian.runs.spending import Prices
from bactrian.store import RunStore, open_store

# Where a run comes from, for the head of a report: recipe, models, prompts, seed, version, command and dates.


Json = dict[str, Any]
# Options that are left out of a command while they have their usual value.
_DEFAULTS: Mapping[str, object] = {
    "timeout": 600.0,
    "max_wait": 600.0,
    "order": "depth",
    "session_ids": True,
    "trace_share": 0.01,
}
# Options that are settings of `generate`, and its flags for the models of agents.
_SETTINGS = ("timeout", "max_wait", "window")
_MODELS = {
    "assistant": "assistant_model",
    "user": "user_model",
    "task_specifier": "task_model",
    "task_planner": "task_model",
}


async def read_provenance(
    store: RunStore, run: Path, part: Aggregate, models: Sequence[str]
) -> dict[str, Any]:
    """Return where a run comes from, as a JSON object; what the run does not store is null.

    ``command`` is the last one, rebuilt from its stored options.
    """
    content = await store.recipe() or {}
    commands = await store.commands()
    begun = sorted((await store.list_created()).values())
    recipe: Mapping[str, Any] = content.get("recipe") or {}
    return {
        "recipe": recipe.get("name"),
        "models": list(models),
        "prompts": list(part.prompts),
        "seed": content.get("seed"),
        "versions": list(dict.fromkeys(command.version for command in commands)),
        "command": _write_command(commands[-1], run, content) if commands and content else None,
        "first": _write_date(begun[0]) if begun else None,
        "last": _write_date(begun[-1]) if begun else None,
    }


def _write_date(seconds: float) -> str:
    with suppress(ValueError, OverflowError, OSError):  # A file may contain any number.
        return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="minutes")
    return "unknown"


def _write_command(command: Command, run: Path, content: Mapping[str, Any]) -> str | None:
    """Return the command that makes this run again; None for a recipe that is not built in, and for plays."""
    recipe: Mapping[str, Any] = content.get("recipe") or {}
    name, settings = recipe.get("name"), list_settings(recipe)
    try:
        if name not in list_recipes() or to_json(load_recipe(name, settings).content()) != to_json(recipe):
            return None
    except InputError:  # The file of another person may say anything.
        return None
    models = dict(content.get("models") or {})
    own = {flag: models.pop(agent) for agent, flag in _MODELS.items() if agent in models}
    names = {*models.values()} or {*own.values()}
    if len(names) != 1:
        return None
    (usual,) = names
    named = {flag: model for flag, model in own.items() if model != usual}
    options = {"model": usual, **named, "seed": content.get("seed"), **command.options}
    flags = [part for setting in settings for part in ("--set", setting)]
    return shlex.join(["bactrian", "generate", str(name), "--run", run.name, *flags, *_write_flags(options)])


def list_settings(recipe: Mapping[str, Any]) -> list[str]:
    """Return the settings, as ``--set`` takes them, that make ``recipe`` of the built-in recipe of its name.

    Only numbers, words and booleans are compared, since nobody types a longer text as a setting. The list is
    empty for a recipe of another name.
    """
    if recipe.get("name") not in list_recipes():
        return []
    base = load_recipe(recipe["name"]).content()
    pairs: list[tuple[str, Any, Any]] = [("", base.get(key), of) for key, of in recipe.items()]
    axes = {axis["name"]: axis for axis in base.get("axes", ())}
    pairs += [(f"{axis['name']}.", axes.get(axis["name"]), axis) for axis in recipe.get("axes", ())]
    return [
        f"{prefix}{key}={str(value).lower() if isinstance(value, bool) else value}"
        for prefix, before, after in pairs
        if isinstance(before, dict) and isinstance(after, dict)
        for key, value in _find_new(cast("Json", before), cast("Json", after)).items()
    ]


def _find_new(before: Json, after: Json) -> Json:
    """Return the short values of ``after`` that ``before`` does not have."""
    short = {key: value for key, value in after.items() if isinstance(value, (bool, int, float, str))}
    return {key: value for key, value in short.items() if value != before.get(key) and "\n" not in str(value)}


def _write_flags(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the options that are a number or a short text; the others have no flag."""
    for name, value in options.items():
        if name in ("idea", "own", "endings") or value == _DEFAULTS.get(name):
            continue
        if name == "limit" and value == options.get("sample"):
            continue  # A sample of so many jobs is limited to them.
        if name in _SETTINGS and value:
            yield from ("--set", f"endpoint.{name}={value}")
        elif name == "session_ids":
            yield "--no-session-ids"
        elif value is True:
            yield f"--{name.replace('_', '-')}"
        elif isinstance(value, (int, float, str)) and value is not False:
            yield from (f"--{name.replace('_', '-')}", str(value))


@dataclass(frozen=True, slots=True)
class Report(Mapping[str, Any]):
    """A report on runs: a mapping with the fields of ``bactrian analyze --json``, which can be shown and saved.

    Example:
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha.\\nNext request.", "<CAMEL_TASK_DONE>"]
        >>> _ = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, run="report.db")
        >>> run = bt.open_run("report.db")
        >>> report = run.report()
        >>> report["sessions"], report["endings"]["task_done"]["count"]
        (1, 1)
    """

    runs: tuple[Json, ...]
    """The report on each run: one, or several to compare."""
    differences: tuple[Json, ...] = ()
    """The differences of each run but the first from the first."""
    conversations: tuple[tuple[AnnotatedSession, ...], ...] = ()
    """The sessions of each run that the page shows as a whole, the most important first."""
    definitions: Mapping[str, str] = field(default_factory=dict[str, str])
    """Definitions of the behaviours, by code."""

    @property
    def data(self) -> Mapping[str, Any]:
        """All fields: those of one run, or ``runs`` and ``differences`` (a list for more than two runs).

        Example:
            >>> report.data == report.runs[0]
            True
        """
        if not self.differences:
            return self.runs[0]
        several = len(self.differences) > 1
        return {
            "runs": list(self.runs),
            "differences": list(self.differences) if several else self.differences[0],
        }

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def show(self) -> None:
        """Display the report in a notebook, or print it elsewhere.

        Example:
            >>> report.show()
            report: 1 session (1 role-play)
            3 messages; ...
        """
        show(self)

    @shorten_errors
    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the report as one self-contained HTML page, as PDF or as JSON, by the suffix of ``path``.

        Chromium or Chrome writes the PDF.

        Example:
            >>> from pathlib import Path
            >>> report.save("report.html")
            >>> Path("report.html").stat().st_size > 10_000
            True

        Raises:
            InputError: the file exists or cannot be written, or its suffix is another one.
        """
        path = Path(path)
        check_report(path)
        with write_atomically(path, overwrite=overwrite) as stage:
            write_report_file(stage / path.name, self.render_page(), self.data)

    @shorten_errors
    def save_figures(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the charts into a new folder: each as SVG, PDF and CSV, and the captions of all.

        It needs the extra ``figures``.

        Example:
            >>> report.save_figures("report-figures")
            >>> Path("report-figures/endings.csv").read_text().splitlines()[0]
            'series,category,value,low,high'

        Raises:
            InputError: the folder exists or cannot be written.
            MissingExtra: matplotlib is not installed.
        """
        check_figures(Path(folder), overwrite=overwrite)
        save_charts(list_report_charts(self.runs), Path(folder), overwrite=overwrite)

    def render_page(self) -> str:
        """Return the report as one HTML page.

        Example:
            >>> report.render_page()[:15]
            '<!doctype html>'
        """
        return render_report(self.runs, self.differences, self.conversations, self.definitions)

    def write(self, console: Console) -> None:
        """Write the report to ``console`` as tables.

        Example:
            >>> from rich.console import Console
            >>> report.write(Console())
            report: 1 session (1 role-play)
            3 messages; ...
        """
        if not self.differences:
            write_report(console, self.runs[0])
        elif len(self.differences) == 1:
            write_differences(console, self.runs, self.differences[0])
        else:
            write_comparison(console, self.runs, self.differences)

    def __str__(self) -> str:
        text = StringIO()
        plain = Console(
            file=text,
            width=WIDE,
            color_system=None,
            force_jupyter=False,  # True would display the tables instead of returning them
            highlight=False,
            markup=False,
            emoji=False,
        )
        self.write(plain)
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        # Inherit the page's colours; escape all text.
        return f'<pre style="line-height:1.3;overflow-x:auto">{escape(str(self))}</pre>'


def add_judgements(report: Report, judged: Mapping[str, Any]) -> Report:
    """Return the report with a judge's decisions on the findings of its first run."""
    first, *others = report.runs
    return replace(report, runs=({**first, "judged": judged}, *others))


def _describe_queues(queues: Mapping[str, Path], part: Aggregate) -> Json:
    """Return what people say of the conversations in queues, beside what the detectors found in them."""
    found = {session.id: {shown.behaviour for shown in session.found} for session in part.facts}
    return {
        name: describe_labels(read_queue(folder), read_given(folder), found)
        for name, folder in queues.items()
    }


async def report_runs(
    paths: Sequence[Path], custom: Sequence[OwnBehaviour], price: str | None, base_url: str | None
) -> Report:
    """Measure the runs, and make the report on them. Raises what :func:`read_report` raises."""
    parts: list[tuple[Path, Aggregate]] = []
    for path in paths:
        async with open_store(path, read_only=True) as store:
            parts.append((path, await measure(store, custom=custom, processes=1)))
    return await read_report(parts, choose_pricing(price, base_url), custom)


def choose_pricing(price: str | None, base_url: str | None) -> Prices | None:
    """Return the prices that were given; None to count by those of the run.

    Raises:
        InputError: ``price`` is not a price.
    """
    return None if price is None and base_url is None else make_pricing(price, base_url)


async def read_report(
    runs: Sequence[tuple[Path, Aggregate]],
    prices: Prices | None = None,
    custom: Sequence[OwnBehaviour] | None = None,
    *,
    conversations: bool = True,
) -> Report:
    """Make the report on measured runs, with where they come from, and with the conversations that its page shows.

    Args:
        runs: The file of each run, and its numbers. A run is named by its file, or by the whole path if two would be
            named alike.
        prices: Replace the prices by which the runs count their cost.
        custom: User-defined behaviours; those of installed packages if None.
        conversations: False to leave them out, for a report that is not made into a page.

    Raises:
        MissingExtra: the optional part ``analysis`` is not installed.
        StoreError: a run cannot be read.
    """
    alike = len({path.stem for path, _ in runs}) < len(runs)
    custom = find_installed() if custom is None else custom
    changes = tuple(compare_reports(runs[0][1], part) for _, part in runs[1:])
    paired = [change["paired"] for change in changes if change["paired"]]
    examples: list[str] = [session for pairs in paired for session in pairs["examples"]]
    described: list[Json] = []
    shown: list[tuple[AnnotatedSession, ...]] = []
    for path, part in runs:
        async with open_store(path, read_only=True) as store:
            usage = await describe_usage(store, prices)
            provenance = await read_provenance(store, path, part, usage["models"])
            report = build_report(str(path) if alike else path.stem, part, usage)
            labels = {"labels": _describe_queues(queues, part)} if (queues := find_queues(path)) else {}
            described.append({**report, "provenance": provenance, **labels})
            if conversations:
                ids = dict.fromkeys(examples) or choose_sessions(part.facts, part.behaviours)
                shown.append(await read_annotated(store, ids, custom))
    return Report(
        tuple(described),
        changes,
        tuple(shown),
        {**load_definitions(), **{behaviour.code: behaviour.description for behaviour in custom}},
    )
