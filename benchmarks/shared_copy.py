"""``python -m benchmarks.shared_copy [TURNS] [RUNS]``: what `pull` takes, and how soon a killed worker is replaced.

PostgreSQL must be installed. A run of a few conversations is multiplied in the database, with turns of 600 letters.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bactrian.shared.reading import pull_run
from bactrian.store.locations import read_address
from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import RECIPE, generate, start
from tests.helpers.postgres import PostgresServer, run_server
from tests.helpers.shared_runs import SESSIONS, TURNS, NumberedReplies, ask, finish, wait_for, wait_for_calls

LEASE = 10
_COLUMNS = """
SELECT string_agg('"' || column_name || '"', ', ' ORDER BY ordinal_position) FROM information_schema.columns
WHERE table_schema = current_schema AND table_name = '{}' AND column_name NOT IN ('row', '{}')
"""


def measure_cpu() -> float:
    """Return the seconds of CPU time that this process has taken."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


async def measure_pull(server: PostgresServer, folder: Path, turns: int) -> None:
    """Print what a pull takes, and one that brings a file up to date."""
    server.create_database("pulled")
    address = server.address("pulled")
    async with Endpoint([NumberedReplies(0, length=580)]) as endpoint:
        assert (await generate(folder, endpoint, "--run", address))[0] == 0
    times = turns // (SESSIONS * TURNS)
    for table, key in (("sessions", "id"), ("turns", "session")):
        ((columns,),) = ask(address, _COLUMNS.format(table, key))
        ask(
            address,
            f"INSERT INTO {table} ({key}, {columns}) SELECT {key} || '-' || copy, {columns}"
            f" FROM {table}, generate_series(2, {times}) AS copy RETURNING 1",
        )
    for what in ("new", "up to date"):
        cpu, began = measure_cpu(), time.monotonic()
        sessions = pull_run(read_address(address), folder / "pulled.db")
        took = measure_cpu() - cpu
        print(
            f"{what}: {sessions:,} sessions read, {times * SESSIONS * TURNS:,} turns there; CPU {took:.1f} s,"
            f" {took / times / SESSIONS / TURNS * 1e6:.1f} s a million turns; {time.monotonic() - began:.1f} s,"
            f" {(folder / 'pulled.db').stat().st_size / 1e6:.0f} MB",
            flush=True,
        )


async def measure_takeover(server: PostgresServer, folder: Path, number: int) -> float:
    """Return the seconds from the death of a worker until the other one has claimed all its jobs."""
    server.create_database(f"lost{number}")
    address, replies = server.address(f"lost{number}", lease=LEASE), NumberedReplies(0.2)
    async with Endpoint([replies]) as endpoint:
        first = start(folder, endpoint, "--run", address, "--concurrency", "3")
        await wait_for_calls(replies, 6)
        second = start(folder, endpoint, "--run", address, "--concurrency", "12")
        await wait_for(address, "SELECT FROM workers WHERE id = 2")
        await asyncio.sleep(1)
        first.kill()
        began = time.monotonic()
        left = "SELECT FROM claims WHERE worker = 1 AND state = 'playing'"
        await wait_for(address, f"SELECT WHERE NOT EXISTS ({left})")
        took = time.monotonic() - began
        await finish(first, second)
    return took


async def main(turns: int, runs: int) -> None:
    """Measure and print."""
    with run_server() as server, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "small.toml").write_text(RECIPE)
        await measure_pull(server, folder, turns)
        (folder / "run.db").unlink(missing_ok=True)
        taken = [await measure_takeover(server, folder, number) for number in range(runs)]
        print(
            f"takeover with a lease of {LEASE} s: median {median(taken):.1f} s, {min(taken):.1f} to {max(taken):.1f} s"
            f" after the death, of {runs}"
        )


if __name__ == "__main__":
    asyncio.run(main(*(int(value) for value in [*sys.argv[1:3], *("100000", "5")[len(sys.argv) - 1 :]])))
