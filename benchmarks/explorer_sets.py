"""``python -m benchmarks.explorer_sets RUN…``: an explorer of several runs, once its index is complete, in one table.

Bounds: statistics 50 ms, server 130 MB with five runs of 4,000 conversations, no process left when nothing is to be
done, first page 15 KB in 4 requests. Write the runs with ``benchmarks.analysis.write``, or name your own.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping

from pydantic_core import from_json
from rich.console import Console
from rich.table import Table

from benchmarks.explorer import PORT, Client, list_children, read_cpu, read_login, read_megabytes, unpack

PAGES = {
    "list, with the counts of its facets": "/conversations",
    "list of an ending": "/conversations?ending=task_done",
    "list of a search that nearly all fit": "/conversations?q=volatility",
    "list by rank": "/conversations?q=volatility&sort=best",
    "table by a column": "/conversations?view=table&sort=assistant",
    "statistics": "/statistics",
    "statistics of an ending": "/statistics?ending=task_done",
    "statistics of a behaviour": "/statistics?behaviour=role_flip",
}
REPEATS = 10


def main() -> None:
    """Serve the runs, measure, and print the table."""
    table = Table("figure", "measured")
    command = [sys.executable, "-m", "bactrian", "explore", *sys.argv[1:], "--port", str(PORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            for row in measure(server.pid, read_login(server)):
                table.add_row(*row)
        finally:
            server.terminate()
    Console(width=140).print(table, highlight=False)


def measure(server: int, login: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield names and figures."""
    client = Client(login)
    while True:
        states = from_json(unpack(client.get("/status")[1]))
        if all(state["sessions"] and state["seen"] == state["sessions"] == state["size"] for state in states):
            break
        time.sleep(1)
    begun = time.perf_counter()
    while any(list_children(server)):
        time.sleep(0.2)
    client = Client(login)  # A connection that asks nothing for long is closed.
    yield "seconds until no process of the index is left", f"{time.perf_counter() - begun:.0f}"
    yield "conversations", f"{sum(state['sessions'] for state in states):,}"
    for name, path in PAGES.items():
        client.get(path)
        before = read_cpu(server)
        times = sorted(client.get(path)[0] for _ in range(REPEATS))
        cpu = 1000 * (read_cpu(server) - before) / REPEATS
        yield (
            f"{name}: median, 95th percentile; CPU",
            f"{times[REPEATS // 2]:.0f}, {times[REPEATS * 95 // 100]:.0f} ms; {cpu:.0f} ms",
        )
    for path in ("/", "/conversations"):
        page = client.get(path)[1]
        assets = re.findall(r'(?:href|src)="(/static/[^"]+)"', unpack(page).decode())
        size = len(page) + sum(len(client.get(asset)[1]) for asset in assets)
        yield f"first visit of {path}, compressed", f"{size / 1000:.1f} KB in {1 + len(assets)} requests"
    yield (
        "memory of the server: now, peak",
        ", ".join(f"{read_megabytes(server, figure):.0f} MB" for figure in ("VmRSS", "VmHWM")),
    )


if __name__ == "__main__":
    main()
