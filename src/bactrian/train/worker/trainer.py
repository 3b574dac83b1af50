# pyright: basic, reportMissingImports=false
"""Builds the trainer of a stage: TRL's for language models, transformers' for sequence-to-sequence models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
        **common,
    )
