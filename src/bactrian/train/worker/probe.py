# pyright: basic, reportMissingImports=false
"""Three steps that measure speed and memory, before anything is spent."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bactrian.errors import BactrianError
from bactrian.train.examples import IGNORED
from bactrian.train.recipe import Training
from bactrian.train.worker.machine import Machine, measure_peak
from bactrian.train.worker.models.load import is_encoder_decoder, load_model, make_adapters


def probe_training(folder: Path, training: Training, machine: Machine, data: Any) -> dict[str, Any]:
    """Train three steps: one on the longest examples, for the memory, and two on typical ones, for the speed.

    Raises:
        BactrianError: there is too little memory, or the loss is not a number.
    """
    begun = time.perf_counter()
    model = _load_trainable(folder, training, machine)
    load_seconds = time.perf_counter() - begun
    lengths = [len(ids) for ids in data["input_ids"]]
    try:
        rate = _measure_rate(model, data, choose_examples(lengths, training.held_at_once), machine)
    except torch.OutOfMemoryError as error:
        raise BactrianError(
            f"The GPU has too little memory for {training.held_at_once} examples of {max(lengths):,} tokens.",
            where=str(folder),
            next="Add --set per_device=1 (the batch stays) or --set checkpointing=true, or use --set method=lora.",
        ) from error
    if rate is None:
        raise BactrianError(
            "The loss is not a number in the first step.",
            where=str(folder),
            next='Use precision = "fp32", or another base model.',
        )
    return {
        "tokens_per_second": rate,
        "load_seconds": load_seconds,
        "peak_bytes": measure_peak(),
        "parameters": sum(one.numel() for one in model.parameters()),
        "trained_parameters": sum(one.numel() for one in model.parameters() if one.requires_grad),
        "machine": machine.name,
        "device": machine.device,
        "bf16": machine.bf16,
    }


def choose_examples(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Return the positions of ``size`` examples for each of three steps: the longest, and twice typical ones."""
    longest = sorted(range(len(lengths)), key=lambda place: -lengths[place])[:size]
    stride = max(1, len(lengths) // (2 * size))
    typical = [[(step * size + one) * stride % len(lengths) for one in range(size)] for step in range(2)]
    return [longest, *typical]


def _load_trainable(folder: Path, training: Training, machine: Machine) -> Any:
    model = load_model(folder, training, machine)
    if adapters := make_adapters(training, encoder_decoder=is_encoder_decoder(folder)):
        from peft import get_peft_model

        model = get_peft_model(model, adapters)
    if training.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    return model.to(machine.device).train()


def _measure_rate(model: Any, data: Any, steps: list[list[int]], machine: Machine) -> float | None:
    """Return the tokens a second of the steps after the first; None if a loss is not a number."""
    optimizer = torch.optim.AdamW((one for one in model.parameters() if one.requires_grad), lr=1e-8)
    tokens, seconds = 0, 0.0
    for number, places in enumerate(steps):
        rows = [data[place] for place in places]
        begun = time.perf_counter()
        if not math.isfinite(_step(model, optimizer, rows, machine)):
            return None
        if number:
            tokens += sum(len(row["input_ids"]) for row in rows)
            seconds += time.perf_counter() - begun
    return tokens / seconds


def _step(model: Any, optimizer: Any, rows: list[dict[str, Any]], machine: Machine) -> float:
    longest = max(len(row["input_ids"]) for row in rows)
    widest = max(len(row["labels"]) for row in rows)
    ids = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in rows])
    labels = torch.tensor([row["labels"] + [IGNORED] * (widest - len(row["labels"])) for row in rows])
    attention = torch.tensor(
        [[1] * len(row["input_ids"]) + [0] * (longest - len(row["input_ids"])) for row in rows]
    )
    given = {"input_ids": ids, "labels": labels, "attention_mask": attention}
    with torch.autocast(machine.device, torch.bfloat16, enabled=machine.bf16):
        loss = model(**{name: values.to(machine.device) for name, values in given.items()}).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss)
