# pyright: basic, reportMissingImports=false
"""Trains one stage, and writes its model."""

from __future__ import annotations

import gc
import resource
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from datasets import concatenate_datasets
from transformers import set_seed

from bactrian.errors import InputError
from bactrian.train.folder import (
    StageFolder,
    hash_weights,
    list_stage_folders,
    name_gguf,
    read_plan,
    write_json,
)
from bactrian.train.gguf_files.writer import write_gguf
from bactrian.train.recipe import TrainRecipe
from bactrian.train.worker.callbacks import StageWatch, find_checkpoint
from bactrian.train.worker.encode import load_part
from bactrian.train.worker.events import Emit
from bactrian.train.worker.logits import write_expected
from bactrian.train.worker.machine import find_machine, measure_peak
from bactrian.train.worker.models.load import is_encoder_decoder
from bactrian.train.worker.models.save import gather_weights, save_trained_model
from bactrian.train.worker.models.seq2seq import open_seq2seq_tokenizer
from bactrian.train.worker.models.tokens import open_tokenizer
from bactrian.train.worker.trainer import build_trainer

LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "gguf")


def train_stage(root: Path, number: int, emit: Emit) -> bool:
    """Train stage ``number``, resuming its newest checkpoint. Return False if it was stopped before its end.

    Raises:
        BactrianError: the loss is not a number, or the model to begin with has changed.
    """
    recipe = TrainRecipe.model_validate(read_plan(root)["recipe"])
    folders = list_stage_folders(root, [one.name for one in recipe.stages])
    stage = folders[number]
    begun = time.monotonic()
    stage.checkpoints.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(_count_threads())
    machine = find_machine(recipe.training)
    emit("machine", device=machine.device, name=machine.name, bf16=machine.bf16)
    base = find_model(folders[0])
    start = base if recipe.origin == "union" else find_model(folders[number - 1])
    check_weights(folders[0] if recipe.origin == "union" else folders[number - 1])
    own = folders[1 : number + 1] if recipe.origin == "union" else [stage]
    data = concatenate_datasets([load_part(one, "train") for one in own])
    held_out = concatenate_datasets([load_part(one, "held-out") for one in folders[1:]])
    steps = recipe.training.count_steps(len(data))
    set_seed(recipe.training.seed)
    tokenizer = (
        open_seq2seq_tokenizer(str(base))
        if is_encoder_decoder(base)
        else open_tokenizer(str(base), recipe.base)
    )
    tokens = sum(map(len, data["input_ids"]))
    watch = StageWatch(recipe.training, emit, tokens / recipe.training.count_steps_of_epoch(len(data)))
    trainer = build_trainer(
        start, tokenizer, recipe.training, machine, (data, held_out), stage.checkpoints, steps, watch
    )
    checkpoint = find_checkpoint(stage.checkpoints)
    emit("began", step=int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0, of=steps)
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
    except Exception:
        find_checkpoint(stage.checkpoints)  # removes half a checkpoint, which may be what fills the disk
        raise
    if watch.stopped:
        return False
    gather_weights(trainer, stage.path)
    if not trainer.is_world_process_zero():
        return True
    save_trained_model(trainer, tokenizer, stage.path, start)
    report = _report(trainer, recipe.training.count_seen(len(data), tokens), machine.name)
    report |= {"seconds": time.monotonic() - begun, "cpu_seconds": _read_cpu_seconds()}
    encoder_decoder = is_encoder_decoder(start)
    del trainer
    gc.collect()
    source = read_base(folders[0]).get("gguf_source")
    write = read_base(folders[0]).get("gguf") is not None and not encoder_decoder
    if write:
        emit("converting")
        for kind in dict.fromkeys(("f16", *recipe.gguf)):
            target = stage.path / name_gguf(kind)
            write_gguf(stage.path / "model", target, kind, source=Path(source) if source else None)
        write_expected(stage.path, data)
    report["peak_bytes"] = measure_peak()
    report |= {"weights": hash_weights(stage.path / "model"), "gguf": "model.gguf" if write else None}
    write_json(stage.path / "trained.json", report)
    return True


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


def read_base(folder: StageFolder) -> dict[str, Any]:
    """Return the manifest of the base model."""
    return folder.read_manifest()


def _report(trainer: Any, tokens: int, machine: str) -> dict[str, Any]:
    history = trainer.state.log_history
    losses = [one["loss"] for one in history if "loss" in one]
    held_out = [one["eval_loss"] for one in history if "eval_loss" in one]
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


def _read_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _count_threads() -> int:
    import os

    return int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
