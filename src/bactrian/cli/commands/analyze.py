"""``bactrian analyze``: how the agents of a run behaved."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from json import dumps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Protocol

from rich.console import Console

from bactrian.analyze.aggregate import Aggregate
from bactrian.analyze.behaviours import OwnBehaviour
from bactrian.analyze.code_runs import CODE_FAILS
from bactrian.analyze.judge import JudgeSample, Key, correct_rates, list_judged, list_questions, sample_turns
from bactrian.analyze.measure import measure
from bactrian.analyze.report import check_installed
from bactrian.analyze.report_tables import WIDE
from bactrian.api.run_report import add_judgements, read_report
from bactrian.api.selection import merge_installed
from bactrian.api.status import read_common_price
from bactrian.cli.flags import Argument, RunArgument, SamplingFlags, find_run_files
from bactrian.cli.model_options import read_model_options
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.bar import show_bar
from bactrian.cli.terminal.console import open_output
from bactrian.cli.view.judging import JudgeOptions, ask_judge
from bactrian.errors import InputError
from bactrian.files.atomic import is_same_file, write_atomically
from bactrian.models.budget import Price, UsageMeter
from bactrian.models.pricing import make_pricing
from bactrian.options import (
    JSON,
    JUDGE,
    OVERWRITE,
    QUIET,
    REPORT,
    RUN_CODE,
    SAMPLE,
    BaseUrl,
    Budget,
    Concurrency,
    MaxTokens,
    Option,
    SamplingSpec,
    Seed,
    TokenPrice,
)
from bactrian.recipes.parameters import read_parameters
from bactrian.records.run import Confirmation, Finding
from bactrian.records.text import to_printable
from bactrian.sandbox.programs import choose_tier
from bactrian.store import list_run_files, open_store


@dataclass(frozen=True, slots=True)
class JudgeFlags:
    """The judge, and its limits."""

    judge: Annotated[
        str | None,
        JUDGE,
        "Ask this model whether each finding is correct. Its answers are stored in RUN.",
    ] = None
    sample: Annotated[
        int | None,
        SAMPLE,
        "Ask the judge about at most this many turns with a finding and as many without, for each of the"
        " paper's four behaviours, and correct their rates by its answers.",
    ] = None
    base_url: Annotated[BaseUrl, "Address of the judge's endpoint."] = None
    concurrency: Annotated[Concurrency, "Concurrent questions to the judge."] = 16
    budget: Annotated[Budget, "Maximum cost of the judge, in US dollars."] = None
    max_tokens: Annotated[MaxTokens, "Maximum number of tokens for the judge."] = None
    price: TokenPrice = None
    seed: Annotated[Seed, "Seed of the judge's sampling."] = None

    def read_parameters(self, sampling: Mapping[str, Any]) -> SamplingSpec:
        """Return the judge's sampling parameters.

        Raises:
            InputError: a value cannot be used, or there is no judge for a flag.
        """
        given = {**sampling, **({} if self.seed is None else {"seed": self.seed})}
        if self.judge is None and self.sample is not None:
            raise InputError(
                "A sample is for a judge.", where="--sample", next="Name the judge with --judge."
            )
        if self.judge is None and given:
            raise InputError("Sampling parameters are for a judge.", where="--judge", next="Name the judge.")
        return read_parameters(given)


def analyze(
    run_file: RunArgument,
    others: Annotated[
        list[Path] | None,
        Argument(
            metavar="[RUN2]…",
            help="More runs, to compare with RUN.",
            check=find_run_files,
        ),
    ] = None,
    findings: Annotated[Path | None, Option("--findings", "Write the findings in RUN as JSON lines.")] = None,
    page: Annotated[Path | None, REPORT] = None,
    run_code: Annotated[
        bool,
        RUN_CODE,
        "Run the Python of solutions in the sandbox; what fails is found as code_fails.",
    ] = False,
    *,
    judging: JudgeFlags,
    sampling: Annotated[Mapping[str, Any], SamplingFlags()] = MappingProxyType({}),
    overwrite: Annotated[bool, OVERWRITE] = False,
    json: Annotated[bool, JSON, "Write the report as JSON."] = False,
    quiet: Annotated[bool, QUIET] = False,
) -> None:
    """Report endings, behaviours and costs of a run, or compare several runs."""

    if findings is not None and page is not None and is_same_file(findings, page):
        raise InputError("This file is named twice.", where=str(page), next="Name another one.")
    if judging.judge is not None and others:
        raise InputError("A judge works on one run only.", where="--judge", next="Leave the other runs out.")
    parameters = judging.read_parameters(sampling)
    check_installed()
    if run_code:
        choose_tier()
    own = merge_installed((CODE_FAILS,) if run_code else ())
    work = _analyze(
        run_file,
        others or [],
        AnalyzeOutputs(findings, page, overwrite=overwrite, json=json, quiet=quiet),
        judging,
        parameters,
        own,
    )
    run_async(
        work,
        resume="The judge's answers are stored; the same command resumes."
        if judging.judge
        else "Nothing was written.",
    )


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
    outputs: AnalyzeOutputs,
    judging: JudgeFlags,
    parameters: SamplingSpec,
    own: Sequence[OwnBehaviour],
) -> int:
    price = judging.price or await read_common_price(run_file, *others)
    prices = make_pricing(price, judging.base_url)
    judge = None if judging.judge is None else _judge(judging.judge, judging, prices, parameters)
    runs = [name for run in (run_file, *others) for name in list_run_files(run)]
    with ExitStack() as stack:
        places = [
            None
            if path is None
            else stack.enter_context(write_atomically(path, overwrite=outputs.overwrite, protect=runs))
            / path.name
            for path in (outputs.findings, outputs.page)
        ]
        write_findings = None if places[0] is None else _open_findings(stack, places[0])
        found: list[Finding] = []
        quiet = outputs.quiet
        parts = [
            (run_file, await _read(run_file, found.extend if judge else write_findings, own, quiet=quiet))
        ]
        parts += [(other, await _read(other, None, own, quiet=quiet)) for other in others]
        report = await read_report(parts, prices, own, conversations=outputs.page is not None)
        if judge is not None:
            facts = parts[0][1].facts
            said = sum(one.usage.completion for one in facts) / max(sum(one.messages for one in facts), 1)
            chosen = None if judging.sample is None else await _choose(run_file, found, judging.sample)
            questions = found if chosen is None else list_questions(chosen)
            answers = await ask_judge(run_file, questions, judge, said)
            judged = list_judged(judge.title, found, answers, len(facts))
            if chosen is not None:
                judged["corrected"] = correct_rates(chosen, answers)
            report = add_judgements(report, judged)
            if write_findings is not None:
                write_findings(found, answers)
        if places[1] is not None:
            places[1].write_text(report.render_page(), "utf-8")
    if outputs.json:
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


async def _read(
    run_file: Path,
    keep: Callable[[list[Finding]], None] | None,
    own: Sequence[OwnBehaviour],
    *,
    quiet: bool,
) -> Aggregate:
    """Measure a run, and show the progress."""

    async with open_store(run_file, read_only=True) as store:
        with show_bar(f"Reading {to_printable(run_file.name)}", "sessions", quiet=quiet) as tell:
            return await measure(store, keep, tell, own)


class _WriteFindings(Protocol):
    def __call__(
        self, findings: list[Finding], answers: Mapping[Key, Confirmation] | None = None
    ) -> None: ...


def _open_findings(stack: ExitStack, place: Path) -> _WriteFindings:
    """Return a function that writes findings to ``place`` as JSON lines, with the judge's answers if given."""

    file = stack.enter_context(place.open("w", encoding="utf-8"))

    def write(findings: list[Finding], answers: Mapping[Key, Confirmation] | None = None) -> None:
        for finding in findings:
            line = asdict(finding)
            if answers is not None:
                answer = answers.get((finding.session, finding.turn, finding.behaviour))
                line["confirmed"] = answer and answer.holds
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    return write


def _judge(
    name: str, flags: JudgeFlags, prices: Callable[[str], Price | None], parameters: SamplingSpec
) -> JudgeOptions:

    price = prices(name)
    meter = UsageMeter(flags.max_tokens, flags.budget, {} if price is None else {name: price})
    return JudgeOptions(
        name, read_model_options(flags.base_url, name), meter, flags.concurrency or 16, parameters
    )
