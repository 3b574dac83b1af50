"""``python -m benchmarks.memory [JOBS]``: peak memory after a tenth, half and all of one run of questions.

The recipe has two axes, so that the jobs are told by a few hundred items and not held one by one. Everything is on,
as in ``generate``; the server is the loopback one of the other benchmarks.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bactrian.models.budget import UsageMeter
from bactrian.models.open import ModelOptions
from bactrian.recipes.load import load_recipe
from bactrian.runs.plan import Plan
from bactrian.runs.progress import RunProgress
from bactrian.runs.wiring import RunLimits, RunOrder, prepare_run, tune_gc
from benchmarks.__main__ import server

WIDTH = 100
MARKS = (0.1, 0.5, 1.0)
AGENTS = ("lister", "task_specifier", "task_planner", "user", "assistant")
RECIPE = """
name = "bench"
[[axes]]
name = "topic"
count = {topics}
given = [{given}]
[[axes]]
name = "question"
count = {width}
given = [{questions}]
[answer]
role = "Physicist"
system = "You are a physicist."
question = "{{{{ topic }}}}: {{{{ question }}}}"
"""


def recipe(jobs: int) -> str:
    """A recipe of so many questions, rounded up to a full grid."""
    topics = -(-jobs // WIDTH)
    return RECIPE.format(
        topics=topics,
        width=WIDTH,
        given=", ".join(f'"Topic {number}"' for number in range(topics)),
        questions=", ".join(f'"Why does part {number} move?"' for number in range(WIDTH)),
    )


async def watched(progress: RunProgress) -> list[tuple[int, float]]:
    """Jobs that are done, and the peak memory in MB by then, at each mark."""
    found: list[tuple[int, float]] = []
    for mark in MARKS:
        while True:
            await asyncio.sleep(0.02)
            if progress.done >= mark * progress.total:
                break
        found.append((progress.done, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))
    return found


async def generate(port: int, jobs: int, folder: Path) -> list[tuple[int, float]]:
    """Answer all questions, as the command does."""
    path = folder / "bench.toml"
    path.write_text(recipe(jobs))
    order = RunOrder(
        plan=Plan(load_recipe(str(path)), dict.fromkeys(AGENTS, "openai:bench")),
        run=folder / "bench.db",
        access=ModelOptions(base_url=f"http://127.0.0.1:{port}/v1"),
        meter=UsageMeter(),
        limits=RunLimits(),
    )
    tune_gc()
    async with prepare_run(order) as work:
        watch = asyncio.create_task(watched(work.progress))
        await work.run()
        return await watch


def main() -> None:
    """Measure and print the table."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    begun = time.perf_counter()
    with server(0.0) as port, tempfile.TemporaryDirectory() as folder:
        peaks = asyncio.run(generate(port, jobs, Path(folder)))
    table = Table(
        "jobs done", "peak memory, MB", title=f"{jobs:,} jobs in {time.perf_counter() - begun:.0f} s"
    )
    for done, peak in peaks:
        table.add_row(f"{done:,}", f"{peak:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
