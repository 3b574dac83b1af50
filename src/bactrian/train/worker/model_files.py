# pyright: basic, reportMissingImports=false
"""Loads a model for training (in full, with adapters, or quantised with adapters), and writes the trained one."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForSeq2SeqLM

from bactrian.errors import InputError
from bactrian.train.training_recipe import Training
from bactrian.train.worker.machine import Machine


def load_model(folder: Path, training: Training, machine: Machine) -> Any:
    """Load the model in ``folder`` as ``training`` needs it.

    A full fine-tuning keeps its weights in 32 bits: updates of 1e-5 would vanish in bf16. Adapters have 32 bits
    anyway, so the model below them may be bf16.

    Raises:
        InputError: the folder contains no model that can be trained.
    """
    frozen = training.method != "full"
    quantised = {"quantization_config": _quantize_4_bits()} if training.method == "qlora" else {}
    try:
        model = load_weights(
            folder, torch.bfloat16 if frozen and machine.bf16 else torch.float32, **quantised
        )
    except (OSError, ValueError, KeyError, ImportError, SafetensorError) as error:
        raise InputError(
            f"The model cannot be loaded: {str(error).splitlines()[0]}",
            where=str(folder),
            next="Check base.model: a folder of transformers with safetensors.",
        ) from error
    model.config.use_cache = False
    return model


def load_weights(folder: Path, dtype: Any, **options: Any) -> Any:
    """Load the model in ``folder`` in the type ``dtype``."""
    kind = AutoModelForSeq2SeqLM if is_encoder_decoder(folder) else AutoModelForCausalLM
    return kind.from_pretrained(folder, dtype=dtype, **options)


def make_adapters(training: Training, *, encoder_decoder: bool = False) -> Any:
    """Return the configuration of the adapters; None for a full fine-tuning."""
    if training.method == "full":
        return None
    from peft import LoraConfig

    lora = training.lora
    return LoraConfig(
        r=lora.rank,
        lora_alpha=lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets if isinstance(lora.targets, str) else list(lora.targets),
        task_type="SEQ_2_SEQ_LM" if encoder_decoder else "CAUSAL_LM",
    )


def add_adapters(model: Any, training: Training, *, encoder_decoder: bool) -> Any:
    """Return ``model`` with its adapters; as it is for a full fine-tuning."""
    adapters = make_adapters(training, encoder_decoder=encoder_decoder)
    if adapters is None:
        return model
    from peft import get_peft_model

    return get_peft_model(model, adapters)


def is_encoder_decoder(folder: Path) -> bool:
    """Return True for a sequence-to-sequence model such as FlanT5."""
    return bool(getattr(AutoConfig.from_pretrained(folder), "is_encoder_decoder", False))


def _quantize_4_bits() -> Any:
    """Return the quantisation of QLoRA (Dettmers et al. 2023): 4-bit NormalFloat, quantised twice."""
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


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
    dtype = getattr(AutoConfig.from_pretrained(folder), "dtype", None)
    return dtype if dtype in (torch.bfloat16, torch.float16) else torch.float32
