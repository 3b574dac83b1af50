"""What a notebook shows while a run is generated."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from bactrian.api.notebook import open_explorer
from bactrian.errors import BactrianError
from tests.helpers.browser import needs_chromium
from tests.helpers.explorer import run_apart
from tests.helpers.runs import make_run, session

CODE = """
import time
import bactrian as bt

def slow(messages):
    time.sleep(0.3)
    return "<CAMEL_TASK_DONE>"

small = bt.recipe("ai-society", assistant_role=["Tea merchant"], user_role=["Guest"], task=["Tea", "Milk", "Ice"])
run = bt.generate(small, run="run.db", model=slow, concurrency=1)
"""


@pytest.mark.slow
def test_a_notebook_shows_the_progress_in_one_place_while_the_cell_runs(tmp_path: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(CODE)])
    updates: list[str] = []

    class Client(nbclient.NotebookClient):
        def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
            if msg["msg_type"] == "update_display_data":
                updates.append(msg["content"]["data"]["text/html"])
            return super().process_message(msg, cell, cell_index)

    Client(notebook, timeout=60, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for output in notebook.cells[0].outputs if output.output_type == "display_data"]
    assert len(shown) == 1
    assert "3 of 3" in shown[0].data["text/html"]
    assert "task_done 3" in shown[0].data["text/html"]
    assert any(f"{done} of 3" in update for update in updates for done in range(3))


@pytest.mark.slow
async def test_an_explorer_in_a_frame_ends_with_its_kernel_however_that_ends(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("first")])
    code = (
        "import bactrian as bt, time\n"
        "explorer = bt.open_run('run.db').explore()\n"
        "print(explorer._repr_html_().partition('src=\"')[2].partition('\"')[0], flush=True)\n"
        "time.sleep(600)"
    )
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True, env=environment
    ) as kernel:
        assert kernel.stdout is not None
        address = kernel.stdout.readline().strip()
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        with opener.open(address, timeout=30) as answer:
            assert "frame-ancestors http://localhost:*" in answer.headers["content-security-policy"]
            assert "run.db" in answer.read().decode()
        kernel.kill()
    for _ in range(300):
        try:
            with urllib.request.urlopen(address, timeout=30):
                await asyncio.sleep(0.1)
        except urllib.error.HTTPError:
            await asyncio.sleep(0.1)
        except OSError:  # Nobody listens any more.
            return
    pytest.fail("The explorer goes on.")


@pytest.mark.system
def test_an_explorer_that_cannot_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "run.db").write_text("no run")
    with pytest.raises(BactrianError, match="did not start.*neither a folder"):
        open_explorer(tmp_path / "run.db", edit=False, height=700)


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_page_of_this_computer_shows_the_explorer_in_its_frame(
    tmp_path: Path, chromium: Browser, host: str
) -> None:
    run_apart(make_run(tmp_path / "run.db", [session("first")]))
    with open_explorer(tmp_path / "run.db", edit=False, height=400) as explorer:
        (tmp_path / "cell.html").write_text(explorer._repr_html_())
        handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
            threading.Thread(target=server.serve_forever).start()
            page = chromium.new_page()
            page.goto(f"http://{host}:{server.server_port}/cell.html")
            frame = page.frame_locator("iframe")
            frame.get_by_role("link", name="Conversations").click()
            expect(frame.get_by_role("heading", level=1)).to_have_text("1 conversation")
            page.close()
            server.shutdown()
