"""Runs in batches whose waits are short, in processes that can be killed."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from bactrian.api.dataset import build_run_order, run_order
from bactrian.errors import BactrianError
from bactrian.runs.runner import Runner
from bactrian.runs.wiring import RunOrder
from bactrian.store import open_store
from tests.helpers.batch_server import BatchServer
from tests.helpers.generation import RECIPE as GENERATED

OTHER = {"vllm": "vllm:any@{}/v1"}  # without a batch interface
MODELS = {
    "openai": "openai:any@{}/v1",
    "mistral": "mistral:any@{}/v1",
    "anthropic": "anthropic:any@{}/v1",
    "gemini": "gemini:any@{}/v1beta/openai",
    "openrouter": "openrouter:any@{}/v1",
}
KEYS = {f"{name.upper()}_API_KEY": "a-key-of-this-test" for name in MODELS}
PACE = 0.002
RECIPE = GENERATED.replace(
    'count = 3\ngiven = ["Chef", "Pilot", "Nurse"]', 'count = 2\ngiven = ["Chef", "Pilot"]'
)


async def play(
    folder: Path,
    url: str,
    dialect: str,
    *,
    batch: bool = True,
    tasks: int = 3,
    size: int = 4,
    pace: float = PACE,
    **options: Any,
) -> float:
    """Carry out the small recipe of ``folder``, and return what it cost. Raises what stops it."""
    order = make_order(folder, url, dialect, tasks=tasks, batch=batch, **options)
    if order.batch is not None:
        order = replace(order, batch=replace(order.batch, pace=pace, size=size))

    async def watch(_: Runner) -> None:
        await asyncio.Event().wait()

    return (await run_order(order, lambda _: None, watch)).meter.usd


def make_order(
    folder: Path,
    url: str,
    dialect: str,
    *,
    tasks: int,
    limit: int | None = None,
    budget: float | None = None,
    **options: Any,
) -> RunOrder:
    """The order of the small recipe of ``folder``."""
    (folder / "small.toml").write_text(RECIPE.replace("count = 4", f"count = {tasks}"))
    model = (MODELS | OTHER)[dialect].format(url)
    terms = {"seed": 7, "max_wait": 600.0} | options
    return build_run_order(
        folder / "small.toml",
        folder / "run.db",
        model,
        None,
        limit=limit,
        budget=budget,
        options=terms,  # type: ignore[arg-type]
    )


def _play_in_process(folder: str, url: str, dialect: str, options: dict[str, Any]) -> None:
    os.environ |= KEYS
    try:
        asyncio.run(play(Path(folder), url, dialect, **options))
    except BactrianError as error:
        print(error, file=sys.stderr)  # noqa: T201
        raise SystemExit(error.exit_code) from None


async def play_killed(folder: Path, server: BatchServer, dialect: str, **options: Any) -> int:
    """The same in a process of its own, which the server may kill; gives its exit code."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    process = context.Process(target=_play_in_process, args=(str(folder), server.url, dialect, options))
    process.start()
    server.kill = process.kill
    await asyncio.to_thread(process.join)
    assert process.exitcode is not None
    return process.exitcode


async def read_texts(folder: Path) -> dict[str, tuple[str | None, list[str]]]:
    """The endings and the texts of a run, by session."""
    async with open_store(folder / "run.db", read_only=True) as store:
        return {
            session.id: (
                session.ending.code if session.ending else None,
                [turn.text for turn in session.turns],
            )
            async for session in store.sessions()
        }
