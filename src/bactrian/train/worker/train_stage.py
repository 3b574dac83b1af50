# pyright: basic, reportMissingImports=false
"""Trains one stage with TRL's trainer, or transformers' for other models; writes its model and what a check expects."""

from __future__ import annotations

import gc
import json
import math
import os
import shutil
import signal
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import concatenate_datasets
from transformers import TrainerCallback, set_seed

from bactrian.errors import BactrianError, InputError
from bactrian.models.local.local_model import hash_weights
from bactrian.train import training_folder
from bactrian.train.training_examples import IGNORED
from bactrian.train.training_recipe import Training, TrainRecipe
from bactrian.train.worker import model_files
from bactrian.train.worker.gguf_file import write_gguf
from bactrian.train.worker.prepare_training import load_part, open_tokenizer
from bactrian.train.worker.worker_events import Emit, UnreadableCheckpointError


def make_arguments(
    training: Training, machine: model_files.Machine, output: Path, steps: int, *, evaluates: bool
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

    def __init__(
        self, training: Training, emit: Emit, tokens_a_step: float, clock: model_files.ProcessClock
    ) -> None:
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
                good = find_checkpoint(Path(args.output_dir))
                kept = f" The last good checkpoint is {good.name}." if good else ""
                raise BactrianError(
                    f"The {title} is not a number at step {state.global_step}: the training has diverged.{kept}",
                    where=args.output_dir,
                    next="Use a smaller training.learning_rate=N, or training.precision=fp32, and another out=FOLDER.",
                )
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
            (folder / training_folder.COMPLETE).touch()
            for other in Path(args.output_dir).glob("checkpoint-*"):
                if other != folder:
                    shutil.rmtree(other, ignore_errors=True)
            self._emit("saved", step=state.global_step)

    def _ask_to_stop(self, *_signal: object) -> None:
        self._stopping = True


def find_checkpoint(folder: Path) -> Path | None:
    """Return the newest whole checkpoint, and remove those that a killed process left unfinished."""
    whole: list[Path] = []
    for path in folder.glob("checkpoint-*"):
        if (path / training_folder.COMPLETE).exists():
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
    machine: model_files.Machine,
    data: tuple[Any, Any],
    output: Path,
    steps: int,
    watch: StageWatch,
) -> Any:
    """Return a trainer with the model in ``folder``, for ``data``: training and held-out examples."""
    train, held_out = data
    evaluates = held_out is not None and len(held_out) > 0
    arguments = make_arguments(training, machine, output, steps, evaluates=evaluates)
    model = model_files.load_model(folder, training, machine)
    common: dict[str, Any] = {
        "train_dataset": train,
        "eval_dataset": held_out if evaluates else None,
        "processing_class": tokenizer,
        "callbacks": [watch],
    }
    if model_files.is_encoder_decoder(folder):
        from transformers import DataCollatorForSeq2Seq, Seq2SeqTrainer, Seq2SeqTrainingArguments

        model = model_files.add_adapters(model, training, encoder_decoder=True)
        return Seq2SeqTrainer(
            model,
            args=Seq2SeqTrainingArguments(**arguments),
            data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
            # The loss of T5 itself is the mean of the examples in memory; the trainer would add up these means in a
            # step.
            compute_loss_func=measure_loss,
            **common,
        )
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    # The examples are tokens already, and fit: TRL truncates, packs and drops nothing.
    config = SFTConfig(**arguments, max_length=None, packing=False, shuffle_dataset=False)
    return SFTTrainer(model, args=config, peft_config=model_files.make_adapters(training), **common)


def measure_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None) -> Any:
    """Return the cross-entropy of these examples per learned token.

    ``num_items_in_batch`` is the number of learned tokens of the whole step; None for that of these examples.
    """
    logits = outputs.logits.flatten(0, 1).float()
    total = torch.nn.functional.cross_entropy(logits, labels.flatten(), ignore_index=IGNORED, reduction="sum")
    return total / ((labels != IGNORED).sum() if num_items_in_batch is None else num_items_in_batch)


# A stage, from its checkpoint to its files.


EXPECTED = "expected.json"
_PROMPTS = 12
_LONGEST = 512  # Tokens of a prompt, if something is learned so early
_WINDOW = 4000  # Tokens that llama.cpp has room for in the check
_TOP = 10  # Most likely tokens that are compared


