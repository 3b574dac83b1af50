"""``python -m benchmarks.shared [RUNS]``: one run by 1, 2 and 4 processes, as shards in SQLite and in PostgreSQL.

The processes of a run start together and ask a server in a process of its own. Each measures itself, imports left out.
PostgreSQL must be installed here. Its server does not wait for the disk, and its CPU time has a column of its own.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.__main__ import server
from benchmarks.client import CALLS, RECIPE
from tests.helpers.postgres import PostgresServer, run_server

CONVERSATIONS = 400
WINDOW = 64
"""Conversations in flight, of all processes together."""
LATENCY = 0.05
WORKERS = (1, 2, 4)
SQLITE, POSTGRES = "SQLite", "PostgreSQL"


class Taken(NamedTuple):
    """What a process took, or all of a run together."""

    calls: int
    cpu: float
    """Seconds of CPU time."""
    begun: float
    """Seconds on a clock that processes share."""
    ended: float
    server: float = 0.0
    """Seconds of CPU time of the database."""

    @property
    def cpu_ms_per_call(self) -> float:
        return 1000 * self.cpu / self.calls

    @property
    def calls_per_second(self) -> float:
        return self.calls / (self.ended - self.begun)


def generate(recipe: str, run: str, port: int, window: int, shard: str | None) -> Taken:
    """Take part in a run in this process, as the command does."""
    from bactrian.api.dataset import build_run_order, run_order
    from bactrian.runs.runner import Runner
    from bactrian.runs.wiring import tune_gc

    async def watch(work: Runner) -> None:
        """Watch nothing."""

    order = build_run_order(
        recipe,
        run,
        f"vllm:bench@http://127.0.0.1:{port}/v1",
        None,
        limit=None,
        budget=None,
        options={"concurrency": window, "shard": shard},
    )
    tune_gc()
    print("ready", flush=True)
    sys.stdin.readline()
    cpu, begun = time.process_time(), time.monotonic()
    progress = asyncio.run(run_order(order, lambda _: None, watch))
    return Taken(progress.meter.calls, time.process_time() - cpu, begun, time.monotonic())


def measure(workers: int, folder: Path, port: int, address: str | None) -> Taken:
    """Make a whole run by so many processes, in shards or at the address of a database."""
    recipe = folder / "bench.toml"
    ideas = ", ".join(f'"Build tool {number}"' for number in range(CONVERSATIONS))
    recipe.write_text(RECIPE.format(count=CONVERSATIONS, ideas=ideas, calls=CALLS))
    processes: list[subprocess.Popen[str]] = []
    for number in range(1, workers + 1):
        run = address or str(folder / f"part-{number}.db")
        shard = "" if address else f"{number}/{workers}"
        command = [sys.executable, "-m", "benchmarks.shared", str(recipe), run, str(port)]
        command += [str(WINDOW // workers), shard]
        processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    taken = [Taken(*json.loads(process.communicate()[0])) for process in processes]
    whole = Taken(
        sum(each.calls for each in taken),
        sum(each.cpu for each in taken),
        min(each.begun for each in taken),
        max(each.ended for each in taken),
    )
    assert whole.calls == CONVERSATIONS * CALLS, f"{whole.calls} calls instead of {CONVERSATIONS * CALLS}"
    return whole


def read_server_seconds(postgres: PostgresServer) -> float:
    """Return the CPU time of the server's processes, those of connections that were closed too."""
    parent = (postgres.folder / "data" / "postmaster.pid").read_text().split()[0]
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # It has ended meanwhile.
            continue
        if fields[1] == parent:
            ticks += sum(map(int, fields[11:13]))
        elif path.parent.name == parent:
            ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def measure_all(runs: int, postgres: PostgresServer) -> dict[tuple[str, int], list[Taken]]:
    """Measure each kind of run with each number of processes, in turn."""
    taken: dict[tuple[str, int], list[Taken]] = {}
    for number in range(runs):
        for workers in WORKERS:
            for kind in (SQLITE, POSTGRES):
                address = postgres.address(run=f"b{number}_{workers}") if kind == POSTGRES else None
                before = read_server_seconds(postgres)
                with server(LATENCY) as port, tempfile.TemporaryDirectory() as folder:
                    whole = measure(workers, Path(folder), port, address)
                if address:
                    whole = whole._replace(server=read_server_seconds(postgres) - before)
                taken.setdefault((kind, workers), []).append(whole)
                print(f"{kind}, {workers}: {whole.cpu_ms_per_call:.3f} ms", file=sys.stderr, flush=True)
    return taken


def main(runs: int) -> None:
    """Measure and print the table."""
    with run_server() as postgres:
        taken = measure_all(runs, postgres)
    table = Table(
        *("run in", "processes", "CPU, ms a call", "ratio", "database, ms a call", "calls/s"),
        title=f"{CONVERSATIONS} x {CALLS} calls, {WINDOW} at once, {LATENCY * 1000:.0f} ms: medians of {runs} runs",
    )
    for (kind, workers), wholes in sorted(taken.items(), key=lambda item: (item[0][0] != SQLITE, item[0][1])):
        ratios = [
            whole.cpu_ms_per_call / one.cpu_ms_per_call
            for whole, one in zip(wholes, taken[SQLITE, 1], strict=True)
        ]
        table.add_row(
            kind,
            str(workers),
            f"{median(each.cpu_ms_per_call for each in wholes):.3f}",
            f"{median(ratios):.2f}",
            f"{median(1000 * each.server / each.calls for each in wholes):.3f}" if kind == POSTGRES else "",
            f"{median(each.calls_per_second for each in wholes):,.0f}",
        )
    Console().print(table)


if __name__ == "__main__":
    if len(sys.argv) > 2:
        recipe, run, port, window, shard = sys.argv[1:]
        print(json.dumps(generate(recipe, run, int(port), int(window), shard or None)))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
