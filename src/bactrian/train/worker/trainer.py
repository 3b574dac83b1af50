# pyright: basic, reportMissingImports=false
"""Builds the trainer of a stage: TRL's for language models, transformers' for sequence-to-sequence models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from bactrian.train.examples import IGNORED
from bactrian.train.recipe import Training
from bactrian.train.worker.callbacks import StageWatch
from bactrian.train.worker.machine import Machine
from bactrian.train.worker.models.load import is_encoder_decoder, load_model, make_adapters
from bactrian.train.worker.settings import make_arguments


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

    adapters = make_adapters(training, encoder_decoder=True)
    if adapters is not None:
        from peft import get_peft_model

        model = get_peft_model(model, adapters)
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
