# pyright: basic, reportMissingImports=false
"""Writes the model of a stage: its weights, or those that it began with and its adapters merged into them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig

from bactrian.train.worker.models.load import load_weights

ADAPTER = "adapter"
_GATHERED = ".model.gathered"


def gather_weights(trainer: Any, folder: Path) -> None:
    """Write what several devices have in parts into ``folder``, in all their processes; one device has the whole."""
    if trainer.args.world_size > 1:
        trainer.save_model(str(folder / _GATHERED))


def save_trained_model(trainer: Any, tokenizer: Any, folder: Path, start: Path) -> None:
    """Write ``folder/model``, whole or not at all, and ``folder/adapter`` if adapters were trained.

    Adapters are merged into the weights as they are in ``start``, not into those that QLoRA has quantised.
    """
    part, gathered = folder / ".model.part", folder / _GATHERED
    shutil.rmtree(part, ignore_errors=True)
    kind = _read_dtype(start)
    trained = trainer.accelerator.unwrap_model(trainer.model)
    if hasattr(trained, "merge_and_unload"):
        trained.save_pretrained(folder / ADAPTER)
        model = _merge(load_weights(start, kind), folder / ADAPTER)
    else:
        model = load_weights(gathered, kind) if gathered.exists() else trained
    model.config.use_cache = True
    model.to(kind).save_pretrained(part)
    tokenizer.save_pretrained(part)
    shutil.rmtree(gathered, ignore_errors=True)
    shutil.rmtree(folder / "model", ignore_errors=True)
    part.rename(folder / "model")


def _merge(model: Any, adapter: Path) -> Any:
    from peft import PeftModel

    return PeftModel.from_pretrained(model, adapter).merge_and_unload()


def _read_dtype(folder: Path) -> Any:
    """Return the type of the weights in ``folder``, which the trained model is written in."""
    given = getattr(AutoConfig.from_pretrained(folder), "dtype", None)
    return given if given in (torch.bfloat16, torch.float16) else torch.float32
