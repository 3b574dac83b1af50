"""Reports on a run, and on the differences between runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from bactrian.analyze.aggregate import Aggregate
from bactrian.analyze.behaviours.catalogue import load_definitions
from bactrian.analyze.behaviours.own import OwnBehaviour, find_installed
from bactrian.analyze.compare import compare_reports
from bactrian.analyze.excerpts import AnnotatedSession, choose_sessions, read_annotated
from bactrian.analyze.measure import measure
from bactrian.analyze.page.render import render_report
from bactrian.analyze.report import Prices, build_report
from bactrian.analyze.report_tables import WIDE, write_comparison, write_differences, write_report
from bactrian.api.reading.provenance import read_provenance
from bactrian.api.reading.summary import read_common_price
from bactrian.files.atomic import write_atomically
from bactrian.language.argument_names import use_python_words
from bactrian.models.pricing import make_pricing
from bactrian.records.text import show
from bactrian.store import open_store


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

    runs: tuple[Mapping[str, Any], ...]
    """The report on each run: one, or several to compare."""
    differences: tuple[Mapping[str, Any], ...] = ()
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

    @use_python_words()
    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the report as one self-contained HTML page, or as JSON if the name ends with ``.json``.

        Example:
            >>> from pathlib import Path
            >>> report.save("report.html")
            >>> Path("report.html").stat().st_size > 10_000
            True

        Raises:
            InputError: the file exists or cannot be written.
        """
        path = Path(path)
        with write_atomically(path, overwrite=overwrite) as stage:
            text = json.dumps(self.data) if path.suffix == ".json" else self.render_page()
            (stage / path.name).write_text(text, "utf-8")

    def render_page(self) -> str:
        """Return the report as one HTML page.

        Example:
            >>> report.render_page()[:15]
            '<!doctype html>'
        """
        runs, changes = [dict(one) for one in self.runs], [dict(one) for one in self.differences]
        return render_report(runs, changes, self.conversations, self.definitions)

    def write(self, console: Console) -> None:
        """Write the report to ``console`` as tables.

        Example:
            >>> from rich.console import Console
            >>> report.write(Console())
            report: 1 session (1 role-play)
            3 messages; ...
        """
        runs, changes = [dict(one) for one in self.runs], [dict(one) for one in self.differences]
        if not changes:
            write_report(console, runs[0])
        elif len(changes) == 1:
            write_differences(console, runs, changes[0])
        else:
            write_comparison(console, runs, changes)

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


def make_report(parts: Sequence[tuple[str, Aggregate]], prices: Prices) -> Report:
    """Make the report on the named runs. Raises MissingExtra if the optional part ``analysis`` is not installed."""
    runs = tuple(build_report(name, part, prices) for name, part in parts)
    changes = tuple(compare_reports(parts[0][1], part) for _, part in parts[1:])
    return Report(runs, changes, definitions=load_definitions())


def add_judgements(report: Report, judged: Mapping[str, Any]) -> Report:
    """Return the report with a judge's decisions on the findings of its first run."""
    first, *others = report.runs
    return replace(report, runs=({**first, "judged": judged}, *others))


async def report_runs(
    paths: Sequence[Path], own: Sequence[OwnBehaviour], price: str | None, base_url: str | None
) -> Report:
    """Measure the runs, and make the report on them. Raises what :func:`read_report` raises."""
    prices = make_pricing(price or await read_common_price(*paths), base_url)
    parts: list[tuple[Path, Aggregate]] = []
    for path in paths:
        async with open_store(path, read_only=True) as store:
            parts.append((path, await measure(store, own=own, processes=1)))
    return await read_report(parts, prices, own)


async def read_report(
    runs: Sequence[tuple[Path, Aggregate]],
    prices: Prices,
    own: Sequence[OwnBehaviour] | None = None,
    *,
    conversations: bool = True,
) -> Report:
    """Make the report on measured runs, with where they come from, and with the conversations that its page shows.

    Args:
        runs: The file of each run, and its numbers. A run is named by its file, or by the whole path if two would be
            named alike.
        prices: Returns the price of a model; None if unknown.
        own: User-defined behaviours; those of installed packages if None.
        conversations: False to leave them out, for a report that is not made into a page.

    Raises:
        MissingExtra: the optional part ``analysis`` is not installed.
        StoreError: a run cannot be read.
    """
    alike = len({path.stem for path, _ in runs}) < len(runs)
    report = make_report([(str(path) if alike else path.stem, part) for path, part in runs], prices)
    own = find_installed() if own is None else own
    paired = [change["paired"] for change in report.differences if change["paired"]]
    examples: list[str] = [one for pairs in paired for one in pairs["examples"]]
    described: list[Mapping[str, Any]] = []
    shown: list[tuple[AnnotatedSession, ...]] = []
    for (path, part), found in zip(runs, report.runs, strict=True):
        async with open_store(path, read_only=True) as store:
            described.append({**found, "provenance": await read_provenance(store, path, part)})
            if conversations:
                ids = dict.fromkeys(examples) or choose_sessions(part.facts, part.behaviours)
                shown.append(await read_annotated(store, ids, own))
    return replace(
        report,
        runs=tuple(described),
        conversations=tuple(shown),
        definitions={**report.definitions, **{one.code: one.description for one in own}},
    )
