"""Messages of a worker to the process that started it: JSON lines on standard output, which has nothing else."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bactrian.errors import BactrianError, InputError

Emit = Callable[..., None]  # Sends an event with its values


def open_events() -> Emit:
    """Return the function that sends events. What libraries print goes to standard error from now on."""
    if os.environ.get("RANK", "0") != "0":  # Of several GPUs, only the first reports
        os.dup2(2, 1)
        return _stay_silent
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr

    def emit(event: str, **values: Any) -> None:
        out.write(json.dumps({"event": event, **values}) + "\n")
        out.flush()

    return emit


def _stay_silent(_event: str, **_values: Any) -> None:
    """Send nothing."""


def end_with_parent() -> None:
    """End this process when its standard input ends, which happens also if the parent is killed."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


_LESS = "Add training.per_device=1 or training.checkpointing=true: the result is the same, finished stages are kept."
_RESUMES = "run the same command: it resumes at the last checkpoint."
_NO_MEMORY = re.compile(r"can't allocate memory|Cannot allocate memory|CUDA out of memory")
_NO_SPACE = re.compile(
    # PyTorch gives the reason of a failed write only in words.
    r"No space left|File too large|Disk quota exceeded|os error (27|28|122)|PytorchStreamWriter failed"
    r"|\d+ requested and \d+ written|unexpected pos \d+ vs"
)
_NO_RIGHT = re.compile(r"Permission denied|Read-only file system|os error (13|30)\b")
_NO_GPU = re.compile(r"CUDA|NCCL|cuBLAS|cuDNN")


class UnreadableCheckpointError(Exception):
    """A stage could not resume at a checkpoint."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.folder = folder


def explain_failure(error: BaseException) -> BactrianError:
    """Return what to tell a person about an error of a library."""
    texts = [f"{type(cause).__name__}: {cause}" for cause in _iterate_causes(error)]
    kinds = {type(cause).__name__ for cause in _iterate_causes(error)}
    text = "\n".join(texts)
    if kinds & {"MemoryError", "OutOfMemoryError"} or _NO_MEMORY.search(text):
        return BactrianError("There is too little memory for this training.", next=_LESS)
    if _NO_SPACE.search(text):
        return BactrianError("No space is left on the disk.", next=f"Free some space, and {_RESUMES}")
    checkpoint = error.folder if isinstance(error, UnreadableCheckpointError) else None
    first = texts[0 if checkpoint is None else 1].splitlines()[0]
    if _NO_RIGHT.search(text) or not _can_read(checkpoint):
        return BactrianError(
            f"A file cannot be read or written: {first}", next=f"Change its permissions, and {_RESUMES}"
        )
    if "Target modules" in text:
        return InputError(
            f"The model has no such parts to adapt: {first}",
            where="training.lora.targets",
            next='Use targets = "all-linear", or names of layers of this model, such as ["q_proj", "v_proj"].',
        )
    if _NO_GPU.search(text):
        return BactrianError(f"The GPU was lost: {first}", next=f"Check `nvidia-smi`, and {_RESUMES}")
    if checkpoint is not None:
        return BactrianError(
            "The training cannot continue from this checkpoint, which is damaged or was written by other versions of "
            f"the libraries: {first}",
            where=str(checkpoint),
            next="Use the versions that wrote it. Or remove this folder, and run the same command: "
            "the stage begins again, and finished stages are kept.",
        )
    return BactrianError(f"Training failed: {first}", next=f"The log worker.log says more; {_RESUMES}")


def _can_read(checkpoint: Path | None) -> bool:
    """Return False if this user may not read a file of a checkpoint: safetensors says then that it does not exist."""
    return checkpoint is None or all(os.access(path, os.R_OK) for path in checkpoint.iterdir())


def _iterate_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
