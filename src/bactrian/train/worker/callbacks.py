# pyright: basic, reportMissingImports=false
"""What happens in the course of a stage: progress, checkpoints, and an end at a loss that is not a number."""

from __future__ import annotations

import math
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback

from bactrian.errors import BactrianError
from bactrian.train.folder import COMPLETE
from bactrian.train.recipe import Training
from bactrian.train.worker.events import Emit
from bactrian.train.worker.machine import ProcessClock


class StageWatch(TrainerCallback):
    """Reports steps, saves by the clock, and stops when it is asked to."""

    def __init__(self, training: Training, emit: Emit, tokens_a_step: float, clock: ProcessClock) -> None:
        self._emit = emit
        self._clock = clock
        self._save_after = training.save_minutes * 60
        self._saved = self._begun = time.monotonic()
        self._stopping = False
        self._first = 0
        self._tokens_a_step = tokens_a_step
        self.begun = False
        self.stopped = False
        signal.signal(signal.SIGTERM, self._ask_to_stop)

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Note where the stage resumes."""
        self.begun = True
        self._first = state.global_step
        self._saved = self._begun = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Save a checkpoint when one is due, at the last step, and before a stop."""
        due = time.monotonic() - self._saved >= self._save_after
        stop, due = _agree(self._stopping, due)
        if stop and state.global_step < state.max_steps:
            self.stopped = True
            control.should_training_stop = True
        if stop or due or state.global_step >= state.max_steps:
            control.should_save = True
            self._saved = time.monotonic()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **more: Any) -> None:
        """Report a step or an evaluation.

        Raises:
            BactrianError: the loss or the gradient is not a number.
        """
        logs = logs or {}
        # A gradient that is not a number would spoil the weights before the loss shows it. Checkpoints are written
        # after this, so each of them is good.
        for name, title in (("loss", "loss"), ("eval_loss", "loss"), ("grad_norm", "gradient")):
            if name in logs and not math.isfinite(float(logs[name])):
                raise _explain_divergence(title, state.global_step, Path(args.output_dir))
        if not state.is_world_process_zero:
            return
        done = {"step": state.global_step, "of": state.max_steps}
        if "eval_loss" in logs:
            self._emit("evaluated", **done, loss=float(logs["eval_loss"]))
        elif "loss" in logs:
            steps = max(1, state.global_step - self._first)
            seconds = time.monotonic() - self._begun
            self._emit(
                "step",
                **done,
                loss=float(logs["loss"]),
                learning_rate=float(logs.get("learning_rate", 0)),
                tokens=int(logs.get("num_tokens", 0)),  # that the trainer has counted in this process
                left=seconds / steps * (state.max_steps - state.global_step),
                tokens_per_second=self._tokens_a_step * steps / seconds if seconds else 0.0,
                **self._clock.measure(),
            )

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Mark the checkpoint as whole, and remove those before it."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            (folder / COMPLETE).touch()
            for other in Path(args.output_dir).glob("checkpoint-*"):
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
            self._emit("saved", step=state.global_step)

    def _ask_to_stop(self, *_given: object) -> None:
        self._stopping = True


def _explain_divergence(what: str, step: int, folder: Path) -> BactrianError:
    good = find_checkpoint(folder)
    kept = f" The last good checkpoint is {good.name}." if good else ""
    return BactrianError(
        f"The {what} is not a number at step {step}: the training has diverged.{kept}",
        where=str(folder),
        next="Use --set learning_rate=… with a smaller one, or --set precision=fp32, and another --out.",
    )


def find_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint, and remove those that a killed process left unfinished."""
    whole: list[Path] = []
    for path in folder.glob("checkpoint-*"):
        if (path / COMPLETE).exists():
            whole.append(path)
        else:
            shutil.rmtree(path, ignore_errors=True)
    return max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


def _agree(*flags: bool) -> tuple[bool, ...]:
    """Return the flags of the first process, so that all devices do the same."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return flags
    device = "cuda" if torch.cuda.is_available() else "cpu"
    shared = torch.tensor([int(flag) for flag in flags], device=device)
    torch.distributed.broadcast(shared, 0)
    return tuple(bool(one) for one in shared.tolist())
