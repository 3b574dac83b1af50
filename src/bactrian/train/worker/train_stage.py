# pyright: basic, reportMissingImports=false
"""Trains one stage, and writes its model and what llama.cpp's check expects."""

from __future__ import annotations

import gc
import json
import os
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, concatenate_datasets
from transformers import set_seed

from bactrian.errors import InputError
from bactrian.train.training_examples import IGNORED
from bactrian.train.training_folder import (
    StageFolder,
    hash_weights,
    list_stage_folders,
    name_gguf,
    read_plan,
    write_json,
)
from bactrian.train.training_recipe import TrainRecipe
from bactrian.train.worker.gguf_file import write_gguf
from bactrian.train.worker.machine import ProcessClock, find_machine
from bactrian.train.worker.model_files import gather_weights, is_encoder_decoder, save_trained_model
from bactrian.train.worker.prepare_training import load_part
from bactrian.train.worker.tokenizer import open_tokenizer
from bactrian.train.worker.trainer import StageWatch, build_trainer, find_checkpoint
from bactrian.train.worker.worker_events import Emit, UnreadableCheckpointError

EXPECTED = "expected.json"
_PROMPTS = 12
_LONGEST = 512
"""Tokens of a prompt."""
_TOP = 10
"""Most likely tokens that are compared."""


def write_expected(folder: Path, data: Any) -> None:
    """Write prompts of ``data`` and the log-probabilities that the model in ``folder`` gives to the next token."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32).eval()
    step = max(1, len(data) // _PROMPTS)
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        for number in range(0, len(data), step):
            prompt = _cut_prompt(data[number], number)
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


def _cut_prompt(row: dict[str, Any], number: int) -> list[int]:
    """Return the beginning of an example, up to a learned token: the first, or one further on."""
    learned = [index for index, label in enumerate(row["labels"]) if label != IGNORED and index < _LONGEST]
    return row["input_ids"][: learned[number * 7 % len(learned)]] if learned else []


LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "gguf")


@dataclass(frozen=True, slots=True)
class StageTask:
    """What a stage is trained from."""

    recipe: TrainRecipe
    stage: StageFolder
    base: StageFolder
    start: Path
    """The model that the stage begins with."""
    data: Dataset
    held_out: Dataset

    @property
    def steps(self) -> int:
        """Number of steps of the stage."""
        return self.recipe.training.count_steps(len(self.data))

    def count_tokens(self) -> int:
        """Return the number of tokens of the data."""
        return sum(map(len, self.data["input_ids"]))


def train_stage(root: Path, number: int, emit: Emit) -> bool:
    """Train stage ``number``, resuming its newest checkpoint. Return False if it was stopped before its end.

    Raises:
        BactrianError: the loss is not a number, or the model to begin with has changed.
    """
    clock = ProcessClock()
    torch.set_num_threads(_count_threads())
    task = read_task(root, number)
    training, stage = task.recipe.training, task.stage
    machine = find_machine(training)
    emit("machine", device=machine.device, name=machine.name, bf16=machine.bf16)
    set_seed(training.seed)
    tokenizer = open_tokenizer(str(find_model(task.base)), task.recipe.base)
    tokens = task.count_tokens()
    watch = StageWatch(training, emit, tokens / training.count_steps_of_epoch(len(task.data)), clock)
    trainer = build_trainer(
        task.start,
        tokenizer,
        training,
        machine,
        (task.data, task.held_out),
        stage.checkpoints,
        task.steps,
        watch,
    )
    _train(trainer, watch, stage.checkpoints, task.steps, emit)
    if watch.stopped:
        return False
    gather_weights(trainer, stage.path)
    if not trainer.is_world_process_zero():
        return True
    save_trained_model(trainer, tokenizer, stage.path, task.start)
    report = _report(trainer, training.count_seen(len(task.data), tokens), machine.name)
    del trainer
    gc.collect()
    gguf = _write_gguf_files(task, emit)
    report |= {"weights": hash_weights(stage.path / "model"), "gguf": gguf}
    emit("trained", **clock.measure())
    write_json(stage.path / "trained.json", report)
    return True


def read_task(root: Path, number: int) -> StageTask:
    """Read the recipe, the tokens and the model of stage ``number``.

    Raises:
        InputError: the model to begin with has changed since it was made.
    """
    recipe = TrainRecipe.model_validate(read_plan(root)["recipe"])
    folders = list_stage_folders(root, [part.name for part in recipe.stages])
    stage = folders[number]
    stage.checkpoints.mkdir(parents=True, exist_ok=True)
    before = folders[0] if recipe.origin == "union" else folders[number - 1]
    check_weights(before)
    trained = folders[1 : number + 1] if recipe.origin == "union" else [stage]
    return StageTask(
        recipe,
        stage,
        base=folders[0],
        start=find_model(before),
        data=concatenate_datasets([load_part(part, "train") for part in trained]),
        held_out=concatenate_datasets([load_part(part, "held-out") for part in folders[1:]]),
    )


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


def _write_gguf_files(task: StageTask, emit: Emit) -> str | None:
    """Write the trained model for llama.cpp, and what its check expects. Return the name of the f16 file.

    None if the architecture has no GGUF here.
    """
    base = task.base.read_manifest()
    if base["gguf"] is None or is_encoder_decoder(task.start):
        return None
    emit("converting")
    folder = task.stage.path
    source = Path(base["gguf_source"]) if base["gguf_source"] else None
    for kind in dict.fromkeys(("f16", *task.recipe.gguf)):
        write_gguf(folder / "model", folder / name_gguf(kind), kind, source=source)
    write_expected(folder, task.data)
    return name_gguf("f16")


def find_model(folder: StageFolder) -> Path:
    """Return the model of a finished stage."""
    return folder.path / str(folder.read_manifest()["model"])


def check_weights(folder: StageFolder) -> None:
    """Raise InputError if the weights of a finished stage are not those that its manifest names."""
    stated, model = folder.read_manifest().get("weights"), find_model(folder)
    if stated is not None and hash_weights(model) != stated:
        raise InputError(
            f"The model of the stage {folder.name} has changed since it was made.",
            where=str(model),
            next="Put the former files back, or use another --out: what is trained so far is kept.",
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


def _count_threads() -> int:
    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
