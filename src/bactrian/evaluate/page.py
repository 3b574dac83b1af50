"""The report of an evaluation as one self-contained HTML file: no scripts, no fonts, no network."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined

from bactrian.files.atomic import write_atomically
from bactrian.language.escape import to_line


def render_page(template: str, report: dict[str, Any]) -> str:
    """Return the page on ``report``; ``template`` is a path within this package."""
    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_read),
    )
    environment.filters["percent"] = _percent
    environment.filters["interval"] = _interval
    return environment.get_template(template).render(report=report)


def write_page(path: Path, template: str, report: dict[str, Any]) -> None:
    """Write the page on ``report`` to ``path``; an earlier page is replaced.

    Raises:
        InputError: the file cannot be written.
    """
    with write_atomically(path, overwrite=True) as folder:
        (folder / path.name).write_text(render_page(template, report), "utf-8")


def _read(template: str) -> str:
    return files("bactrian.evaluate").joinpath(template).read_text("utf-8")


def _finalize(value: object) -> object:
    return to_line(value) if type(value) is str else value


def _percent(rate: float | None) -> str:
    return "–" if rate is None else f"{rate:.1%}"


def _interval(of: dict[str, Any]) -> str:
    return "–" if of["low"] is None else f"{of['low']:.1%} – {of['high']:.1%}"
