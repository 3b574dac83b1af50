"""``bactrian evaluate agents`` and ``extract``: solutions of role-plays, alone and beside single answers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bactrian.cli.commands.evaluate.humaneval import SpendingFlags
from bactrian.cli.commands.evaluate.solving import ComparisonFlags, SolutionPlan, compare_solutions
from bactrian.cli.options import declare_option, flatten_groups
from bactrian.cli.run_async import StopControl, run_async
from bactrian.cli.view.comparison import show_paper
from bactrian.errors import InputError
from bactrian.evaluate.agents.dilemma import write_dilemma
from bactrian.evaluate.agents.drawing import (
    build_solution_recipe,
    draw_tasks,
    find_usual_model,
    list_conversations,
    read_stored_draw,
    read_task_file,
)
from bactrian.evaluate.agents.solution_jobs import Solutions, Way
from bactrian.evaluate.agents.verdict_jobs import read_solutions
from bactrian.evaluate.votes.study import name_folder
from bactrian.language.escape import to_json
from bactrian.store import find_run, open_store

_JUDGING, _SPENDING = ComparisonFlags(), SpendingFlags()
_RESUME = "All results so far are stored; the same command goes on."


@dataclass(frozen=True, slots=True)
class DrawFlags:
    """Which tasks are evaluated."""

    tasks: Annotated[int, declare_option("--tasks", "Tasks to draw at random.", short="-n", min=1)] = 100
    only: Annotated[
        Path | None,
        declare_option("--only", "In place of a draw: a file of session ids, one a line.", metavar="FILE"),
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
        bool, declare_option("--paper", "Show the paper's figures, and what each stands beside.")
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
    wanted = _Wanted(
        find_run(run_file), against and find_run(against), tuple(ways), model, extractor, draw, spending
    )
    work = _evaluate(wanted, judging, out, dilemma, stop_control)
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
    wanted = _Wanted(run, None, ("extraction",), model, None, draw, spending)
    judging = ComparisonFlags(forecast=forecast, retry_failed=retry_failed, as_json=as_json)
    run_async(_extract(wanted, judging, folder, stop_control), resume=_RESUME, stop_control=stop_control)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What the flags ask for."""

    run: Path
    against: Path | None
    ways: tuple[Way, ...]
    model: str | None
    extractor: str | None
    draw: DrawFlags
    spending: SpendingFlags


async def _make_plan(wanted: _Wanted, folder: Path) -> SolutionPlan:
    sessions = await list_conversations(wanted.run)
    if wanted.against is not None:
        others = set(await list_conversations(wanted.against))
        sessions = [one for one in sessions if one in others]
        if not sessions:
            raise InputError(
                "The two runs have no finished session in common.",
                where=str(wanted.against),
                next="`bactrian generate --fork NEW --keep-tasks` makes a second run on the same tasks.",
            )
    spec = Solutions(
        ways=wanted.ways,
        source=str(wanted.run.absolute()),
        against=str(wanted.against.absolute()) if wanted.against else "",
        seed=wanted.spending.seed or 0,
        drawn=None if wanted.draw.only else wanted.draw.tasks,
    )
    plan = SolutionPlan(folder, build_solution_recipe(["-"], spec), {}, (), 0)
    if wanted.draw.only is not None:
        tasks = read_task_file(wanted.draw.only, sessions)
    else:
        tasks = await read_stored_draw(plan.solutions, spec)
        tasks = tasks or draw_tasks(sessions, wanted.draw.tasks, spec.seed)
    model = wanted.model or await find_usual_model(wanted.run, tasks[0])
    extractor = wanted.extractor or model
    models = {way: extractor if way in ("extraction", "against") else model for way in wanted.ways}
    pairs: list[tuple[Way, Way]] = [
        (one, other) for place, one in enumerate(wanted.ways) for other in wanted.ways[place + 1 :]
    ]
    return SolutionPlan(folder, build_solution_recipe(tasks, spec), models, pairs, len(tasks))


async def _evaluate(
    wanted: _Wanted,
    judging: ComparisonFlags,
    out: Path | None,
    dilemma: Path | None,
    stop_control: StopControl,
) -> int:
    folder = name_folder(wanted.run, out)
    plan = await _make_plan(wanted, folder)
    code = await compare_solutions(plan, judging, wanted.spending, stop_control)
    if judging.forecast:
        return code
    if dilemma is not None:
        count = await write_dilemma(plan.solutions, dilemma)
        typer.echo(f"{count} solutions for the voting app: {dilemma}", err=True)
    typer.echo(
        f"Solutions: {plan.solutions}\nTo vote yourself: bactrian evaluate vote {shlex.quote(str(folder))}",
        err=True,
    )
    return code


async def _extract(wanted: _Wanted, judging: ComparisonFlags, folder: Path, stop_control: StopControl) -> int:
    plan = await _make_plan(wanted, folder)
    code = await compare_solutions(plan, judging, wanted.spending, stop_control)
    if judging.forecast:
        return code
    if judging.as_json:
        async with open_store(plan.solutions, read_only=True) as store:
            solved = [session async for session in store.sessions() if session.turns]
        for session in sorted(solved, key=lambda one: one.id):
            solution = read_solutions(session)["extraction"]
            row = {"session": session.values["task"], "task": session.task.text, "solution": solution}
            typer.echo(to_json(row))
    typer.echo(
        f"Solutions: {plan.solutions}\nTo read them: bactrian show {shlex.quote(str(plan.solutions))}",
        err=True,
    )
    return code
