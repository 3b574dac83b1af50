"""A model of the user's own that fails, hangs or exits ends its own call and nothing else."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.errors import ModelError

SCRIPT = ["Instruction: Name a tea.\nInput: None", "Solution: Sencha.\nNext request.", "<CAMEL_TASK_DONE>"]


def play_script() -> str:
    ending = bt.play("Choose a tea", model=bt.Scripted(SCRIPT), specify=False).ending
    assert ending is not None
    return ending.code


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("threaded", [True, False])
def test_a_model_that_exits_ends_the_call_and_later_calls_work(
    kind: type[BaseException], threaded: bool
) -> None:
    def leave(_: object) -> str:
        raise kind

    async def leave_async(_: object) -> str:
        raise kind

    with pytest.raises(kind):
        bt.play("Choose a tea", model=leave if threaded else leave_async, specify=False)
    assert play_script() == "task_done"


def test_an_answer_has_to_come_within_the_timeout() -> None:
    async def hang(_: object) -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(ModelError, match=r"no answer within 0\.1 seconds"):
        bt.play("Choose a tea", model=hang, specify=False, timeout=0.1, max_wait=0)


def test_one_interrupt_ends_a_call_inside_a_running_loop(tmp_path: Path) -> None:
    begun = threading.Event()

    async def hang(_: object) -> str:
        begun.set()
        await asyncio.Event().wait()
        return ""

    def interrupt() -> None:
        begun.wait(30)
        os.kill(os.getpid(), signal.SIGINT)

    async def call() -> None:
        threading.Thread(target=interrupt).start()
        with pytest.raises(bt.Interrupted, match=r"tea\.db.*same call resumes it"):
            bt.play("Choose a tea", model=hang, specify=False, timeout=20, run=tmp_path / "tea.db")

    asyncio.run(call())
    assert play_script() == "task_done"


def test_an_interrupted_run_names_its_file_and_how_to_go_on(tmp_path: Path) -> None:
    def interrupt(_: object) -> str:
        raise KeyboardInterrupt

    recipe = bt.recipe("ai-society", assistant_role=["Merchant"], user_role=["Guest"], task=["Teas"])
    with pytest.raises(KeyboardInterrupt, match=r"tea\.db.*same call resumes it"):
        bt.generate(recipe, run=tmp_path / "tea.db", model=interrupt)


def test_a_model_that_fails_leaves_no_task_behind(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        with pytest.raises(ModelError):
            bt.play("Choose a tea", model=lambda _: 3)  # type: ignore[arg-type, return-value]
        gc.collect()
    assert caplog.messages == []
