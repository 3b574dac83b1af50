"""``bactrian evaluate``: measure models and conversations."""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar, Unpack, cast

import click

from bactrian import options as opts
from bactrian.api import measurements
from bactrian.api.measurements import SampleOrder, measure_code
from bactrian.api.solution_comparison import (
    Comparison,
    ForecastFunction,
    RunSeries,
    compare_answers,
    compare_role_plays,
    extract_role_plays,
)
from bactrian.cli.flags import Argument
from bactrian.cli.model_options import read_model_options, show_model_progress
from bactrian.cli.run_async import SOME_FAILED, WHOLE, StopControl, run_async
from bactrian.cli.terminal.bar import show_bar
from bactrian.cli.terminal.console import say
from bactrian.cli.view import evaluation as view
from bactrian.cli.view.progress_view import choose_progress_view, forecast_order, watch_run
from bactrian.cli.view.training_progress import TrainingView
from bactrian.errors import InputError
from bactrian.evaluate import invitations
from bactrian.evaluate.comparison import write_page
from bactrian.evaluate.known_answers import NOTHING, choose_size
from bactrian.evaluate.question_sets import SETS, ask_questions, load_questions, write_questions
from bactrian.evaluate.votes import find_study, name_solutions, read_tally, read_votes
from bactrian.files.atomic import check_own_report
from bactrian.models.faults import Retry
from bactrian.models.open import ModelOptions
from bactrian.models.telemetry import open_observed
from bactrian.records.text import to_json
from bactrian.runs.wiring import RunOrder
from bactrian.store import find_run

Number = TypeVar("Number", int, float)
_RESUME = "All results so far are stored; the same command resumes."


class _Shown(opts.SpendingOptions, total=False):
    """How models are asked, and what is shown."""

    forecast: Annotated[bool, opts.FORECAST]
    as_json: Annotated[bool, opts.JSON]


class ExtractionFlags(_Shown, opts.DrawOptions, total=False):
    """Which conversations are extracted."""


class ComparisonFlags(_Shown, opts.ComparisonOptions, total=False):
    """Who judges, and where the report goes."""

    judge: Annotated[
        Sequence[str],
        opts.JUDGE,
        "Model that judges. Without one, solutions are only written. Can be repeated, for a panel.",
    ]
    report: Annotated[Path | None, opts.REPORT]


class AgentFlags(ComparisonFlags, opts.AgentOptions, total=False):
    """What role-plays are compared with."""


class ScoreFlags(opts.ScoreOptions, total=False):
    """How solutions are asked for and judged, and what is shown."""

    forecast: Annotated[bool, opts.FORECAST]
    as_json: Annotated[bool, opts.JSON]


class Evaluation:
    """An evaluation on the terminal: shows the progress of its runs or what they will cost, and then the report."""

    def __init__(self, flags: Mapping[str, Any]) -> None:
        self.stop_control = StopControl()
        self.flags = flags
        self.as_json: bool = flags.get("as_json", False)
        self.forecast: ForecastFunction | None = self._forecast if flags.get("forecast") else None
        if (page := flags.get("report")) is not None:
            check_own_report(page)

    def compare(
        self,
        work: Callable[[RunSeries], Awaitable[Comparison]],
        template: str,
        show: Callable[[Any], None],
        tell: Callable[[Comparison], None] = lambda _: None,
    ) -> NoReturn:
        """Do the work in a series of runs, write its report, ``tell`` what was made, and exit."""
        series = RunSeries(cast("opts.SpendingOptions", self.flags), self.run, self.forecast)

        async def run() -> int:
            compared = await work(series)
            self.write(compared.report, template, show)
            if self.forecast is None:
                tell(compared)
            return series.code if compared.is_read else max(series.code, SOME_FAILED)

        self.end(run())

    async def run(self, order: RunOrder) -> int:
        """Run the jobs of an order, show the progress, and return the exit code."""
        order = replace(order, access=show_model_progress(order.access))
        ledger = choose_progress_view(json=False, quiet=self.as_json, noun="task")
        code = await watch_run(order, ledger, self.stop_control)
        self.stop_control.stop = None
        if self.stop_control.is_stopping:  # The next run would fail for all that this one did not make.
            raise asyncio.CancelledError
        return code

    async def _forecast(self, order: RunOrder, title: str = "") -> None:
        order = replace(order, access=show_model_progress(order.access))
        await forecast_order(order, json=self.as_json, title=title)

    def end(self, work: Coroutine[object, object, int], resume: str = _RESUME) -> NoReturn:
        """Do the work, and exit with the code that it returns."""
        run_async(work, resume=resume, stop_control=self.stop_control)

    def write(self, report: dict[str, Any] | None, template: str, show: Callable[[Any], None]) -> None:
        """Write the report if there is one: as a page if that is wanted, and as JSON or as text."""
        if report is None:
            return
        if (page := self.flags.get("report")) is not None:
            write_page(page, template, report)
        if self.as_json:
            print(to_json(report))
        else:
            show(report)


