"""The report of an evaluation as one self-contained HTML file: no scripts, no fonts, no network."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from bactrian.files.atomic import write_atomically
from bactrian.language.escape import to_line


def render_comparison(report: dict[str, Any]) -> str:
    """Return the page on a report of :func:`~bactrian.evaluate.agents.report.build_comparison_report`."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_finalize, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["percent"] = _percent
    environment.filters["interval"] = _interval
    template = environment.from_string(
        files("bactrian.evaluate.agents").joinpath("comparison.html.j2").read_text("utf-8")
    )
    return template.render(report=report)


def write_comparison_page(path: Path, report: dict[str, Any]) -> None:
    """Write the page to ``path``; an earlier page is replaced.

    Raises:
        InputError: the file cannot be written.
    """
    with write_atomically(path, overwrite=True) as folder:
        (folder / path.name).write_text(render_comparison(report), "utf-8")


def _finalize(value: object) -> object:
    return to_line(value) if type(value) is str else value


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1%}"


def _interval(of: dict[str, Any]) -> str:
    return "–" if of["low"] is None else f"{of['low']:.1%} – {of['high']:.1%}"
