"""``bactrian analyze``: how the agents of a run behaved."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bactrian.cli.bridge import run
from bactrian.cli.options import option

if TYPE_CHECKING:
    from bactrian.analyze.part import Part
    from bactrian.analyze.report import Json
    from bactrian.models.spend import Price
    from bactrian.records.finding import Finding


def analyze(
    run_file: Annotated[Path, typer.Argument(metavar="RUN", help="The run.")],
    other: Annotated[
        Path | None, typer.Argument(metavar="[RUN2]", help="Another, to see what differs in it.")
    ] = None,
    findings: Annotated[
        Path | None, option("--findings", "Write what the turns of RUN show, one finding a line.")
    ] = None,
    page: Annotated[Path | None, option("--report", "Write the report as one HTML file.")] = None,
    price: Annotated[
        str | None,
        option("--price", "US dollars per million tokens, prompt/completion[/cached]. Default: a table."),
    ] = None,
    overwrite: Annotated[bool, option("--overwrite", "Replace files that are there.")] = False,
    json: Annotated[bool, option("--json", "Write the report as JSON.")] = False,
) -> None:
    """Report endings, behaviours and costs of a run, or how another differs from it."""
    from bactrian.errors import InputError

    named = [path.absolute() for path in (run_file, other, findings, page) if path is not None]
    for path in (findings, page):
        if path is not None and named.count(path.absolute()) > 1:
            raise InputError("This file is named twice.", where=str(path), next="Name another one.")
    work = _analyze(run_file, other, findings, page, _prices(price), overwrite=overwrite, json=json)
    run(work, resume="Nothing was written.")


async def _analyze(
    run_file: Path,
    other: Path | None,
    findings: Path | None,
    page: Path | None,
    prices: Callable[[str], Price | None],
    *,
    overwrite: bool,
    json: bool,
) -> int:
    from json import dumps

    from bactrian.analyze.compare import differences
    from bactrian.analyze.page import written
    from bactrian.analyze.report import report
    from bactrian.cli.report import show, show_differences
    from bactrian.whole import staged

    with ExitStack() as stack:
        places = [
            None if path is None else stack.enter_context(staged(path, overwrite=overwrite)) / path.name
            for path in (findings, page)
        ]
        keep = None if places[0] is None else _keeper(stack, places[0])
        parts = [await _read(run_file, keep)]
        alike = other is not None and other.stem == run_file.stem
        reports = [report(str(run_file) if alike else run_file.stem, parts[0], prices)]
        changes: Json | None = None
        if other is not None:
            parts.append(await _read(other, None))
            reports.append(report(str(other) if alike else other.stem, parts[1], prices))
            changes = differences(parts[0], parts[1])
        if places[1] is not None:
            places[1].write_text(written(reports, changes), "utf-8")
    if json:
        print(dumps(reports[0] if changes is None else {"runs": reports, "differences": changes}))
    elif changes is None:
        show(reports[0])
    else:
        show_differences(reports, changes)
    return 0


async def _read(run_file: Path, keep: Callable[[list[Finding]], None] | None) -> Part:
    """Measure a run, and say how far that is."""
    from rich.status import Status

    from bactrian.analyze.measure import measure
    from bactrian.cli.terminal import printable, progress
    from bactrian.store.store import open_store

    async with open_store(run_file, read_only=True) as store:
        with Status("Reading", console=progress()) as shown:
            return await measure(
                store, keep, lambda done: shown.update(printable(f"{run_file.name}: {done:,} sessions read"))
            )


def _keeper(stack: ExitStack, place: Path) -> Callable[[list[Finding]], None]:
    """What writes findings to ``place``, a line each."""
    import json
    from dataclasses import asdict

    file = stack.enter_context(place.open("w", encoding="utf-8"))

    def keep(findings: list[Finding]) -> None:
        file.writelines(json.dumps(asdict(finding), ensure_ascii=False) + "\n" for finding in findings)

    return keep


def _prices(given: str | None) -> Callable[[str], Price | None]:
    """What tells the price of a model: the user's word, or a table where that is installed."""
    from functools import cache

    from bactrian.errors import MissingExtra
    from bactrian.models.prices import FREE, known_price, read_price

    own = read_price(given) if given else None

    @cache
    def price(model: str) -> Price | None:
        if not model:
            return own
        if own is not None:
            return own if model.startswith("openai:") else FREE
        try:
            return known_price(model, None)
        except MissingExtra:
            return None

    return price