def agents(
    run_file: Annotated[Path | None, Argument(metavar="RUN", help="A run of role-plays.")] = None,
    model: Annotated[
        str | None,
        opts.MODEL,
        "Model of the single answers. Default: the run's assistant.",
    ] = None,
    extractor: Annotated[
        str | None,
        opts.EXTRACTOR,
        "Model that extracts all solutions. Default: that of --model, or for each the model that wrote it.",
    ] = None,
    paper: Annotated[
        bool,
        opts.Option(
            "--paper", "Show the paper's figures; with RUN, say if none was measured as this comparison is."
        ),
    ] = False,
    **flags: Unpack[AgentFlags],
) -> None:
    """Compare the solutions of role-plays with single answers, by judges (tables 1, 8 and 9 of the paper)."""
    if paper and run_file is None:
        view.show_paper(as_json=flags.get("as_json", False))
        return
    if run_file is None:
        raise InputError("There is no run to evaluate.", where="RUN", next="bactrian evaluate agents RUN")

    def tell(compared: Comparison) -> None:
        if paper and not any(pair["paper"] for pair in (compared.report or {}).get("comparisons", ())):
            say("No figure of the paper was measured as this comparison is: bactrian evaluate agents --paper")
        say(f"Solutions: {compared.solutions}")
        pages = run_file if find_study(run_file) == compared.folder else compared.solutions
        say(f"To vote on them: bactrian explore {shlex.quote(str(pages))} --edit")

    judges = flags.get("judge", ())
    Evaluation(flags).compare(
        lambda series: compare_role_plays(run_file, judges, series, model, extractor),
        "comparison.html.j2",
        view.show_comparison,
        tell,
    )


def extract(
    run_file: Annotated[Path, Argument(metavar="RUN", help="A run of role-plays.")],
    model: Annotated[
        str | None, opts.MODEL, "Model that extracts. Default: the model that wrote the conversation."
    ] = None,
    **flags: Unpack[ExtractionFlags],
) -> None:
    """Write the solution of each conversation as one text, in the solver's own voice."""

    def tell(compared: Comparison) -> None:
        if flags.get("as_json"):
            for row in compared.extracted:
                print(to_json(row))
        say(f"Solutions: {compared.solutions}")
        say(f"To read them: bactrian show {shlex.quote(str(compared.solutions))}")

    Evaluation(flags).compare(
        lambda series: extract_role_plays(run_file, series, model), "", view.show_comparison, tell
    )


def pairwise(
    first: Annotated[str, Argument(metavar="A", help="The first model.")],
    second: Annotated[str, Argument(metavar="B", help="The second model.")],
    questions: Annotated[
        str, opts.Option("--questions", f"A set ({', '.join(SETS)}), or a file of JSON lines with `text`.")
    ],
    limit: Annotated[int | None, opts.LIMIT, "Only so many questions, drawn at random."] = None,
    out: Annotated[
        Path | None, opts.OUT, "Folder of answers and verdicts. Default: A-B.SET.pairwise."
    ] = None,
    **flags: Unpack[ComparisonFlags],
) -> None:
    """Compare two models on a set of questions, by judges (table 2 of the paper)."""
    models, judges = (first, second), flags.get("judge", ())
    Evaluation(flags).compare(
        lambda series: compare_answers(models, questions, judges, series, limit=limit, out=out),
        "comparison.html.j2",
        view.show_comparison,
    )


