"""The report on a run, or on how two runs differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from bactrian.analyze.aggregate import Aggregate
from bactrian.analyze.compare import compare_reports
from bactrian.analyze.html import render_report
from bactrian.analyze.report import Prices, build_report
from bactrian.analyze.report_tables import WIDE, write_differences, write_report
from bactrian.files.atomic import write_atomically
from bactrian.records.text import show


@dataclass(frozen=True, slots=True)
class Report(Mapping[str, Any]):
    """A report: a mapping with the fields that ``bactrian analyze --json`` writes, which can be shown and saved.

    Example:
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha.\\nNext request.", "<CAMEL_TASK_DONE>"]
        >>> _ = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, run="report.db")
        >>> report = bt.open_run("report.db").report()
        >>> report["sessions"], report["endings"]["task_done"]["count"]
        (1, 1)
    """

    runs: tuple[Mapping[str, Any], ...]
    """The report on each run: one, or two that are compared."""
    differences: Mapping[str, Any] | None = None
    """What differs between two runs; None for one."""

    @classmethod
    def of(cls, *parts: tuple[str, Aggregate], prices: Prices) -> Report:
        """Make the report on the runs of these names. Raises MissingExtra without the optional part ``analysis``."""
        runs = tuple(build_report(name, part, prices) for name, part in parts)
        return cls(runs, compare_reports(parts[0][1], parts[1][1]) if len(parts) > 1 else None)

    def with_judged(self, judged: Mapping[str, Any]) -> Report:
        """The report with what a judge said about the findings of its first run."""
        first, *others = self.runs
        return Report(({**first, "judged": judged}, *others), self.differences)

    @property
    def data(self) -> Mapping[str, Any]:
        """All fields: of the one run, or ``runs`` and ``differences``."""
        if self.differences is None:
            return self.runs[0]
        return {"runs": list(self.runs), "differences": self.differences}

    def __getitem__(self, name: str) -> Any:
        return self.data[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.data)

    def __len__(self) -> int:
        return len(self.data)

    def show(self) -> None:
        """Display the report in a notebook, or print it elsewhere."""
        show(self)

    def save(self, path: str | Path, *, overwrite: bool = False) -> None:
        """Write the report as one HTML page that needs nothing else, or as JSON if the name ends with ``.json``.

        Raises:
            InputError: the file is there already or cannot be written.
        """
        path = Path(path)
        with write_atomically(path, overwrite=overwrite) as stage:
            text = json.dumps(self.data) if path.suffix == ".json" else self.render_page()
            (stage / path.name).write_text(text, "utf-8")

    def render_page(self) -> str:
        """The report as one HTML page."""
        differences = None if self.differences is None else dict(self.differences)
        return render_report([dict(one) for one in self.runs], differences)

    def write(self, console: Console) -> None:
        """Write the report to ``console`` as tables."""
        if self.differences is None:
            write_report(console, dict(self.runs[0]))
        else:
            write_differences(console, [dict(one) for one in self.runs], dict(self.differences))

    def __str__(self) -> str:
        text = StringIO()
        plain = Console(
            file=text,
            width=WIDE,
            color_system=None,
            force_jupyter=False,  # it would display the tables instead of writing them
            highlight=False,
            markup=False,
            emoji=False,
        )
        self.write(plain)
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        # In the colours of the page around it, and all text escaped.
        return f'<pre style="line-height:1.3;overflow-x:auto">{escape(str(self))}</pre>'
