"""``python -m benchmarks.sandbox [RUNS]``: the cost of a start, of a further block, and of 164 solutions.

CPU time is that of all processes together, so that a busy machine changes it little; times on the clock follow the
load, and stand beside those of a bare interpreter in the same minute.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bactrian.evaluate.code_judge import VerdictFile, judge_solutions
from bactrian.evaluate.problems import CodeSample, read_human_eval
from bactrian.sandbox.programs import SandboxSession
from bactrian.sandbox.tiers import TIERS, Limits, Tier

BLOCKS = 500
WORKERS = 2
INTERPRETER = (sys.executable, "-I", "-S", "-B", "-c", "pass")


def measure(action: Callable[[], object]) -> tuple[float, float]:
    """Return the milliseconds on the clock and of CPU time, with those of ended children."""
    wall, cpu = time.perf_counter(), _read_cpu()
    action()
    return (time.perf_counter() - wall) * 1000, (_read_cpu() - cpu) * 1000


def _read_cpu() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(spent.ru_utime + spent.ru_stime for spent in usage)


def _start(tier: Tier) -> None:
    SandboxSession(tier=tier).close()


def _time_blocks(tier: Tier) -> tuple[float, float]:
    """Return the milliseconds of a block and of an action's call on the clock."""
    with SandboxSession(Limits(cpu=100), {"act": str}, tier=tier) as session:
        session.run("x = 0")
        block = measure(lambda: [session.run("x += 1") for _ in range(BLOCKS)])[0] / BLOCKS
        return block, measure(lambda: session.run(f"for number in range({BLOCKS}): act(number)"))[0] / BLOCKS


def _judge_all() -> None:
    problems = read_human_eval()
    samples = [CodeSample(problem.id, problem, problem.prompt + problem.canonical) for problem in problems]
    with tempfile.TemporaryDirectory() as folder:
        verdicts = VerdictFile(Path(folder) / "verdicts.jsonl")
        found = judge_solutions(samples, verdicts, Limits(), workers=WORKERS, on_verdict=lambda _: None)
    assert all(verdict.passed for verdict in found)


def main() -> None:
    """Measure and print the table."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 15
    table = Table(
        "tier", "what", "ms", "ms CPU", "ms of a bare interpreter", "ms CPU", title=f"Medians of {runs}"
    )
    for tier in TIERS:
        pairs = [
            (measure(partial(_start, tier)), measure(partial(subprocess.run, INTERPRETER, check=True)))
            for _ in range(runs)
        ]
        figures = [median(pair[subject][which] for pair in pairs) for subject in (0, 1) for which in (0, 1)]
        table.add_row(tier.name, "start and end", *(f"{figure:.1f}" for figure in figures))
        block, call = _time_blocks(tier)
        table.add_row(tier.name, "a further block", f"{block:.2f}")
        table.add_row(tier.name, "a call of an action", f"{call:.2f}")
    wall, cpu = measure(_judge_all)
    table.add_row("strongest", f"164 solutions, {WORKERS} workers", f"{wall:.0f}", f"{cpu:.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