@dataclass(frozen=True, slots=True)
class KnownAnswerFlags:
    """The known-answer experiment."""

    known_answers: Annotated[
        bool,
        opts.Option("--known-answers", "Train on invented facts, and ask for them: answers are exact."),
    ] = False
    base: Annotated[
        str,
        opts.Option(
            "--base", "What is trained: `nothing` (made from nothing), `built-in`, a GGUF file, a folder."
        ),
    ] = NOTHING
    seeds: Annotated[
        int,
        opts.Option(
            "--seeds", "Repetitions, each with facts and a training of its own; --seed is the first.", min=1
        ),
    ] = 1
    facts: Annotated[
        int | None,
        opts.Option("--facts", "Facts taught in each domain. Default: 12; 10 for other bases.", min=2),
    ] = None
    wordings: Annotated[
        int | None,
        opts.Option(
            "--wordings",
            "Wordings in which each fact is taught. Default: 6; 4 for other bases.",
            min=1,
            max=6,
        ),
    ] = None
    steps: Annotated[
        int | None, opts.Option("--steps", "Steps of each stage, instead of the usual length.", min=1)
    ] = None
    write_only: Annotated[
        bool,
        opts.Option("--write-only", "Only write facts, conversations and recipes; train and ask nothing."),
    ] = False


@dataclass(frozen=True, slots=True)
class QuestionFlags:
    """What judges compare."""

    questions: Annotated[
        list[str] | None,
        opts.Option(
            "--questions", f"A set ({', '.join(SETS)}) or a file; can be repeated. Default: all four sets."
        ),
    ] = None
    limit: Annotated[int | None, opts.LIMIT, "Only N questions of each set, drawn at random."] = None


def emergence(
    stages: Annotated[
        list[str] | None,
        Argument(
            metavar="[STAGES]...",
            help="The stages, as MODEL or NAME=MODEL, the base first; or the folder of a training.",
        ),
    ] = None,
    known: KnownAnswerFlags = KnownAnswerFlags(),
    asked: QuestionFlags = QuestionFlags(),
    out: Annotated[Path, opts.OUT, "Folder of the experiment; the same command resumes it."] = Path(
        "emergence"
    ),
    **flags: Unpack[ComparisonFlags],
) -> None:
    """Measure what each stage of a training adds (tables 2 and 6 of the paper)."""
    if flags.get("by_roles"):
        raise InputError(
            "Questions to stages have no pairs of roles.", where="--by-roles", next="Leave it out."
        )
    evaluation = Evaluation(flags)
    if known.known_answers:
        order = _order_known_answers(stages or (), known, flags, out)
        if known.write_only:
            for study in measurements.prepare_studies(order):
                click.echo(shlex.quote(str(out / f"seed-{study.seed}")))
            return
        evaluation.end(_measure(order, evaluation))
    models = measurements.find_stages(stages or (), ModelOptions(base_url=flags.get("base_url")))
    evaluation.compare(
        lambda series: measurements.compare_stages(
            models,
            asked.questions or SETS,
            flags.get("judge", ()),
            series,
            out=out.absolute(),
            limit=asked.limit,
            tell=lambda name: say(f"Questions: {name}"),
        ),
        "stages.html.j2",
        view.show_stages,
    )


def _order_known_answers(
    stages: Sequence[str],
    known: KnownAnswerFlags,
    flags: ComparisonFlags,
    out: Path,
) -> measurements.KnownAnswerOrder:
    for name in ("judge", "forecast", "budget", "reply_length"):
        if flags.get(name):
            raise InputError(
                "Known answers are graded without a judge, and asked of models on this computer.",
                where=f"--{name.replace('_', '-')}",
                next="Leave it out, or leave --known-answers out.",
            )
    seed = flags.get("seed")
    seed = 1 if seed is None else seed
    return measurements.KnownAnswerOrder(
        out.absolute(),
        tuple(range(seed, seed + (1 if stages else known.seeds))),
        choose_size(known.base, known.facts, known.wordings),
        str(Path(known.base).absolute()) if Path(known.base).exists() else known.base,
        known.steps,
        measurements.find_stages(stages, ModelOptions(base_url=flags.get("base_url"))) if stages else (),
        flags,
        TrainingView(quiet=flags.get("as_json", False)).show_event,
    )


