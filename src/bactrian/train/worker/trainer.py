# pyright: basic, reportMissingImports=false
"""Builds the trainer of a stage (TRL's for language models, transformers' for others) and watches it."""

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
from bactrian.train.training_examples import IGNORED
from bactrian.train.training_folder import COMPLETE
from bactrian.train.training_recipe import Training
from bactrian.train.worker.machine import Machine, ProcessClock
from bactrian.train.worker.model_files import add_adapters, is_encoder_decoder, load_model, make_adapters
from bactrian.train.worker.worker_events import Emit


def make_arguments(
    training: Training, machine: Machine, output: Path, steps: int, *, evaluates: bool
) -> dict[str, Any]:
    """Return the arguments that both trainers take."""
    on_gpu = machine.device == "cuda"
    interval = max(1, steps // training.evaluations) if evaluates and training.evaluations else 0
    return {
        "output_dir": str(output),
        "max_steps": steps,
        "per_device_train_batch_size": training.held_at_once,
        "per_device_eval_batch_size": training.held_at_once * (4 if on_gpu else 1),
        "gradient_accumulation_steps": training.accumulation,
        "learning_rate": training.learning_rate,
        "lr_scheduler_type": training.schedule,
        # Rounded down: the first step of a warm-up has a learning rate of 0, too much of a short training.
        "warmup_steps": int(steps * training.warmup),
        "weight_decay": training.weight_decay,
        "bf16": machine.bf16,
        "gradient_checkpointing": training.checkpointing,
        "gradient_checkpointing_kwargs": {"use_reentrant": False} if training.checkpointing else None,
        "seed": training.seed,
        "data_seed": training.seed,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,  # it would log 0 instead of a loss that is not a number
        "eval_strategy": "steps" if interval else "no",
        "eval_steps": interval or None,
        "eval_on_start": bool(interval),
        "save_strategy": "no",
        "save_total_limit": None,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": not on_gpu,
        "dataloader_pin_memory": on_gpu,
        "remove_unused_columns": False,
        **({"tf32": training.tf32} if on_gpu else {}),
    }


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
    return tuple(bool(flag) for flag in shared.tolist())


def build_trainer(
    folder: Path,
    tokenizer: Any,
    training: Training,
    machine: Machine,
    data: tuple[Any, Any],
    output: Path,
    steps: int,
    watch: StageWatch,
) -> Any:
    """Return a trainer with the model in ``folder``, for ``data``: training and held-out examples."""
    train, held_out = data
    evaluates = held_out is not None and len(held_out) > 0
    arguments = make_arguments(training, machine, output, steps, evaluates=evaluates)
    model = load_model(folder, training, machine)
    common: dict[str, Any] = {
        "train_dataset": train,
        "eval_dataset": held_out if evaluates else None,
        "processing_class": tokenizer,
        "callbacks": [watch],
    }
    if is_encoder_decoder(folder):
        return _build_seq2seq(model, training, arguments, common)
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    # The examples are tokens already, and fit: TRL truncates, packs and drops nothing.
    config = SFTConfig(**arguments, max_length=None, packing=False, shuffle_dataset=False)
    return SFTTrainer(model, args=config, peft_config=make_adapters(training), **common)


def _build_seq2seq(model: Any, training: Training, arguments: dict[str, Any], common: dict[str, Any]) -> Any:
    from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

    model = add_adapters(model, training, encoder_decoder=True)
    return Seq2SeqTrainer(
        model,
        args=Seq2SeqTrainingArguments(**arguments),
        data_collator=DataCollatorForSeq2Seq(common["processing_class"], model=model),
        # The loss of T5 itself is the mean of the examples in memory; the trainer would add up these means in a step.
        compute_loss_func=measure_loss,
        **common,
    )


def measure_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None) -> Any:
    """Return the cross-entropy of these examples per learned token.

    ``num_items_in_batch`` is the number of learned tokens of the whole step; None for that of these examples.
    """
    logits = outputs.logits.flatten(0, 1).float()
    total = torch.nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")
    return total / ((labels != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch)
