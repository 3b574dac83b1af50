"""``bactrian analyze``: how the agents of a run behaved."""

from __future__ import annotations

import asyncio
import json as jsonlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TextIO

from rich.status import Status

from bactrian import options as opts
from bactrian.amounts import write_dollars
from bactrian.analyze import judge
from bactrian.analyze.aggregate import Aggregate, measure
from bactrian.analyze.behaviours import LIKELY, OwnBehaviour
from bactrian.analyze.code_runs import CODE_FAILS
from bactrian.analyze.report import check_installed
from bactrian.analyze.report_tables import WIDE
from bactrian.api.endpoints import read_terms, use_run_terms
from bactrian.api.run_parts import group_parts
from bactrian.api.run_report import add_judgements, choose_pricing, read_report
from bactrian.api.selection import merge_installed
from bactrian.cli.flags import Argument, RunArgument, SamplingFlags, find_run_files
from bactrian.cli.model_options import read_model_options
from bactrian.cli.run_async import SOME_FAILED, WHOLE, StopControl, run_async
from bactrian.cli.terminal.bar import open_parts, show_bar
from bactrian.cli.terminal.console import open_output, open_progress
from bactrian.errors import InputError
from bactrian.figures.chart import check_figures
from bactrian.files.atomic import check_report, is_same_file, write_atomically, write_report_file
from bactrian.models.budget import Budget as BudgetedModel
from bactrian.models.budget import Price, UsageMeter
from bactrian.models.faults import RefusalCheck, Retry
from bactrian.models.limits import ConcurrencyLimit
from bactrian.models.open import ModelOptions
from bactrian.models.pricing import make_pricing
from bactrian.models.telemetry import open_observed
from bactrian.recipes.parameters import read_parameters
from bactrian.records.run import Confirmation, Finding, FindingKey
from bactrian.records.text import to_printable, write_count
from bactrian.records.turn import Usage
from bactrian.sandbox.programs import choose_tier
from bactrian.store import open_store
from bactrian.store.locations import list_run_files


@dataclass(frozen=True, slots=True)
class JudgeFlags:
    """The judge, and its limits."""

    judge: Annotated[
        str | None,
        opts.JUDGE,
        "Ask this model whether each finding is correct. Its answers are stored in RUN.",
    ] = None
    sample: Annotated[
        int | None,
        opts.SAMPLE,
        "Ask the judge about at most this many turns with a finding and as many without, for each of the"
        " paper's four behaviours, and correct their rates by its answers.",
    ] = None
    base_url: Annotated[opts.BaseUrl, "Address of the judge's endpoint. Can be repeated."] = None
    concurrency: Annotated[opts.Concurrency, "Concurrent questions to the judge."] = 16
    budget: Annotated[opts.Budget, "Maximum cost of the judge, in US dollars."] = None
    max_tokens: Annotated[opts.MaxTokens, "Maximum number of tokens for the judge."] = None
    price: opts.TokenPrice = None
    tier: opts.Tier = None
    retry_failed: Annotated[opts.RetryFailed, "Ask the judge again where its answer could not be read."] = (
        False
    )
    seed: Annotated[opts.Seed, "Seed of the judge's sampling."] = None