async def _measure(order: measurements.KnownAnswerOrder, evaluation: Evaluation) -> int:
    async def ask(asked: RunOrder) -> int:
        say(f"Asking {asked.run.stem}, {asked.run.parent.parent.name}.")
        return await watch_run(asked, choose_progress_view(json=False, quiet=True), evaluation.stop_control)

    result = await measurements.measure_known_answers(order, ask)
    evaluation.stop_control.stop = None
    evaluation.write(result.to_json(), "matrix.html.j2", view.show_matrix)
    return SOME_FAILED if result.unanswered else 0


def questions(
    category: Annotated[str, Argument(f"A category, such as {', '.join(SETS)}, or any other in words.")],
    model: Annotated[str, opts.MODEL, "Model that writes the questions."] = "local",
    count: Annotated[int, opts.COUNT, "Number of questions."] = 20,
    examples: Annotated[
        str | None,
        opts.Option(
            "--examples", "A set or file whose first three questions are shown. Default: the category's."
        ),
    ] = None,
    seed: opts.Seed = None,
    base_url: opts.BaseUrl = None,
    out: Annotated[Path | None, opts.OUT, "The file. Default: CATEGORY.questions.jsonl."] = None,
) -> None:
    """Let a model write questions of a category, with examples; the file can be edited and given to --questions."""
    path = out or Path(f"{'-'.join(category.split())}.questions.jsonl")
    if path.exists():
        raise InputError("This file exists already.", where=str(path), next="Name another --out.")
    shown = load_questions(examples or (category if category in SETS else SETS[0])).questions

    async def ask() -> int:
        async with open_observed(model, read_model_options(base_url, model), "questions") as writer:
            written = await ask_questions(Retry(writer), category, shown, count, seed=seed)
        write_questions(path, category, written, model)
        click.echo(f"{len(written)} of {count} questions: {path}", err=True)
        return 0

    run_async(ask(), resume=WHOLE)


def humaneval(
    model: Annotated[
        str | None, opts.MODEL, "The model to measure; see `bactrian models`. Default: local."
    ] = None,
    run_file: Annotated[
        Path, opts.RUN, "The run that keeps the samples; the same command resumes it."
    ] = Path("humaneval.db"),
    samples: Annotated[
        int,
        opts.Option("--samples", "Samples of each problem.", short="-n", min=1),
    ] = 1,
    ks: Annotated[
        str | None,
        opts.Option("-k", "Values of k in pass@k, separated by commas.", shown="1,10,100, up to -n"),
    ] = None,
    temperature: Annotated[str, opts.TEMPERATURE, "Temperatures, separated by commas."] = "0.2",
    solutions: Annotated[
        Path | None,
        opts.Option("--solutions", "Score the solutions of this file (JSON lines); ask no model."),
    ] = None,
    **flags: Unpack[ScoreFlags],
) -> None:
    """Measure how often a model's code passes the checks of HumanEval, or of your own problems."""
    wanted = None if ks is None else _read_list("-k", ks, int, 1)
    temperatures = _read_list("--temperature", temperature, float, 0)
    if solutions is not None and model is not None:
        raise InputError(
            "With --solutions no model is asked.", where="--model", next="Leave out one of them."
        )
    evaluation = Evaluation(flags)

    @contextmanager
    def watch(total: int) -> Generator[Callable[[object], None]]:
        # Several threads count.
        counter = count(1)
        with show_bar("Judging", "solutions", quiet=evaluation.as_json) as tell:
            yield lambda _: tell(next(counter), total)

    async def score() -> int:
        made = SampleOrder(model, run_file, samples, temperatures, evaluation.run, evaluation.forecast)
        measured = await measure_code(solutions or made, wanted, flags, watch)
        if measured.score is not None and evaluation.as_json:
            print(json.dumps({**measured.score.to_json(), "verdicts": str(measured.verdicts)}))
        elif measured.score is not None:
            view.show_score(measured.score, measured.verdicts)
        return measured.code

    spent = "Nothing was spent." if flags.get("forecast") else _RESUME
    evaluation.end(score(), "The same command resumes." if solutions else spent)


def _read_list(option: str, text: str, kind: type[Number], least: Number) -> list[Number]:
    """Return the numbers of an option, each once.

    Raises:
        InputError: one is not a number, or too small.
    """
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or not all(least <= number < 1_000_000 for number in numbers):
        raise InputError(
            f"{text!r} is not a list of numbers from {least}.",
            where=option,
            next="Write them as in 1,10,100.",
        )
    return list(dict.fromkeys(numbers))


