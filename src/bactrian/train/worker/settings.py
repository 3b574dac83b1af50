# pyright: basic, reportMissingImports=false
"""A recipe's training as the arguments of TRL's and transformers' trainers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bactrian.train.recipe import Training
from bactrian.train.worker.machine import Machine


def make_arguments(
    training: Training, machine: Machine, output: Path, steps: int, *, evaluates: bool
) -> dict[str, Any]:
    """Return the arguments that both trainers take."""
    on_gpu = machine.device == "cuda"
    every = max(1, steps // training.evaluations) if evaluates and training.evaluations else 0
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
        "eval_strategy": "steps" if every else "no",
        "eval_steps": every or None,
        "eval_on_start": bool(every),
        "save_strategy": "no",
        "save_total_limit": None,
        "report_to": [],
        "disable_tqdm": True,
        "use_cpu": not on_gpu,
        "dataloader_pin_memory": on_gpu,
        "remove_unused_columns": False,
        **({"tf32": training.tf32} if on_gpu else {}),
    }