def analyze(
    run_file: RunArgument,
    others: Annotated[
        list[Path] | None,
        Argument(
            metavar="[RUN2]…",
            help="More runs, to compare with RUN; shards of one recipe are one run.",
            check=find_run_files,
        ),
    ] = None,
    findings: Annotated[
        Path | None, opts.Option("--findings", "Write the findings in RUN as JSON lines.")
    ] = None,
    page: Annotated[Path | None, opts.REPORT] = None,
    figures: Annotated[
        Path | None,
        opts.Option(
            "--figures",
            "Write the charts into this folder, each as SVG, PDF and CSV, with their captions.",
            metavar="FOLDER",
        ),
    ] = None,
    run_code: Annotated[
        bool,
        opts.RUN_CODE,
        "Run the Python of solutions in the sandbox; what fails is found as code_fails.",
    ] = False,
    *,
    judging: JudgeFlags,
    sampling: Annotated[Mapping[str, Any], SamplingFlags()] = MappingProxyType({}),
    overwrite: Annotated[bool, opts.OVERWRITE] = False,
    json: Annotated[bool, opts.JSON, "Write the report as JSON."] = False,
    quiet: Annotated[bool, opts.QUIET] = False,
) -> None:
    """Report endings, behaviours and costs of a run, or compare several runs."""
    if findings is not None and page is not None and is_same_file(findings, page):
        raise InputError("This file is named twice.", where=str(page), next="Name another one.")
    if page is not None:
        check_report(page)
    if figures is not None:
        check_figures(figures, overwrite=overwrite)
    chosen = {**sampling, **({} if judging.seed is None else {"seed": judging.seed})}
    _check_judge(judging, chosen, others)
    parameters = read_parameters(chosen)
    check_installed()
    if run_code:
        choose_tier()
    installed = merge_installed((CODE_FAILS,) if run_code else ())
    access, stop_control = _open_judge(run_file, judging) if judging.judge else None, StopControl()
    named = (run_file, *(others or ()))

    async def work(runs: Sequence[Path]) -> int:
        prices = None if judging.judge else choose_pricing(judging.price, None)
        protected = [name for run in named for name in list_run_files(run)]
        with ExitStack() as stack:
            # Opened before the work, which may be long and expensive; moved to their final paths after it.
            findings_file, page_file = (
                path
                and (
                    stack.enter_context(write_atomically(path, overwrite=overwrite, protect=protected))
                    / path.name
                )
                for path in (findings, page)
            )
            file = stack.enter_context(findings_file.open("w", encoding="utf-8")) if findings_file else None
            kept: list[Finding] = []
            # Findings stay in memory only for a judge; there may be more of them than sessions.
            said = await _read_answers(runs[0])
            keep = kept.extend if judging.judge else file and partial(_write_findings, file, said)
            parts = [(runs[0], await _measure(runs[0], keep, installed, quiet=quiet))]
            parts += [(run, await _measure(run, None, installed, quiet=quiet)) for run in runs[1:]]
            judged = None
            if access is not None:
                judged = await _judge(run_file, kept, parts[0][1], judging, access, parameters, stop_control)
                said = await _read_answers(run_file)
                parts[0][1].settle(said)
                if file is not None:
                    _write_findings(file, said, kept)
            report = await read_report(parts, prices, installed, conversations=page is not None)
            if judged is not None:
                report = add_judgements(report, judged)
            if page_file is not None:
                write_report_file(page_file, report.render_page(), report.data)
            if figures is not None:
                report.save_figures(figures, overwrite=overwrite)
        if json:
            print(jsonlib.dumps(dict(report.data)))
        else:
            console = open_output()
            console.width = console.width if console.is_terminal else max(console.width, WIDE)
            report.write(console)
        return SOME_FAILED if judged is not None and judged["unreadable"] else 0

    with ExitStack() as stack:
        # Shards are one run; other runs are compared.
        groups = group_parts(named) if others else [[run_file]]
        run_async(
            work([stack.enter_context(open_parts(group, quiet=quiet)) for group in groups]),
            resume="The judge's answers are stored; the same command resumes." if judging.judge else WHOLE,
            stop_control=stop_control,
        )


def _check_judge(judging: JudgeFlags, sampling: Mapping[str, Any], others: Sequence[Path] | None) -> None:
    """Check what was asked of a judge, or without one. Raises InputError."""
    if judging.judge is not None and others:
        raise InputError(
            "A judge works on one run only.",
            where="--judge",
            next="Leave the other runs out, or merge the parts.",
        )
    if judging.judge is None and judging.sample is not None:
        raise InputError("A sample is for a judge.", where="--sample", next="Name the judge with --judge.")
    if judging.judge is None and sampling:
        raise InputError("Sampling parameters are for a judge.", where="--judge", next="Name the judge.")


def _open_judge(run_file: Path, flags: JudgeFlags) -> tuple[ModelOptions, Price | None]:
    """Return how the judge is asked, at the endpoint of the run unless another one is named, and its price.

    Raises:
        InputError: its address is not what the run or a person says.
    """
    assert flags.judge is not None
    given = {"base_url": flags.base_url, "price": flags.price}
    terms = use_run_terms(given, [flags.judge], None, [read_terms(run_file)])
    limits = {name: terms[name] for name in ("window", "timeout", "max_wait") if name in terms}
    access = read_model_options(terms["base_url"], flags.judge, tier=flags.tier, **limits)
    return access, make_pricing(terms["price"], access.base_url)(flags.judge)


async def _measure(
    run_file: Path,
    keep: Callable[[list[Finding]], None] | None,
    installed: Sequence[OwnBehaviour],
    *,
    quiet: bool,
) -> Aggregate:
    """Measure a run, and show the progress."""
    async with open_store(run_file, read_only=True) as store:
        with show_bar(f"Reading {to_printable(run_file.name)}", "sessions", quiet=quiet) as tell:
            return await measure(store, keep, tell, installed)