def vote(
    run_file: Annotated[
        Path,
        Argument(metavar="RUN", help="The run that was evaluated, or the folder of its evaluation."),
    ],
    as_json: Annotated[bool, opts.JSON, "Write the results as JSON."] = False,
) -> None:
    """Show what people's votes on pairs of solutions say; they vote on the pages of `bactrian explore`."""
    folder = _find_folder(run_file)
    tally = asyncio.run(read_tally(folder))
    if as_json:
        print(json.dumps(tally, ensure_ascii=False))
        return
    view.show_tally(tally)
    run = shlex.quote(str(run_file))
    pages = shlex.quote(str(_find_pages(run_file, folder)))
    say(f"To vote: bactrian explore {pages} --edit; to invite others: bactrian evaluate invite {run}")


def _find_folder(path: Path) -> Path:
    """Return the folder of the evaluation that a command names.

    Raises:
        InputError: there are no solutions in it.
    """
    path = find_run(path)
    if not path.exists():
        raise InputError(
            "There is no such run.", where=str(path), next="Check the path; `bactrian runs` lists the runs."
        )
    folder = find_study(path)
    if folder is None:
        raise InputError(
            "There are no solutions to vote on.",
            where=str(path),
            next=f"Write them first: bactrian evaluate agents {shlex.quote(str(path))}",
        )
    return folder


def _find_pages(path: Path, folder: Path) -> Path:
    """Return what the explorer opens to show the pages of votes: not the folder of an evaluation, but a run."""
    return name_solutions(folder) if path.is_dir() else path


def invite(
    run_file: Annotated[
        Path,
        Argument(metavar="RUN", help="The run that was evaluated, or the folder of its evaluation."),
    ],
    voters: Annotated[
        list[str] | None, Argument(metavar="VOTER", help="Pseudonyms. Default: random ones.")
    ] = None,
    count: Annotated[
        int, opts.Option("--voters", "Invite this many voters with random pseudonyms.", short="-n", min=1)
    ] = 1,
    address: Annotated[str, opts.ADDRESS] = invitations.DEFAULT_ADDRESS,
    withdraw: Annotated[
        str | None, opts.WITHDRAW, "Make the link of this voter invalid; the votes stay."
    ] = None,
    show: Annotated[bool, opts.Option("--list", "List the voters and the number of their votes.")] = False,
    as_json: Annotated[bool, opts.JSON] = False,
) -> None:
    """Make a link for each voter, to vote in the browser. A new link of a voter replaces the old one."""
    folder = _find_folder(run_file)
    if withdraw is not None:
        invitations.withdraw_invitation(folder, withdraw)
        print(f"The link of {withdraw} is not valid any more.", file=sys.stderr)
        return
    if show:
        _list_voters(folder, as_json=as_json)
        return
    invitations.check_address(address)
    links = invitations.make_links(
        address, "vote", invitations.invite_voters(folder, voters or invitations.name_voters(count))
    )
    if as_json:
        print(json.dumps([{"voter": voter, "link": link} for voter, link in links.items()]))
        return
    for voter, link in links.items():
        print(f"{voter}\t{link}")
    print(
        f"Send each voter one link.\n{invitations.tell_server(_find_pages(run_file, folder), address)}",
        file=sys.stderr,
    )


def _list_voters(folder: Path, *, as_json: bool) -> None:
    given = asyncio.run(read_votes(folder))
    votes = Counter(vote.voter for vote in given if not vote.repeated)
    again = Counter(vote.voter for vote in given if vote.repeated)
    invited = [invitation.voter for invitation in invitations.read_invitations(folder)]
    names = list(dict.fromkeys((*invited, *sorted(votes))))
    if as_json:
        counts = [{"voter": name, "votes": votes[name], "repeated": again[name]} for name in names]
        print(json.dumps([{**row, "invited": row["voter"] in invited} for row in counts], ensure_ascii=False))
        return
    for name in names:
        repeated = f" and {again[name]} repeated" if again[name] else ""
        print(f"{name}\t{votes[name]}{repeated}\t{'invited' if name in invited else 'not invited'}")
