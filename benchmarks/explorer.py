"""``python -m benchmarks.explorer [SESSIONS] [RUN]``: how fast the explorer is, beside its goals, in one table.

50,000 sessions have 1,358,872 messages. The run is written through the store unless ``RUN`` exists. Page times are
those of one client on a loopback connection after the index is complete. With ``--no-behaviours`` as the last word,
that search is not waited for. The frames of the map need Playwright and Chromium.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from pydantic_core import from_json
from rich.console import Console
from rich.table import Table

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
RICH = r"""# Part NUMBER

It costs $5 and $10, and $a_{NUMBER}^2 + b^2 = c^2$ is **not** `known(NUMBER)` yet ([source](https://example.org/NUMBER)).

| part | amount |
|---|--:|
| flour NUMBER | 200 g |
| sugar | 100 g |

1. Do this first.
2. Then do that:
   - one thing
   - another thing

```python
class Part:
    '''Adds NUMBER.'''

    def add(self, numbers: list[int]) -> int:
        total = NUMBER
        for number in numbers:
            total += number * 2  # twice
        if total > 100:
            raise ValueError(f"too large: {total}")
        return total
```

\[
\frac{-b \pm \sqrt{b^2 - 4ac}}{2a} = \sum_{i=0}^{NUMBER} x_i
\]

The quick brown fox jumps over the lazy dog NUMBER times, while the other one watches and says "fine".
"""
"""A message with everything that is laid out."""


class Client:
    """One connection to the explorer."""

    def __init__(self, login: Mapping[str, str]) -> None:
        self._login = login
        self._connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)

    def get(self, path: str) -> tuple[float, bytes]:
        """Return the milliseconds until the last byte of a page, and its compressed bytes."""
        begun = time.perf_counter()
        self._connection.request("GET", path, headers={"Accept-Encoding": "gzip", **self._login})
        answer = self._connection.getresponse()
        body = answer.read()
        taken = (time.perf_counter() - begun) * 1000
        assert answer.status == 200, (path, body[:300])
        return taken, body

    def post(self, path: str, form: str) -> None:
        """Send a form of the explorer's pages."""
        headers = {
            **self._login,
            "Content-Type": "application/x-www-form-urlencoded",
            "Origin": f"http://127.0.0.1:{PORT}",
        }
        self._connection.request("POST", path, form, headers)
        answer = self._connection.getresponse()
        assert answer.status == 303, (path, answer.read()[:300])
        answer.read()

    def measure(self, paths: Sequence[str]) -> tuple[float, float]:
        """Return median and 95th percentile of the milliseconds of ``paths``, each requested several times."""
        taken = sorted(self.get(path)[0] for _ in range(REPEATS) for path in paths)
        return taken[len(taken) // 2], taken[len(taken) * 95 // 100]


def read_login(server: subprocess.Popen[str]) -> dict[str, str]:
    """Return the header that lets in whoever sends it, when the explorer has printed its address."""
    assert server.stdout is not None
    return {"Authorization": f"Bearer {server.stdout.readline().strip().rpartition('token=')[2]}"}


def wait_for_page(server: subprocess.Popen[str]) -> tuple[float, dict[str, str]]:
    """Return the time at which the first page was complete, and :func:`read_login`."""
    login = read_login(server)
    Client(login).get("/conversations")
    return time.perf_counter(), login


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


def read_children(process: int) -> float:
    """Return the CPU seconds of the processes that ``process`` started and that have ended."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure and print the table."""
    given = [word for word in sys.argv[1:] if not word.startswith("--")]
    count = int(given[0]) if given else 50_000
    with tempfile.TemporaryDirectory() as folder:
        run = Path(given[1]) if len(given) > 1 else Path(folder) / "run.db"
        if not run.exists():
            asyncio.run(write(run, count))
        table = Table("figure", "goal", "measured", title=f"bactrian explore, {count:,} conversations")
        for figure in measure_explorer(run):
            Console(stderr=True).print(" | ".join(figure), highlight=False)  # What is known so far.
            table.add_row(*figure)
        Console(width=160).print(table, highlight=False)


def measure_explorer(run: Path) -> Iterator[tuple[str, str, str]]:
    """Yield name, goal and value of the figures."""
    yield (
        "fourteen messages with tables, code and formulas, CPU: fastest, median",
        "20 ms",
        measure_messages(),
    )
    for file in run.parent.glob(f"{run.name}.explore*"):
        file.unlink()
    begun = time.perf_counter()
    command = [sys.executable, "-m", "bactrian", "explore", str(run), "--port", str(PORT)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            done, login = wait_for_page(server)
            clock = done - begun
            yield (
                "first page from the command, cold index",
                "0.6 s",
                f"{clock:.2f} s, {read_cpu(server.pid):.2f} s CPU",
            )
            yield from _measure_building(server.pid, login)
            yield from _measure_pages(server.pid, login)
            yield from _measure_map(server.pid, login, run)
            yield "memory of the server, peak, at the end", "120 MB", f"{read_megabytes(server.pid):.0f} MB"
        finally:
            server.terminate()
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield (
                "first page from the command, warm index",
                "0.6 s",
                f"{wait_for_page(server)[0] - begun:.2f} s",
            )
        finally:
            server.terminate()


def measure_messages() -> str:
    """Lay out fourteen new messages again and again, and return the CPU time that it took."""
    from bactrian.explore.message_html import render_markdown

    times: list[float] = []
    for number in range(REPEATS):
        texts = [RICH.replace("NUMBER", f"{number * 14 + part}") for part in range(14)]
        begun = time.process_time()
        for text in texts:
            render_markdown(text)
        times.append((time.process_time() - begun) * 1000)
    times.sort()
    return f"{times[0]:.1f}, {times[REPEATS // 2]:.1f} ms"


def _measure_building(server: int, login: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    client = Client(login)
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

    goal, begun = 0, time.perf_counter()
    goal = wait("texts")["sessions"]
    state, clock = wait("texts"), time.perf_counter() - begun
    cpu = read_cpu(worker)
    share = cpu * 1e6 / state["turns"]
    yield (
        "index of all texts",
        "60 s CPU a million",
        f"{cpu:.1f} s CPU, {clock:.0f} s ({state['turns']:,} messages; {share:.1f} s CPU a million)",
    )
    yield "memory of the server while indexing, peak", "200 MB", f"{read_megabytes(server):.0f} MB"
    yield (
        "memory of the index process: peak, and now",
        "",
        f"{read_megabytes(worker):.0f} MB, {read_megabytes(worker, 'VmRSS'):.0f} MB",
    )
    yield "list page while indexing, worst", "", f"{max(listed):.0f} ms"
    if sys.argv[-1] == "--no-behaviours":
        return
    before, begun = read_cpu(worker) + read_children(worker), time.perf_counter()
    wait("seen")
    processes = sum(map(read_cpu, list_children(worker)))
    cpu = read_cpu(worker) + read_children(worker) + processes - before
    yield (
        "behaviours of all conversations",
        "",
        f"{cpu:.0f} s CPU, {time.perf_counter() - begun:.0f} s",
    )


def _measure_pages(server: int, login: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    client = Client(login)
    draw = Random(1)
    rows = from_json(unpack(client.get("/conversations.json")[1]))["sessions"]
    talks = [f"/c/{row['data']}/{row['id']}" for row in draw.sample(rows, 40)]
    client.measure((*LISTS[:1], *SEARCHES[:1], *talks[:1]))
    groups = (("list page", "25 ms", LISTS), ("search", "150 ms", SEARCHES), ("conversation", "10 ms", talks))
    for name, goal, paths in groups:
        before = read_cpu(server)
        middle, slow = client.measure(paths)
        cpu = 1000 * (read_cpu(server) - before) / (REPEATS * len(paths))
        yield (
            f"{name}, median and 95th percentile",
            goal,
            f"{middle:.1f} and {slow:.1f} ms; {cpu:.1f} ms CPU",
        )
        if paths is not talks:
            worst = max((client.measure([path])[1], path) for path in paths)
            yield f"{name}, slowest address at the 95th percentile", goal, f"{worst[0]:.1f} ms ({worst[1]})"
    page = client.get("/conversations")[1]
    assets = re.findall(r'(?:href|src)="(/static/[^"]+)"', unpack(page).decode())
    sizes = [len(client.get(asset)[1]) for asset in assets]
    yield "first visit, compressed", "40 KB", f"{(len(page) + sum(sizes)) / 1000:.1f} KB"
    later = [len(page), len(client.get(talks[0])[1]), len(client.get("/statistics")[1])]
    yield (
        "list, conversation, statistics, compressed",
        "8 KB",
        ", ".join(f"{size / 1000:.1f}" for size in later) + " KB",
    )
    yield "memory of the server after these pages, peak", "120 MB", f"{read_megabytes(server):.0f} MB"


def _measure_map(server: int, login: Mapping[str, str], run: Path) -> Iterator[tuple[str, str, str]]:
    """Draw the map of the tasks, and move it in a browser."""
    client, name = Client(login), run.name.removesuffix(".db")
    form = re.search(r'name="csrf" value="([^"]+)"', unpack(client.get("/map")[1]).decode())
    assert form is not None
    begun, cpu, memory = time.perf_counter(), 0.0, 0.0
    client.post("/map", f"csrf={form[1]}&data={name}&what=task")
    while b"<canvas" not in unpack(client.get(f"/map?data={name}&what=task")[1]):
        for child in list_children(server):
            with suppress(OSError):  # It has ended.
                if b"map_drawing" in Path(f"/proc/{child}/cmdline").read_bytes():
                    cpu, memory = read_cpu(child), max(memory, read_megabytes(child))
        time.sleep(0.25)
    clock = time.perf_counter() - begun
    yield (
        "map of all tasks",
        "120 s",
        f"{clock:.0f} s, {cpu:.0f} s CPU, {memory:.0f} MB",
    )
    page, points = (
        client.get(f"{path}?data={name}&what=task&by=topic")[1] for path in ("/map", "/map/points")
    )
    yield "map: page and points, compressed", "300 KB", f"{(len(page) + len(points)) / 1000:.0f} KB"
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if find_spec("playwright") is None or chromium is None:
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        shown = browser.new_page(viewport={"width": 1280, "height": 900}, extra_http_headers=dict(login))
        shown.goto(f"http://127.0.0.1:{PORT}/map?data={name}&what=task&by=topic")
        shown.wait_for_timeout(1000)
        times: list[float] = sorted(shown.evaluate(_FRAMES))
        browser.close()
    middle, slow = times[len(times) // 2], times[len(times) * 95 // 100]
    yield (
        "map: drawing a frame, median and 95th percentile",
        "16 ms",
        f"{middle:.1f} and {slow:.1f} ms",
    )


_FRAMES = """async () => {
  const canvas = document.querySelector("canvas"), times = [], ask = window.requestAnimationFrame.bind(window);
  window.requestAnimationFrame = (draw) => ask((now) => {
    const begun = performance.now(); draw(now); times.push(performance.now() - begun);
  });
  const box = canvas.getBoundingClientRect(), clientX = box.left + box.width / 2, clientY = box.top + box.height / 2;
  for (let frame = 0; frame < 120; frame += 1) {
    const deltaY = frame % 40 < 20 ? -40 : 40;
    canvas.dispatchEvent(new WheelEvent("wheel", { deltaY, clientX, clientY, ctrlKey: true, cancelable: true }));
    await new Promise((done) => ask(() => ask(done)));
  }
  return times;
}"""
"""Zooms in and out a hundred and twenty times, and returns the milliseconds that the page's own drawing took."""


def unpack(body: bytes) -> bytes:
    """Return a body as it was before it was compressed."""
    return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body


if __name__ == "__main__":
    main()
