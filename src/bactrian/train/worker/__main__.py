"""``python -m bactrian.train.worker TASK``: one step of a training in a process of its own.

Tasks are ``machine``, ``prepare FOLDER`` and ``stage FOLDER NUMBER``.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from bactrian.errors import BactrianError
from bactrian.train.training_folder import STOPPED, read_plan
from bactrian.train.training_recipe import BUILT_IN_BASE
from bactrian.train.worker.worker_events import Emit, end_with_parent, explain_failure, open_events


def main() -> None:
    """Do the step that the arguments name. Errors are events, and the exit code is not 0."""
    emit = open_events()
    end_with_parent()
    os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"  # libraries would report the training to the Hub
    task, root = sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else "")
    if task != "prepare" or not is_on_hub(root):
        os.environ["HF_HUB_OFFLINE"] = "1"  # otherwise libraries wait for the network
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    warnings.simplefilter("ignore")
    try:
        if task == "machine":
            from bactrian.train.worker.model_files import describe_machine

            emit("machine", **describe_machine())
        elif task == "prepare":
            from bactrian.train.worker.prepare_training import prepare

            prepare(root, emit)
        else:
            from bactrian.train.worker.train_stage import train_stage

            if not train_stage(root, int(sys.argv[3]), emit):
                os._exit(STOPPED)
    except BactrianError as error:
        _emit_error(emit, error)
    except BaseException as error:  # noqa: BLE001  a library failed, and the parent must hear of it
        with suppress(OSError):  # the disk of the log may be full
            traceback.print_exc()
        _emit_error(emit, explain_failure(error))
    emit("done")
    _exit(0)


def is_on_hub(root: Path) -> bool:
    """Return True if the base model is a name of the Hub."""
    model = read_plan(root)["recipe"]["base"]["model"]
    return model is not None and model != BUILT_IN_BASE and not Path(model).exists()


def _emit_error(emit: Emit, error: BactrianError) -> NoReturn:
    emit("error", what=error.what, where=error.where, next=error.next, exit_code=error.exit_code)
    _exit(1)


def _exit(code: int) -> NoReturn:
    with suppress(OSError):
        sys.stderr.flush()
    os._exit(code)  # threads of libraries keep nothing that is needed


if __name__ == "__main__":
    main()