async def _read_answers(run_file: Path) -> dict[FindingKey, bool]:
    async with open_store(run_file, read_only=True) as store:
        return await store.answers()


def _write_findings(file: TextIO, said: Mapping[FindingKey, bool], findings: Sequence[Finding]) -> None:
    """Write findings as JSON lines, with what readers ``said`` of them."""
    for finding in findings:
        line = {
            **asdict(finding),
            "possible": finding.confidence < LIKELY,
            "confirmed": said.get(finding.key),
        }
        file.write(jsonlib.dumps(line, ensure_ascii=False) + "\n")


async def _judge(
    run_file: Path,
    findings: Sequence[Finding],
    measured: Aggregate,
    flags: JudgeFlags,
    access: tuple[ModelOptions, Price | None],
    parameters: opts.SamplingSpec,
    stop_control: StopControl,
) -> dict[str, Any]:
    """Ask the judge about findings that it has not answered before. Return its decisions.

    Raises:
        BudgetReached: the next answer could exceed the limit. All answers so far are stored.
        ModelError: the judge does not answer.
        StoreError: another process writes the run.
    """
    assert flags.judge is not None
    price, at_once, facts = access[1], flags.concurrency or 16, measured.facts
    # Its answers are stored under this name: other parameters make another judge.
    values = parameters.model_dump(mode="json", exclude_none=True).items()
    title = " ".join([flags.judge, *(f"{name}={jsonlib.dumps(value)}" for name, value in values)])
    sample = None
    if flags.sample is not None:
        async with open_store(run_file, read_only=True) as store:
            sample = await judge.sample_turns(store, findings, flags.sample)
    questions = findings if sample is None else judge.list_questions(sample)
    meter = UsageMeter(flags.max_tokens, flags.budget, {} if price is None else {flags.judge: price})
    # Its spans are of the conversations of which `generate` makes spans.
    asked = open_observed(flags.judge, replace(access[0], run=str(run_file)), "analyze", 0.01)
    async with asked as opened, open_store(run_file) as store:
        model = Retry(ConcurrencyLimit(RefusalCheck(BudgetedModel(opened, meter)), at_once))
        before = await store.confirmations(title)
        meter.used = sum((answer.usage for answer in before), Usage())
        meter.usd = price.cost(meter.used) if price else 0.0
        left = len(judge.list_unasked(questions, before, retry_unread=flags.retry_failed))
        # A question shows a few turns, of the mean length of this run's.
        turn = sum(fact.usage.completion for fact in facts) / max(sum(fact.messages for fact in facts), 1)
        expected = Usage(
            round(left * (judge.QUESTION_TOKENS + judge.TURNS_SHOWN * turn)), left * judge.ANSWER_TOKENS
        )
        cost = "" if price is None else f", {write_dollars(price.cost(expected))}"
        console = open_progress()
        console.say(
            f"{flags.judge} is asked {write_count(left, 'question')} (about {expected.total:,} tokens{cost});"
            f" {len({finding.key for finding in questions}) - left:,} answers are stored already."
        )
        with Status("Asking", console=console) as shown:
            done = 0

            def tell(_: Confirmation) -> bool:
                nonlocal done
                done += 1
                shown.update(f"{done:,} of {left:,} answered, {meter.used.total:,} tokens")
                return stop_control.is_stopping

            # The first signal lets the answers in flight arrive.
            stop_control.stop = partial(asyncio.sleep, 0)
            answers = await judge.confirm_findings(
                store,
                questions,
                model,
                title,
                sampling=parameters.apply(judge.SAMPLING),
                at_once=at_once,
                retry_unread=flags.retry_failed,
                on_answer=tell,
            )
            stop_control.stop = None
            if stop_control.is_stopping:
                raise asyncio.CancelledError
    asked = {finding.key for finding in questions}
    if unread := sum(answer.holds is None for key, answer in answers.items() if key in asked):
        console.say(
            f"{unread:,} of {write_count(len(asked), 'answer')} could not be read: intervals hold the worst case. "
            "--retry-failed asks again."
        )
    judged = {**judge.list_judged(title, findings, answers, facts), "unreadable": unread}
    if sample is not None:
        judged["corrected"] = judge.correct_rates(sample, answers)
    return judged
