"""``bactrian evaluate agents`` and ``extract``: solutions of role-plays, alone and beside single answers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bactrian.api.evaluation.comparison import read_extracted
from bactrian.api.evaluation.plan import AgentsDraw, plan_agents
from bactrian.cli.commands.evaluate.humaneval import SpendingFlags
from bactrian.cli.commands.evaluate.solving import ComparisonFlags, compare_solutions
from bactrian.cli.options import declare_option, flatten_groups
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.view.comparison import show_paper
from bactrian.errors import InputError
from bactrian.evaluate.agents.dilemma import write_dilemma
from bactrian.evaluate.agents.solution_jobs import Way
from bactrian.evaluate.votes.study import name_folder
from bactrian.language.escape import to_json
from bactrian.store import find_run

_JUDGING, _SPENDING = ComparisonFlags(), SpendingFlags()
_RESUME = "All results so far are stored; the same command resumes."


@dataclass(frozen=True, slots=True)
class DrawFlags:
    """Which tasks are evaluated."""

    tasks: Annotated[int, declare_option("--tasks", "Tasks to draw at random.", short="-n", min=1)] = 100
    only: Annotated[
        Path | None,
        declare_option("--only", "Instead of a draw: a file of session ids, one a line.", metavar="FILE"),
    ] = None


@flatten_groups
def agents(
    run_file: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run of role-plays.")] = None,
    model: Annotated[
        str | None,
        declare_option("--model", "Model of the single answers. Default: the run's assistant."),
    ] = None,
    extractor: Annotated[
        str | None,
        declare_option("--extractor", "Model that extracts the solutions. Default: that of --model."),
    ] = None,
    chain_of_thought: Annotated[
        bool, declare_option("--chain-of-thought", "Also compare with answers that think step by step.")
    ] = False,
    against: Annotated[
        Path | None,
        declare_option("--against", "Compare with the role-plays of another run on the same tasks."),
    ] = None,
    draw: DrawFlags = DrawFlags(),
    judging: ComparisonFlags = _JUDGING,
    spending: SpendingFlags = _SPENDING,
    out: Annotated[
        Path | None, declare_option("--out", "Folder of solutions and verdicts. Default: RUN.agents.")
    ] = None,
    dilemma: Annotated[
        Path | None, declare_option("--dilemma", "Also write the solutions for CAMEL's voting app: FILE.zip.")
    ] = None,
    paper: Annotated[
        bool, declare_option("--paper", "Show the paper's figures, and what each is compared with.")
    ] = False,
) -> None:
    """Compare the solutions of role-plays with single answers, by judges (tables 1, 8 and 9 of the paper)."""
    if paper:
        show_paper(as_json=judging.as_json)
        raise typer.Exit
    if run_file is None:
        raise InputError("There is no run to evaluate.", where="RUN", next="bactrian evaluate agents RUN")
    ways: list[Way] = ["extraction", *(["against"] if against else ["single_shot"])]
    if chain_of_thought:
        ways.append("chain_of_thought")
    stop_control = StopControl()
    run = find_run(run_file)
    wanted = AgentsDraw(
        run,
        tuple(ways),
        against and find_run(against),
        draw.tasks,
        draw.only,
        spending.seed,
        model,
        extractor,
    )
    work = _evaluate(wanted, name_folder(run, out), (judging, spending), dilemma, stop_control)
    run_async(work, resume=_RESUME, stop_control=stop_control)


@flatten_groups
def extract(
    run_file: Annotated[Path, typer.Argument(metavar="RUN", help="A run of role-plays.")],
    model: Annotated[
        str | None, declare_option("--model", "Model that extracts. Default: the run's assistant.")
    ] = None,
    draw: DrawFlags = DrawFlags(),
    spending: SpendingFlags = _SPENDING,
    out: Annotated[
        Path | None, declare_option("--out", "Folder of the solutions. Default: RUN.extraction.")
    ] = None,
    forecast: Annotated[
        bool, declare_option("--forecast", "Estimate the cost, without any request.")
    ] = False,
    retry_failed: Annotated[
        bool, declare_option("--retry-failed", "Ask again where a model failed.")
    ] = False,
    as_json: Annotated[bool, declare_option("--json", "Write the solutions as JSON lines.")] = False,
) -> None:
    """Write the solution of each conversation as one text, in the solver's own voice."""
    stop_control = StopControl()
    run = find_run(run_file)
    folder = (out or run.with_name(f"{run.stem}.extraction")).absolute()
    wanted = AgentsDraw(run, ("extraction",), None, draw.tasks, draw.only, spending.seed, model)
    judging = ComparisonFlags(forecast=forecast, retry_failed=retry_failed, as_json=as_json)
    run_async(
        _extract(wanted, folder, (judging, spending), stop_control), resume=_RESUME, stop_control=stop_control
    )


async def _evaluate(
    wanted: AgentsDraw,
    folder: Path,
    flags: tuple[ComparisonFlags, SpendingFlags],
    dilemma: Path | None,
    stop_control: StopControl,
) -> int:
    plan = await plan_agents(wanted, folder)
    code = await compare_solutions(plan, *flags, stop_control)
    if flags[0].forecast:
        return code
    if dilemma is not None:
        count = await write_dilemma(plan.solutions, dilemma)
        typer.echo(f"{count} solutions for the voting app: {dilemma}", err=True)
    typer.echo(
        f"Solutions: {plan.solutions}\nTo vote yourself: bactrian evaluate vote {shlex.quote(str(folder))}",
        err=True,
    )
    return code


async def _extract(
    wanted: AgentsDraw,
    folder: Path,
    flags: tuple[ComparisonFlags, SpendingFlags],
    stop_control: StopControl,
) -> int:
    plan = await plan_agents(wanted, folder)
    code = await compare_solutions(plan, *flags, stop_control)
    if flags[0].forecast:
        return code
    if flags[0].as_json:
        for row in await read_extracted(plan.solutions):
            typer.echo(to_json(row))
    typer.echo(
        f"Solutions: {plan.solutions}\nTo read them: bactrian show {shlex.quote(str(plan.solutions))}",
        err=True,
    )
    return code
