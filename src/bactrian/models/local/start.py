"""Starts a llama.cpp server in a child process."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from importlib.util import find_spec
from pathlib import Path

from bactrian.errors import BactrianError, Exhausted, InputError, MissingExtra
from bactrian.models.local.gguf import read_info
from bactrian.models.local.server import LlamaServer
from bactrian.models.local.standstill import PATIENCE


async def start_server(path: Path, *, slots: int, window: int, patience: float = PATIENCE) -> LlamaServer:
    """Load the model at ``path`` with ``slots`` slots of ``window`` tokens, at most as many as it was trained with.

    A server that does nothing for ``patience`` seconds, although it has work, is stopped.

    Raises:
        InputError: the file is missing or not a complete GGUF file, or the system lacks a library.
        MissingExtra: ``xllamacpp`` is not installed.
        ModelError: the model cannot be loaded.
    """
    info = await asyncio.to_thread(read_info, path)
    window = min(window, info.window)
    if find_spec("xllamacpp") is None:
        raise MissingExtra("local", "A model on this computer")
    key = secrets.token_urlsafe()
    worker = await asyncio.create_subprocess_exec(
        # -P: a folder named bactrian in the working directory must not shadow this package.
        *(sys.executable, "-P", "-m", "bactrian.models.local.server_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C must reach only this process, which may finish the turns in flight.
        # Its threads spin while they wait for each other. On shared cores they block the thread that they wait for,
        # especially while it scans the vocabulary for tokens that a grammar allows.
        env={"OMP_WAIT_POLICY": "passive", **os.environ},
    )
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        # The key is sent over stdin, because other processes can read arguments and environment.
        order = {"path": str(path), "slots": slots, "window": window, "key": key}
        worker.stdin.write(json.dumps(order).encode() + b"\n")
        line = await worker.stdout.readline()
    except BaseException:
        worker.kill()
        raise
    answer: dict[str, str] = json.loads(line or b"{}")
    if "address" not in answer:
        await worker.wait()
        raise _explain_failure(path, slots, window, answer.get("unusable"))
    return LlamaServer(worker, answer["address"], key, str(path), info.controls, patience)


def _explain_failure(path: Path, slots: int, window: int, unusable: str | None) -> BactrianError:
    if unusable is None:  # llama.cpp gives no reason.
        return Exhausted(
            "llama.cpp cannot load the model: its file is damaged, or there is not enough memory "
            f"for {slots} slots of {window:,} tokens.",
            where=str(path),
            next="Free some memory, reduce --concurrency, or download the file again.",
        )
    return InputError(
        f"llama.cpp cannot be started on this system: {unusable}.",
        next="Install the library: apt-get install libgomp1, or dnf install libgomp."
        if "libgomp" in unusable
        else "Install the library that it names, or another version: pip install --force-reinstall xllamacpp",
    )