def write_expected(folder: Path, data: Any) -> None:
    """Write prompts of ``data`` and the log-probabilities that the model in ``folder`` gives to the next token."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).eval()
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        for number in range(0, len(data), max(1, len(data) // _PROMPTS)):
            prompt = cut_prompt(data[number], number)
            if prompt:
                scores = torch.log_softmax(model(torch.tensor([prompt])).logits[0, -1].float(), -1)
                top = scores.topk(min(_TOP, len(scores)))
                rows.append(
                    {
                        "prompt": prompt,
                        "top": list(zip(top.indices.tolist(), top.values.tolist(), strict=True)),
                    }
                )
            if len(rows) == _PROMPTS:
                break
    (folder / EXPECTED).write_text(json.dumps(rows), "utf-8")


def cut_prompt(row: dict[str, Any], number: int) -> list[int]:
    """Return the beginning of an example, up to a learned token: the first, or one further on."""
    learned = [index for index, label in enumerate(row["labels"]) if label != IGNORED and index < _WINDOW]
    learned = [index for index in learned if index < _LONGEST] or learned[:1]
    return row["input_ids"][: learned[number * 7 % len(learned)]] if learned else []


LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "gguf")


def train_stage(root: Path, number: int, emit: Emit) -> bool:
    """Train stage ``number``, resuming its newest checkpoint. Return False if it was stopped before its end.

    Raises:
        BactrianError: the loss is not a number, or the model to begin with has changed.
    """
    clock = model_files.ProcessClock()
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    recipe = TrainRecipe.model_validate(training_folder.read_plan(root)["recipe"])
    training, is_union = recipe.training, recipe.origin == "union"
    folders = training_folder.list_stage_folders(root, [part.name for part in recipe.stages])
    stage = folders[number]
    stage.checkpoints.mkdir(parents=True, exist_ok=True)
    before = folders[0] if is_union else folders[number - 1]
    check_weights(before)
    parts = folders[1 : number + 1] if is_union else [stage]
    data = concatenate_datasets([load_part(part, "train") for part in parts])
    held_out = concatenate_datasets([load_part(part, "held-out") for part in folders[1:]])
    steps, tokens = training.count_steps(len(data)), sum(map(len, data["input_ids"]))
    machine = model_files.find_machine(training)
    emit("machine", device=machine.device, name=machine.name, bf16=machine.bf16)
    set_seed(training.seed)
    tokenizer = open_tokenizer(str(folders[0].model), recipe.base)
    watch = StageWatch(training, emit, tokens / training.count_steps_of_epoch(len(data)), clock)
    trainer = build_trainer(
        before.model, tokenizer, training, machine, (data, held_out), stage.checkpoints, steps, watch
    )
    _train(trainer, watch, stage.checkpoints, steps, emit)
    if watch.stopped:
        return False
    model_files.gather_weights(trainer, stage.folder)
    if not trainer.is_world_process_zero():
        return True
    model_files.save_trained_model(trainer, tokenizer, stage.folder, before.model)
    report = _report(trainer, training.count_seen(len(data), tokens), machine.name)
    del trainer
    gc.collect()
    base = folders[0].manifest
    if base["gguf"] is None or model_files.is_encoder_decoder(
        before.model
    ):  # the architecture has no GGUF here
        report["gguf"] = None
    else:
        emit("converting")
        source = Path(base["gguf_source"]) if base["gguf_source"] else None
        for kind in dict.fromkeys(("f16", *recipe.gguf)):
            write_gguf(
                stage.folder / "model", stage.folder / training_folder.name_gguf(kind), kind, source=source
            )
        write_expected(stage.folder, data)
        report["gguf"] = training_folder.name_gguf("f16")
    report["weights"] = hash_weights(stage.folder / "model")
    emit("trained", **clock.measure())
    training_folder.write_json(stage.folder / "trained.json", report)
    return True


def _train(trainer: Any, watch: StageWatch, checkpoints: Path, steps: int, emit: Emit) -> None:
    """Train from the newest checkpoint on."""
    checkpoint = find_checkpoint(checkpoints)
    emit("began", step=int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0, of=steps)
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except Exception as error:
        find_checkpoint(checkpoints)  # removes half a checkpoint, which may be what fills the disk
        if checkpoint is not None and not watch.begun:
            raise UnreadableCheckpointError(checkpoint) from error
        raise


def check_weights(folder: training_folder.StageFolder) -> None:
    """Raise InputError if the weights of a finished stage are not those that its manifest names."""
    if hash_weights(folder.model) != folder.manifest["weights"]:
        raise InputError(
            f"The model of the stage {folder.name} has changed since it was made.",
            where=str(folder.model),
            next="Put the former files back, or use another out=FOLDER: what is trained so far is kept.",
        )


def _report(trainer: Any, tokens: int, machine: str) -> dict[str, Any]:
    history = trainer.state.log_history
    losses = [event["loss"] for event in history if "loss" in event]
    held_out = [event["eval_loss"] for event in history if "eval_loss" in event]
    return {
        "steps": trainer.state.global_step,
        "tokens": tokens,
        "loss": {
            "first": losses[0] if losses else None,
            "train": losses[-1] if losses else None,
            "held_out_before": held_out[0] if held_out else None,
            "held_out": held_out[-1] if held_out else None,
        },
        "machine": machine,
        "versions": {name: version(name) for name in LIBRARIES},
    }
