"""``python -m benchmarks.rich_pages [CONVERSATIONS]``: CPU time of a page of fourteen messages that nobody has seen.

Each message has a table, two formulas, lists and a class in Python, and no two are the same. The bound is 20 ms.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from pydantic_core import from_json
from rich.console import Console

from bactrian.protocol.markers import read_instruction, read_solution
from bactrian.records.text import Text
from bactrian.store import open_store
from benchmarks.analysis import sessions
from benchmarks.explorer import PORT, RICH, Client, read_cpu, read_login, unpack

MESSAGES = 14


async def write(path: Path, count: int) -> None:
    """Write a run of ``count`` conversations."""
    long = (session for session in sessions(100 * count) if len(session.turns) >= MESSAGES)
    async with open_store(path) as store:
        for number, session in zip(range(count), long, strict=False):
            await store.begin(replace(session, turns=(), ending=None))
            for turn in session.turns[:MESSAGES]:
                named = "Instruction: " if turn.number % 2 else "Solution: "
                text = named + RICH.replace("NUMBER", f"{number * MESSAGES + turn.number}")
                said = (read_instruction if turn.number % 2 else read_solution)(text)
                await store.add_turn(session.id, replace(turn, text=Text(text), said=said))
            assert session.ending is not None
            await store.end(session.id, replace(session.ending, turn=MESSAGES), session.usage)


def measure(run: Path) -> str:
    """Ask for each conversation once, when the index is complete."""
    command = [sys.executable, "-m", "bactrian", "explore", str(run), "--port", str(PORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            client = Client(read_login(server))
            while True:
                (state,) = from_json(unpack(client.get("/status")[1]))
                if state["sessions"] and state["seen"] == state["sessions"] == state["size"]:
                    break
                time.sleep(0.3)
            rows = from_json(unpack(client.get("/conversations.json")[1]))["sessions"]
            first, *pages = [f"/c/{row['data']}/{row['id']}" for row in rows]
            client.get(first)
            before = read_cpu(server.pid)
            times = sorted(client.get(page)[0] for page in pages)
            cpu = 1000 * (read_cpu(server.pid) - before) / len(pages)
        finally:
            server.terminate()
    middle = times[len(times) // 2]
    return f"{len(pages)} pages: {cpu:.1f} ms CPU; {times[0]:.1f} ms the fastest, {middle:.1f} the median"


def main() -> None:
    """Write, measure and print."""
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run.db"
        asyncio.run(write(run, int(sys.argv[1]) if len(sys.argv) > 1 else 50))
        Console().print(measure(run), highlight=False)


if __name__ == "__main__":
    main()
