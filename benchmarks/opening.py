"""``python -m benchmarks.opening [RUNS]``: opening a run of 100,000 sessions and finding the one that is left.

The run is made through the store, as ``generate`` makes one: each session with two turns, and all but one with its
ending. Each measurement is a process of its own, with the file in the operating system's cache.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from bactrian.models.budget import UsageMeter
from bactrian.models.open import ModelOptions
from bactrian.protocol.pack import load_pack
from bactrian.recipes.load import load_recipe
from bactrian.records.session import Ending, Role, Session
from bactrian.records.text import Text
from bactrian.records.turn import Turn, Usage
from bactrian.roleplay.setup import RolePlaySetup, new_session
from bactrian.runs.kinds import find_job_kind
from bactrian.runs.plan import Plan
from bactrian.runs.wiring import RunLimits, RunOrder, prepare_run
from bactrian.store import RunStore, open_store

ROLES = 50
TASKS = 40
AGENTS = ("lister", "task_specifier", "task_planner", "user", "assistant")
RECIPE = """
name = "bench"
[[axes]]
name = "assistant"
count = {roles}
given = [{assistants}]
[[axes]]
name = "user"
count = {roles}
given = [{users}]
[[axes]]
name = "task"
count = {tasks}
given = [{given}]
[role_play]
assistant = "{{{{ assistant }}}}"
user = "{{{{ user }}}}"
idea = "{{{{ task }}}}"
"""


def plan(folder: Path) -> Plan:
    """A recipe of 50 x 50 x 40 jobs whose items are all given."""
    path = folder / "bench.toml"
    path.write_text(
        RECIPE.format(
            roles=ROLES,
            tasks=TASKS,
            assistants=_items("Assistant", ROLES),
            users=_items("User", ROLES),
            given=_items("Task", TASKS),
        )
    )
    return Plan(load_recipe(str(path)), dict.fromkeys(AGENTS, "openai:bench"))


def _items(word: str, count: int) -> str:
    return ", ".join(f'"{word} {number}"' for number in range(count))


def a_session() -> Session:
    """What all stored sessions are but for their ids."""
    setup = RolePlaySetup("Task", Role("Assistant"), Role("User"), dict.fromkeys(AGENTS, "openai:bench"))
    return new_session(setup, load_pack("ai-society"))


def a_turn(number: int) -> Turn:
    """One of a session's two turns."""
    speaker = "user" if number % 2 else "assistant"
    text = Text("Solution: The prices are loaded, checked, and kept for as long as they are needed.")
    usage = Usage(900, 40)
    return Turn(number, speaker, speaker, text, None, usage, 0.2, None, "bench", "stop")


async def store_run(path: Path, made: Plan) -> None:
    """Store 100,000 sessions, the last of them without an ending."""
    async with open_store(path) as store:
        await store.freeze(made.content(find_job_kind(made.recipe)(made).content()))
        session = a_session()
        numbers = [range(1, ROLES + 1), range(1, ROLES + 1), range(1, TASKS + 1)]
        ids = [f"{a:03}_{u:03}_{t:03}" for a, u, t in product(*numbers)]
        for start in range(0, len(ids), 1000):
            await asyncio.gather(
                *(_store(store, session, identifier) for identifier in ids[start : start + 1000])
            )


async def _store(store: RunStore, session: Session, session_id: str) -> None:
    await store.begin(replace(session, id=session_id))
    for number in (1, 2):
        await store.add_turn(session_id, a_turn(number))
    if session_id != f"{ROLES:03}_{ROLES:03}_{TASKS:03}":
        await store.end(session_id, Ending("task_done", 2, "user", "<CAMEL_TASK_DONE>"), Usage(1800, 80))


async def open_run(path: Path, made: Plan) -> dict[str, float]:
    """Seconds from nothing open to the first job, and the peak memory of this process in MB."""
    begun = time.perf_counter()
    order = RunOrder(made, path, ModelOptions(base_url="http://127.0.0.1:9/v1"), UsageMeter(), RunLimits())
    async with prepare_run(order) as work:
        seconds = time.perf_counter() - begun
        assert work.progress.done == ROLES * ROLES * TASKS - 1
    return {"seconds": seconds, "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    """Store the run, open it several times, and print the table."""
    if sys.argv[1:2] == ["open"]:
        folder = Path(sys.argv[2])
        print(json.dumps(asyncio.run(open_run(folder / "bench.db", plan(folder)))))
        return
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        asyncio.run(store_run(folder / "bench.db", plan(folder)))
        command = [sys.executable, "-m", "benchmarks.opening", "open", name]
        found = [json.loads(subprocess.check_output(command)) for _ in range(runs)]
    table = Table("figure", "median", title=f"{ROLES * ROLES * TASKS:,} stored sessions, {runs} runs")
    table.add_row(
        "opening and finding what is left, s", f"{median(opening['seconds'] for opening in found):.2f}"
    )
    table.add_row("peak memory, MB", f"{median(opening['mb'] for opening in found):.0f}")
    Console().print(table)


if __name__ == "__main__":
    main()
