"""Pages that show runs which are being made tell what ``bactrian status`` tells, and follow them."""

from __future__ import annotations

import asyncio
import re
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from html import unescape
from pathlib import Path

import pytest

from bactrian.store import open_store
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Received
from tests.helpers.explorer import RunningExplorer, explore
from tests.helpers.generation import RECIPE, said, start
from tests.helpers.runs import make_run, session

pytestmark = pytest.mark.system
RUNS = ("one", "two")
# Replies after which the models fall silent: some conversations have ended, one has begun.
ANSWERED = 24


def list_strips(explorer: RunningExplorer, path: str) -> dict[str, dict[str, str]]:
    """What a page says of the runs that are being made, by name and label."""
    page = explorer.get(path).text
    strips: dict[str, dict[str, str]] = {}
    for name, text in re.findall(
        r'<section [^>]*aria-label="(\w+) is being written">(.*?)</section>', page, re.S
    ):
        assert "data-reading" in page
        strips[name] = {
            label: unescape(told).strip()
            for label, told in re.findall(r"<dt>(\w+)</dt><dd>([^<]*)<(?:/dd|progress|meter)", text)
        }
    return strips


def list_told(folder: Path, name: str) -> dict[str, str]:
    """What ``bactrian status`` says of a run, by label."""
    lines = bactrian("status", f"{name}.db", cwd=folder).stdout.splitlines()
    told = {line[:10].strip().capitalize(): line[10:] for line in lines}
    # Pages call them conversations everywhere.
    names = {"Sessions": "Conversations", "Cost": "Cost", "Time": "Time"}
    return {name: told[label] for label, name in names.items() if label in told}


def watch(folder: Path) -> None:
    with explore(folder, *(f"{name}.db" for name in RUNS)) as explorer:
        strips: dict[str, dict[str, str]] = {}
        told = {name: {"": ""} for name in RUNS}
        for _ in range(300):
            if strips == told and all("Time" in of for of in told.values()):
                break
            time.sleep(0.2)
            told = {name: list_told(folder, name) for name in RUNS}
            strips = list_strips(explorer, "/conversations")
        assert strips == told
        assert all(re.search(r"left, about [\d,]+ conversations? a ", of["Time"]) for of in told.values())
        assert list_strips(explorer, "/statistics?data=two") == {"two": told["two"]}
        newest = explorer.get("/newest?data=two")
        assert newest.status == 303
        assert newest.headers["location"].endswith("?data=two&sort=newest&follow=1")
        live = explorer.get(newest.headers["location"]).text
        assert "live.js" in live
        assert ">playing</a>" in live


@pytest.mark.slow
async def test_a_conversation_that_another_process_leaves_no_longer_plays(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [replace(session("left"), ending=None)])

    def watch_it(left: threading.Event) -> None:
        with explore(tmp_path, "run.db", sessions=1) as explorer:
            assert ">playing</a>" in explorer.get("/c/run/left").text
            threading.Timer(0.3, left.set).start()
            assert "event: ended" in explorer.get("/c/run/left/events").text
            assert ">unfinished</a>" in explorer.get("/c/run/left").text

    left = threading.Event()
    async with open_store(tmp_path / "run.db"):
        watching = asyncio.create_task(asyncio.to_thread(watch_it, left))
        await asyncio.to_thread(left.wait)
    await watching


@pytest.mark.slow
def test_ctrl_c_ends_what_a_page_follows_without_a_traceback(tmp_path: Path) -> None:
    asyncio.run(make_run(tmp_path / "run.db", [replace(session("open"), ending=None)]))
    with explore(tmp_path, "run.db", sessions=1) as explorer, ThreadPoolExecutor(1) as thread:
        page = thread.submit(explorer.get, "/c/run/open/events?after=0")
        time.sleep(0.5)
        explorer.command.send_signal(signal.SIGINT)
        assert explorer.command.wait() == 130
        assert page.result().status == 200
        assert explorer.command.peek().endswith(
            "Press Ctrl-C to stop.\n\nInterrupted. The runs are as they were.\n"
        )


@pytest.mark.slow
async def test_pages_tell_of_several_runs_what_status_tells(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    goes_on = asyncio.Event()

    def make_endpoint() -> Endpoint:
        async def reply(request: Received) -> str:
            if len(endpoint.requests) > ANSWERED:
                await goes_on.wait()
            return said(request)

        endpoint = Endpoint([reply])
        return endpoint

    async with make_endpoint() as first, make_endpoint() as second:
        options = ("--concurrency", "1", "--budget", "5", "--price", "100/100")
        made = [
            start(tmp_path, endpoint, "--run", f"{name}.db", *options)
            for name, endpoint in zip(RUNS, (first, second), strict=True)
        ]
        while min(len(first.requests), len(second.requests)) <= ANSWERED:
            await asyncio.sleep(0.05)
        await asyncio.to_thread(watch, tmp_path)
        goes_on.set()
        for process in made:
            await process.communicate()
            assert process.wait() == 0
