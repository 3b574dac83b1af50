"""``python -m benchmarks.viewers INSPECT [SESSIONS]``: the explorer beside inspect's viewer, in Chromium.

INSPECT is the ``bin`` folder of an environment with ``inspect-ai``. Both show the same conversations, 2,000 by default,
and do the same: open, list the conversations, open one. Measured are the bytes that the browser received, and the CPU
time of the server and of the browser, which mean the same on a busy machine. The explorer's index is complete before.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright
from rich.console import Console

from bactrian.store import open_store
from benchmarks.analysis import write
from benchmarks.explorer import list_children, read_cpu, read_login, read_megabytes

PORT = 8697
ADDRESS = f"http://127.0.0.1:{PORT}"
_SETTLED = 3.0
"""Seconds after a page has come, in which it may go on computing."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """A viewer, and what is done in it."""

    name: str
    command: Sequence[str]
    steps: Sequence[tuple[str, Callable[[Page], object]]]


def main() -> None:
    """Measure and print."""
    inspect, count = Path(sys.argv[1]).absolute(), int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    with tempfile.TemporaryDirectory() as folder:
        run, logs = Path(folder) / "run.db", Path(folder) / "logs"
        logs.mkdir()
        asyncio.run(write(run, count))
        asyncio.run(write_lines(run, Path(folder) / "said.jsonl"))
        script = Path(__file__).with_name("inspect_log.py")
        subprocess.run([inspect / "python", script, Path(folder) / "said.jsonl", logs], check=True)
        for viewer in (explorer(run), inspect_viewer(inspect, logs)):
            for line in measure(viewer):
                Console().print(f"{viewer.name} | {line}", highlight=False)


async def write_lines(run: Path, target: Path) -> None:
    """Write the conversations of ``run`` as JSON lines."""
    with target.open("w", encoding="utf-8") as file:
        async with open_store(run, read_only=True) as store:
            async for session in store.sessions():
                said = [(turn.speaker, turn.text) for turn in session.turns]
                file.write(json.dumps({"id": session.id, "task": session.task.text, "messages": said}) + "\n")


def explorer(run: Path) -> Viewer:
    """Return bactrian's explorer on ``run``."""

    def begin(page: Page) -> None:
        page.goto(ADDRESS)
        while page.locator("progress").count() or page.locator('data[value="0"]').count():
            page.wait_for_timeout(1000)
            page.reload()

    def open_library(page: Page) -> None:
        page.goto(ADDRESS)

    def list_conversations(page: Page) -> None:
        page.get_by_role("link", name="Conversations").first.click()
        page.locator("#list h2 a").first.wait_for()

    def open_one(page: Page) -> None:
        page.locator("#list h2 a").nth(3).click()
        page.locator("article.turn").first.wait_for()

    command = [sys.executable, "-m", "bactrian", "explore", str(run), "--port", str(PORT)]
    steps = [
        ("", begin),
        ("open", open_library),
        ("list of conversations", list_conversations),
        ("a conversation", open_one),
    ]
    return Viewer("explore", command, steps)


def inspect_viewer(inspect: Path, logs: Path) -> Viewer:
    """Return inspect's viewer on the folder ``logs``."""

    def open_logs(page: Page) -> None:
        page.goto(ADDRESS)
        page.get_by_text("society").first.wait_for()

    def list_conversations(page: Page) -> None:
        page.get_by_text("society").first.click()
        page.get_by_text("000003").first.wait_for()

    def open_one(page: Page) -> None:
        page.get_by_text("000003").first.click()
        page.get_by_text("Instruction:").first.wait_for()

    command = [str(inspect / "inspect"), "view", "start", "--log-dir", str(logs), "--port", str(PORT)]
    return Viewer(
        "inspect view",
        command,
        [("open", open_logs), ("list of conversations", list_conversations), ("a conversation", open_one)],
    )


def measure(viewer: Viewer) -> Iterator[str]:
    """Yield what each step cost."""
    with serve(viewer.command) as (server, login), sync_playwright() as tool:
        browser = tool.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        context = browser.new_context(viewport={"width": 1280, "height": 900}, extra_http_headers=login)
        page = context.new_page()
        page.set_default_timeout(120_000)
        network: Any = context.new_cdp_session(page)
        network.send("Network.enable")
        received: list[float] = []

        def count(event: dict[str, Any]) -> None:
            received.append(event["encodedDataLength"])

        network.on("Network.loadingFinished", count)
        # The browser is a process of Playwright's driver.
        (driver,) = [process for process in list_children(_own_process()) if process != server]
        for name, act in viewer.steps:
            page.wait_for_timeout(1000 * _SETTLED)
            received.clear()
            before = read_cpu(server), _read_tree(driver)
            act(page)
            page.wait_for_timeout(1000 * _SETTLED)
            spent = [
                1000 * (now - then)
                for now, then in zip((read_cpu(server), _read_tree(driver)), before, strict=True)
            ]
            if name:
                yield f"{name} | {spent[0]:.0f} ms | {spent[1]:.0f} ms | {sum(received) / 1000:,.1f} KB"
        yield f"memory of the server, peak | {read_megabytes(server):.0f} MB"
        browser.close()


def _own_process() -> int:
    return int(Path("/proc/self").readlink().name)


def _read_tree(process: int) -> float:
    """Return the CPU seconds of a process and of those below it."""
    try:
        return read_cpu(process) + sum(map(_read_tree, list_children(process)))
    except OSError:  # It has ended.
        return 0.0


@contextmanager
def serve(command: Sequence[str]) -> Generator[tuple[int, dict[str, str]]]:
    """Run a server, and provide its process when it answers, and the header that lets in whoever sends it."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            login = read_login(server)
            while True:
                try:
                    urllib.request.urlopen(urllib.request.Request(ADDRESS, headers=login)).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield server.pid, login
        finally:
            server.terminate()


if __name__ == "__main__":
    main()
