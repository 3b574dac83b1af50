"""Starts a worker in a process of its own, and passes on its events.

A process for each stage frees all memory at its end, and whatever takes it down takes nothing else with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bactrian.errors import BactrianError, InputError, MissingExtra
from bactrian.train.training_folder import STOPPED
from bactrian.train.training_recipe import Training

_PATIENCE = 60.0  # Seconds that a stage has to finish a step and save a checkpoint
# Compiled kernels that oneDNN keeps, by default 1,024. Each length of an example has another one, and a stage
# gathered hundreds of megabytes. 32 are as fast as 1,024; 8 are too few for one length, and 9 % slower.
_KERNELS = "32"
_LOG_LINES = 3
_LOOK = 0.4  # Seconds for which the cores are watched before a worker starts
_RESUMES = "Run the same command: it resumes at the last checkpoint."
EXTRA = ("torch", "transformers", "trl", "peft", "datasets", "accelerate", "gguf")


class WorkerStopped(BactrianError):
    """Something other than this program ended the training process with SIGTERM; it saved a checkpoint first."""

    exit_code = 128 + signal.SIGTERM


def check_libraries() -> None:
    """Raise MissingExtra if a library of the extra ``train`` is missing."""
    for name in EXTRA:
        if find_spec(name) is None:
            raise MissingExtra("train", f"Training (here {name})")


async def inspect_machine() -> Mapping[str, Any]:
    """Return what this computer offers to a training: ``device``, ``name``, ``bf16``, ``free_bytes`` and ``torch``.

    Raises:
        MissingExtra: a library is missing.
        BactrianError: PyTorch does not start here.
    """
    check_libraries()
    with tempfile.TemporaryDirectory() as folder:
        async with aclosing(run_worker(("machine",), Path(folder) / "worker.log")) as events:
            return await anext(events)


async def count_free_cores() -> int:
    """Return how many cores are idle, at least one: threads that wait for busy cores slow each other down.

    The system's load average would do only once: for minutes it also counts the stage that has just ended.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    before = _read_idle_seconds()
    if before is None:
        return max(1, round(cores - os.getloadavg()[0]))
    await asyncio.sleep(_LOOK)
    idle = ((_read_idle_seconds() or before) - before) / _LOOK
    return max(1, min(cores, round(idle)))


def _read_idle_seconds() -> float | None:
    """Return how long this computer's cores were idle in all, in seconds; None where the system does not say."""
    try:
        # Cpu, user, nice, system, idle, waiting
        fields = Path("/proc/stat").read_text("ascii").split(maxsplit=6)
        return (int(fields[4]) + int(fields[5])) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return None


async def run_worker(
    task: Sequence[str], log: Path, *, launcher: Sequence[str] = ()
) -> AsyncGenerator[Mapping[str, Any]]:
    """Run a worker with these arguments and yield its events. Cancelling it lets it save a checkpoint first.

    Args:
        task: ``machine``, ``prepare FOLDER`` or ``stage FOLDER NUMBER``.
        log: File for what its libraries print.
        launcher: Arguments for accelerate's launcher, for several devices.

    Raises:
        BactrianError: the worker failed, or was killed.
        WorkerStopped: the worker was stopped and can be resumed.
    """
    worker = await _start_worker(task, log, launcher)
    failure: BactrianError | None = None
    try:
        assert worker.stdout is not None
        async for line in worker.stdout:
            event = _read_event(line)
            if event.get("event") == "error":
                kind = InputError if event.get("exit_code") == InputError.exit_code else BactrianError
                failure = kind(str(event["what"]), where=event.get("where"), next=event.get("next"))
            elif event:
                yield event
        code = await worker.wait()
    finally:
        if worker.returncode is None:
            await _end(worker)
    if failure is not None:
        raise failure
    if code != 0:
        raise _explain_death(code, log)


async def _start_worker(
    task: Sequence[str], log: Path, launcher: Sequence[str]
) -> asyncio.subprocess.Process:
    settings = {
        # Spinning threads take the cores that other threads wait for.
        "OMP_WAIT_POLICY": "passive",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(await count_free_cores()),
        "ONEDNN_PRIMITIVE_CACHE_CAPACITY": _KERNELS,
    }
    launched = ["-m", "accelerate.commands.launch", *launcher] if launcher else []
    with log.open("ab") as errors:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", *launched, "-m", "bactrian.train.worker", *task),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # Ctrl-C must reach only this process, which lets the worker save
            limit=1 << 24,
            env={**settings, **os.environ},
        )


async def _end(worker: asyncio.subprocess.Process) -> None:
    """Ask the worker to save and stop; kill it if that takes too long."""
    with suppress(ProcessLookupError):
        worker.terminate()
    try:
        async with asyncio.timeout(_PATIENCE):
            if worker.stdout is not None:
                await worker.stdout.read()
            await worker.wait()
    except (TimeoutError, asyncio.CancelledError):
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        await worker.wait()


def _read_event(line: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        event = json.loads(line)
        if isinstance(event, dict):
            return event  # pyright: ignore[reportUnknownVariableType]
    return {}


def _explain_death(code: int, log: Path) -> BactrianError:
    if code in (STOPPED, -signal.SIGTERM):
        saved = ", and saved a checkpoint" if code == STOPPED else ""
        return WorkerStopped(
            f"Another process ended the training process with SIGTERM{saved}.", where=str(log), next=_RESUMES
        )
    if code == -signal.SIGKILL:
        return BactrianError(
            "The training process was killed, most likely because memory ran out.",
            where=str(log),
            next=f"{_RESUMES} If it happens again, add training.per_device=1 "
            "or training.checkpointing=true: the result is the same.",
        )
    lines = log.read_text("utf-8", "replace").strip().splitlines()[-_LOG_LINES:]
    ended = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    return BactrianError(
        f"The training process {ended}: {' '.join(lines) or 'it said nothing'}",
        where=str(log),
        next=f"The log says more. {_RESUMES}",
    )


def find_launcher(training: Training, out: Path) -> tuple[str, ...]:
    """Return the arguments of accelerate's launcher; empty for one device.

    Raises:
        InputError: the recipe names a configuration that does not exist.
    """
    if training.accelerate is None or training.devices == 1:
        return ()
    if training.accelerate == "fsdp":
        path = out / "accelerate.yaml"
        text = resources.files("bactrian.train").joinpath("fsdp.yaml").read_text("utf-8")
        path.write_text(text.replace("num_processes: 4", f"num_processes: {training.devices}"), "utf-8")
    else:
        path = Path(training.accelerate)
        if not path.is_file():
            raise InputError(
                "There is no such configuration of accelerate.",
                where=training.accelerate,
                next='Use accelerate = "fsdp", or a file that `accelerate config` wrote.',
            )
    return ("--config_file", str(path))
