"""Reports on a run, and on the differences between two runs."""

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
    """A report on runs: a mapping with the fields of ``bactrian analyze --json``, which can be shown and saved.

    Example:
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha.\\nNext request.", "<CAMEL_TASK_DONE>"]
        >>> _ = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, run="report.db")
        >>> report = bt.open_run("report.db").report()
        >>> report["sessions"], report["endings"]["task_done"]["count"]
        (1, 1)
    """

    runs: tuple[Mapping[str, Any], ...]
    """The report on each run: one, or two to compare."""
    differences: Mapping[str, Any] | None = None
    """The differences between two runs; None for one run."""

    @classmethod
    def of(cls, *parts: tuple[str, Aggregate], prices: Prices) -> Report:
        """Make the report on the named runs. Raises MissingExtra if the optional part ``analysis`` is not installed."""
        runs = tuple(build_report(name, part, prices) for name, part in parts)
        return cls(runs, compare_reports(parts[0][1], parts[1][1]) if len(parts) > 1 else None)

    def with_judged(self, judged: Mapping[str, Any]) -> Report:
        """Return the report with a judge's decisions on the findings of its first run."""
        first, *others = self.runs
        return Report(({**first, "judged": judged}, *others), self.differences)

    @property
    def data(self) -> Mapping[str, Any]:
        """All fields: those of one run, or ``runs`` and ``differences``."""
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
        """Write the report as one self-contained HTML page, or as JSON if the name ends with ``.json``.

        Raises:
            InputError: the file exists or cannot be written.
        """
        path = Path(path)
        with write_atomically(path, overwrite=overwrite) as stage:
            text = json.dumps(self.data) if path.suffix == ".json" else self.render_page()
            (stage / path.name).write_text(text, "utf-8")

    def render_page(self) -> str:
        """Return the report as one HTML page."""
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
