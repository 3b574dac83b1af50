"""``python -m bactrian.train.worker prepare|stage FOLDER [NUMBER]``: one step of a training in a process of its own."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from pathlib import Path

from bactrian.errors import BactrianError
from bactrian.train.worker.events import die_with_parent, open_events

STOPPED = 75
"""Exit code of a stage that was stopped and can be resumed."""


def main() -> None:
    """Do the step that the arguments name. Errors are events, and the exit code is not 0."""
    emit = open_events()
    die_with_parent()
    task, root = sys.argv[1], Path(sys.argv[2])
    os.environ.setdefault(
        "HF_HUB_OFFLINE", "1"
    )  # otherwise libraries wait for the network; base.py turns it off
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.simplefilter("ignore")
    try:
        if task == "prepare":
            from bactrian.train.worker.prepare import prepare

            prepare(root, emit)
        else:
            from bactrian.train.worker.stage import train_stage

            if not train_stage(root, int(sys.argv[3]), emit):
                os._exit(STOPPED)
    except BactrianError as error:
        emit("error", what=error.what, where=error.where, next=error.next, exit_code=error.exit_code)
        os._exit(1)
    except MemoryError:
        _emit_memory_error(emit, task)
    except Exception as error:  # noqa: BLE001  a library failed, and the parent must hear of it
        traceback.print_exc()
        if isinstance(error, RuntimeError) and "can't allocate memory" in str(error):
            _emit_memory_error(emit, task)
        first = next(iter(str(error).splitlines()), "")
        emit("error", what=f"Training failed: {type(error).__name__}: {first}")
        os._exit(1)
    emit("done")
    sys.stderr.flush()
    os._exit(0)  # threads of libraries keep nothing that is needed


def _emit_memory_error(emit: object, task: str) -> None:
    assert callable(emit)
    emit(
        "error",
        what="There is too little memory for this training.",
        where=task,
        next="Lower per_device (the batch stays) or max_length, set checkpointing=true, or use method=lora.",
    )
    os._exit(1)


if __name__ == "__main__":
    main()
