"""``python -m benchmarks.explorer [SESSIONS] [RUN]``: how fast the explorer is. 50,000 sessions: a million messages.

The run is written through the store unless ``RUN`` exists. Page times are those of one client on a loopback connection,
after the index is complete; CPU time is the index process's own.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from pydantic_core import from_json
from rich.console import Console

from benchmarks.analysis import write

PORT = 8699
LISTS = (
    "/conversations",
    "/conversations?ending=task_done",
    "/conversations?assistant=Chef&user=Poet",
    "/conversations?behaviour=role_flip&least=10",
    "/conversations?sort=longest",
    "/conversations?sort=findings",
)
SEARCHES = (
    "/conversations?q=volatility",
    "/conversations?q=volatility&sort=best",
    "/conversations?q=market+data+risk&sort=best",
    "/conversations?q=%22market+data%22",
    "/conversations?q=port*+-chart",
    "/conversations?q=market&ending=task_done&sort=longest",
)
REPEATS = 40


class Client:
    """One connection to the explorer."""

    def __init__(self) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)

    def get(self, path: str) -> tuple[float, bytes]:
        """Return the milliseconds until the last byte of a page, and its compressed bytes."""
        begun = time.perf_counter()
        self._connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
        answer = self._connection.getresponse()
        body = answer.read()
        taken = (time.perf_counter() - begun) * 1000
        assert answer.status == 200, (path, body[:300])
        return taken, body

    def measure(self, paths: Sequence[str]) -> tuple[float, float]:
        """Return median and 95th percentile of the milliseconds of ``paths``, each requested several times."""
        taken = sorted(self.get(path)[0] for _ in range(REPEATS) for path in paths)
        return taken[len(taken) // 2], taken[len(taken) * 95 // 100]


def wait_for_page() -> float:
    """Return the time at which the first page was complete."""
    while True:
        try:
            Client().get("/conversations")
        except OSError:
            time.sleep(0.005)
        else:
            return time.perf_counter()


def list_children(process: int) -> Iterator[int]:
    """Yield the processes that ``process`` started."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            status = (folder / "status").read_text()
        except OSError:
            continue
        if f"\nPPid:\t{process}\n" in status:
            yield int(folder.name)


def read_megabytes(process: int, figure: str = "VmHWM") -> float:
    """Return the memory of a process, its peak by default, in MB."""
    found = re.search(rf"{figure}:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(found[1]) / 1000 if found else 0.0


def read_cpu(process: int) -> float:
    """Return the CPU seconds of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print the table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    with tempfile.TemporaryDirectory() as folder:
        run = Path(sys.argv[2]) if len(sys.argv) > 2 else Path(folder) / "run.db"
        if not run.exists():
            asyncio.run(write(run, count))
        for name, value in measure_explorer(run):
            Console().print(f"{name}: {value}", highlight=False)


def measure_explorer(run: Path) -> Iterator[tuple[str, str]]:
    """Yield names and values of the figures."""
    for file in run.parent.glob(f"{run.name}.explore*"):
        file.unlink()
    begun = time.perf_counter()
    command = [sys.executable, "-m", "bactrian", "explore", str(run), "--port", str(PORT)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            yield "first page from the command, cold index", f"{wait_for_page() - begun:.2f} s"
            yield from _measure_building(server.pid)
            yield from _measure_pages(server.pid)
        finally:
            server.terminate()
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            yield "first page from the command, warm index", f"{wait_for_page() - begun:.2f} s"
        finally:
            server.terminate()


def _measure_building(server: int) -> Iterator[tuple[str, str]]:
    client = Client()
    (worker,) = list_children(server)
    listed: list[float] = []

    def wait(stage: str) -> dict[str, Any]:
        while True:
            (state,) = from_json(
                gzip.decompress(body) if (body := client.get("/status")[1])[:1] == b"\x1f" else body
            )
            if state["sessions"] and state[stage] == state["sessions"] and state["sessions"] >= goal:
                return state
            listed.append(client.get("/conversations?sort=longest")[0])
            time.sleep(0.25)

    goal = 0
    goal = wait("texts")["sessions"]
    state = wait("texts")
    yield "index of all texts, CPU", f"{read_cpu(worker):.1f} s ({state['turns']:,} messages)"
    yield (
        "memory of the server while indexing",
        f"{read_megabytes(server):.0f} MB + {read_megabytes(worker):.0f} MB",
    )
    yield "list page while indexing, worst", f"{max(listed):.0f} ms"
    before = read_cpu(worker)
    wait("seen")
    yield "behaviours of all conversations, CPU", f"{read_cpu(worker) - before:.1f} s"


def _measure_pages(server: int) -> Iterator[tuple[str, str]]:
    client = Client()
    draw = Random(1)
    rows = from_json(_unpack(client.get("/conversations.json")[1]))["sessions"]
    talks = [f"/c/{one['data']}/{one['id']}" for one in draw.sample(rows, 40)]
    client.measure((*LISTS[:1], *SEARCHES[:1], *talks[:1]))
    for name, paths in (("list page", LISTS), ("search", SEARCHES), ("conversation", talks)):
        before = read_cpu(server)
        middle, slow = client.measure(paths)
        cpu = 1000 * (read_cpu(server) - before) / (REPEATS * len(paths))
        yield f"{name}, median and 95th percentile", f"{middle:.1f} and {slow:.1f} ms; {cpu:.1f} ms CPU"
        if paths is not talks:
            worst = max((client.measure([path])[1], path) for path in paths)
            yield f"{name}, the slowest address at the 95th percentile", f"{worst[0]:.1f} ms ({worst[1]})"
    page = client.get("/conversations")[1]
    assets = re.findall(r'(?:href|src)="(/static/[^"]+)"', _unpack(page).decode())
    sizes = [len(client.get(asset)[1]) for asset in assets]
    yield "first visit, compressed", f"{(len(page) + sum(sizes)) / 1000:.1f} KB"
    yield (
        "list page, conversation, compressed",
        f"{len(page) / 1000:.1f}, {len(client.get(talks[0])[1]) / 1000:.1f} KB",
    )
    yield "memory of the server, peak", f"{read_megabytes(server):.0f} MB"


def _unpack(body: bytes) -> bytes:
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


if __name__ == "__main__":
    main()
