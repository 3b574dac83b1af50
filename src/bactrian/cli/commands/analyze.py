"""``bactrian analyze``: how the agents of a run behaved."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console

from bactrian.analyze.aggregate import Aggregate
from bactrian.analyze.judging.confirm import Key, list_judged
from bactrian.analyze.judging.sample_turns import JudgeSample, correct_rates, list_questions, sample_turns
from bactrian.analyze.measure import measure
from bactrian.analyze.report import check_installed
from bactrian.analyze.report_tables import WIDE
from bactrian.api.report import read_report
from bactrian.api.run import open_run
from bactrian.cli.model_options import read_model_options
from bactrian.cli.options import RunArgument, declare_option, find_run_files
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.bar import show_bar
from bactrian.cli.terminal.console import open_output, to_printable
from bactrian.cli.view.judging import JudgeOptions, ask_judge
from bactrian.errors import InputError
from bactrian.files.atomic import write_atomically
from bactrian.files.identity import is_same_file
from bactrian.models.pricing import make_pricing
from bactrian.models.wrappers.budget import Price, UsageMeter
from bactrian.records.finding import Confirmation, Finding
from bactrian.store import list_run_files, open_store


def analyze(
    run_file: RunArgument,
    others: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN2]…",
            help="More runs, to compare with RUN.",
            callback=find_run_files,
        ),
    ] = None,
    findings: Annotated[
        Path | None, declare_option("--findings", "Write the findings in RUN as JSON lines.")
    ] = None,
    page: Annotated[Path | None, declare_option("--report", "Write the report as one HTML file.")] = None,
    judge: Annotated[
        str | None,
        declare_option(
            "--judge", "Ask this model whether each finding is correct. Its answers are stored in RUN."
        ),
    ] = None,
    sample: Annotated[
        int | None,
        declare_option(
            "--sample",
            "Ask the judge about at most this many turns with a finding and as many without, for each of the"
            " paper's four behaviours, and correct their rates by its answers.",
            min=1,
        ),
    ] = None,
    base_url: Annotated[
        str | None,
        declare_option("--base-url", "Address of the judge's endpoint.", show_default="OPENAI_BASE_URL"),
    ] = None,
    concurrency: Annotated[
        int, declare_option("--concurrency", "Concurrent questions to the judge.", min=1)
    ] = 16,
    budget: Annotated[
        float | None, declare_option("--budget", "Maximum cost of the judge, in US dollars.", min=0)
    ] = None,
    max_tokens: Annotated[
        int | None, declare_option("--max-tokens", "Maximum number of tokens for the judge.", min=0)
    ] = None,
    price: Annotated[
        str | None,
        declare_option(
            "--price", "US dollars per million tokens, prompt/completion[/cached]. Default: a table."
        ),
    ] = None,
    overwrite: Annotated[bool, declare_option("--overwrite", "Replace existing files.")] = False,
    json: Annotated[bool, declare_option("--json", "Write the report as JSON.")] = False,
    quiet: Annotated[bool, declare_option("--quiet", "Show no progress.")] = False,
) -> None:
    """Report endings, behaviours and costs of a run, or compare two runs."""

    if findings is not None and page is not None and is_same_file(findings, page):
        raise InputError("This file is named twice.", where=str(page), next="Name another one.")
    if judge is not None and others:
        raise InputError("A judge works on one run only.", where="--judge", next="Leave the other runs out.")
    if sample is not None and judge is None:
        raise InputError("A sample is for a judge.", where="--sample", next="Name the judge with --judge.")
    check_installed()
    prices = make_pricing(price or _read_price(run_file, *(others or [])), base_url)
    work = _analyze(
        run_file,
        others or [],
        AnalyzeOutputs(findings, page, overwrite=overwrite, json=json, quiet=quiet),
        prices,
        None if judge is None else _judge(judge, base_url, concurrency, budget, max_tokens, prices),
        sample,
    )
    run_async(
        work,
        resume="The judge's answers are stored; the same command resumes."
        if judge
        else "Nothing was written.",
    )


def _read_price(*runs: Path) -> str | None:
    """Return the price that the runs were made with, if it is the same for all of them."""
    given = {open_run(run).price for run in runs}
    return given.pop() if len(given) == 1 else None


@dataclass(frozen=True, slots=True)
class AnalyzeOutputs:
    """The outputs besides the tables."""

    findings: Path | None
    page: Path | None
    overwrite: bool
    json: bool
    quiet: bool


async def _analyze(
    run_file: Path,
    others: Sequence[Path],
    wish: AnalyzeOutputs,
    prices: Callable[[str], Price | None],
    judge: JudgeOptions | None,
    sample: int | None,
) -> int:

    runs = [name for run in (run_file, *others) for name in list_run_files(run)]
    with ExitStack() as stack:
        places = [
            None
            if path is None
            else stack.enter_context(write_atomically(path, overwrite=wish.overwrite, protect=runs))
            / path.name
            for path in (wish.findings, wish.page)
        ]
        keep = None if places[0] is None else _keeper(stack, places[0])
        found: list[Finding] = []
        parts = [(run_file, await _read(run_file, found.extend if judge else keep, quiet=wish.quiet))]
        parts += [(other, await _read(other, None, quiet=wish.quiet)) for other in others]
        report = await read_report(parts, prices)
        if judge is not None:
            facts = parts[0][1].facts
            said = sum(one.usage.completion for one in facts) / max(sum(one.messages for one in facts), 1)
            chosen = None if sample is None else await _choose(run_file, found, sample)
            questions = found if chosen is None else list_questions(chosen)
            answers = await ask_judge(run_file, questions, judge, said)
            judged = list_judged(judge.name, found, answers, len(facts))
            if chosen is not None:
                judged["corrected"] = correct_rates(chosen, answers)
            report = report.with_judged(judged)
            if keep is not None:
                keep(found, answers)
        if places[1] is not None:
            places[1].write_text(report.render_page(), "utf-8")
    if wish.json:
        print(dumps(dict(report.data)))
    else:
        report.write(_open_wide())
    return 0


async def _choose(run_file: Path, found: Sequence[Finding], size: int) -> dict[str, JudgeSample]:
    async with open_store(run_file, read_only=True) as store:
        return await sample_turns(store, found, size)


def _open_wide() -> Console:
    """Return the console for data, wide enough for tables if there is no terminal."""
    console = open_output()
    if not console.is_terminal:
        console.width = max(console.width, WIDE)
    return console


async def _read(run_file: Path, keep: Callable[[list[Finding]], None] | None, *, quiet: bool) -> Aggregate:
    """Measure a run, and show the progress."""

    async with open_store(run_file, read_only=True) as store:
        with show_bar(f"Reading {to_printable(run_file.name)}", "sessions", quiet=quiet) as tell:
            return await measure(store, keep, tell)


class _Keep(Protocol):
    def __call__(
        self, findings: list[Finding], answers: Mapping[Key, Confirmation] | None = None
    ) -> None: ...


def _keeper(stack: ExitStack, place: Path) -> _Keep:
    """Return a function that writes findings to ``place`` as JSON lines, with the judge's answers if given."""

    file = stack.enter_context(place.open("w", encoding="utf-8"))

    def keep(findings: list[Finding], answers: Mapping[Key, Confirmation] | None = None) -> None:
        for finding in findings:
            line = asdict(finding)
            if answers is not None:
                answer = answers.get((finding.session, finding.turn, finding.behaviour))
                line["confirmed"] = answer and answer.holds
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    return keep


def _judge(
    name: str,
    base_url: str | None,
    concurrency: int,
    budget: float | None,
    max_tokens: int | None,
    prices: Callable[[str], Price | None],
) -> JudgeOptions:

    price = prices(name)
    meter = UsageMeter(max_tokens, budget, {} if price is None else {name: price})
    return JudgeOptions(name, read_model_options(base_url), meter, concurrency)
