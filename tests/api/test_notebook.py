"""What a notebook shows while a run is generated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

CODE = """
import time
import bactrian as bt

def slow(messages):
    time.sleep(0.3)
    return "<CAMEL_TASK_DONE>"

small = bt.recipe("ai-society", assistant_role=["Tea merchant"], user_role=["Guest"], task=["Tea", "Milk", "Ice"])
run = bt.generate(small, run="run.db", model=slow, concurrency=1)
"""


@pytest.mark.system
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
