# pyright: basic, reportMissingImports=false
"""The device of a training, its precision and memory; and models on it: loaded to be trained, and written again."""

from __future__ import annotations

import re
import resource
import shutil
import time
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from bactrian.errors import InputError
from bactrian.train.training_recipe import Training

# Flags of processors that compute in bf16; others emulate it, slower than fp32.
_BF16 = ("amx_bf16", "avx512_bf16")


@dataclass(frozen=True, slots=True)
class Machine:
    """The device of a stage."""

    device: str  # `cuda` or `cpu`
    bf16: bool
    name: str


def find_machine(training: Training) -> Machine:
    """Return the device and the precision of a stage.

    Raises:
        InputError: the recipe asks for a GPU or for bitsandbytes, and it is missing.
    """
    has_gpu = torch.cuda.is_available()
    if training.method == "qlora" and not has_gpu:
        raise InputError(
            "QLoRA trains a quantised model on a GPU, and there is none.",
            where='method = "qlora"',
            next="Use training.method=lora, which runs on processors too.",
        )
    if training.method == "qlora" and find_spec("bitsandbytes") is None:
        raise InputError(
            "QLoRA quantises with bitsandbytes, which is not installed.",
            where='method = "qlora"',
            next="pip install bitsandbytes",
        )
    if training.devices > 1 and torch.cuda.device_count() < training.devices:
        raise InputError(
            f"The recipe needs {training.devices} GPUs, and there are {torch.cuda.device_count()}.",
            where="devices",
            next="Use training.devices=1: gradients are accumulated to the same batch.",
        )
    able = torch.cuda.is_bf16_supported() if has_gpu else _computes_bf16()
    bf16 = able if training.precision == "auto" else training.precision == "bf16"
    threads = torch.get_num_threads()
    processor = f"{threads} {'thread' if threads == 1 else 'threads'} of a processor"
    name = torch.cuda.get_device_name(0) if has_gpu else processor
    return Machine("cuda" if has_gpu else "cpu", bf16, name)


def describe_machine() -> dict[str, Any]:
    """Return what ``bactrian doctor`` shows: the device, its precision, its free memory in bytes, PyTorch's version."""
    machine = find_machine(Training())
    free = torch.cuda.mem_get_info()[0] if machine.device == "cuda" else _read_free_memory()
    return {**asdict(machine), "free_bytes": free, "torch": torch.__version__}


def _read_free_memory() -> int | None:
    """Return the bytes that programs can take; None where the system does not say."""
    try:
        match = re.search(r"MemAvailable:\s*(\d+) kB", Path("/proc/meminfo").read_text("utf-8"))
    except OSError:
        return None
    return int(match[1]) * 1024 if match else None


def measure_peak() -> int:
    """Return the most memory in bytes that this process held: of the GPU if there is one."""
    if torch.cuda.is_available():
        return torch.cuda.max_memory_reserved()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@dataclass(frozen=True, slots=True)
class ProcessClock:
    """Measures what this process uses."""

    begun: float = field(default_factory=time.monotonic)

    def measure(self) -> dict[str, float]:
        """Return the seconds since ``begun``, the seconds of processor time, and the most memory in bytes."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "seconds": time.monotonic() - self.begun,
            "cpu_seconds": usage.ru_utime + usage.ru_stime,
            "peak_bytes": measure_peak(),
        }


def _computes_bf16() -> bool:
    try:
        flags = Path("/proc/cpuinfo").read_text("utf-8")
    except OSError:
        return False
    return any(flag in flags for flag in _BF16)


# Models.


def load_model(folder: Path, training: Training, machine: Machine) -> Any:
    """Load the model in ``folder`` as ``training`` needs it.

    A full fine-tuning keeps its weights in 32 bits: updates of 1e-5 would vanish in bf16. Adapters have 32 bits
    anyway, so the model below them may be bf16.

    Raises:
        InputError: the folder contains no model that can be trained.
    """
    frozen = training.method != "full"
    quantised: dict[str, Any] = {}
    if training.method == "qlora":
        from transformers import BitsAndBytesConfig

        # QLoRA (Dettmers et al. 2023): 4-bit NormalFloat, quantised twice.
        quantised["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
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
    # Imported here, because `bactrian doctor` asks for the machine alone.
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

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
    from transformers import AutoConfig

    return bool(getattr(AutoConfig.from_pretrained(folder), "is_encoder_decoder", False))


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
        from peft import PeftModel

        trained.save_pretrained(folder / ADAPTER)
        model = PeftModel.from_pretrained(load_weights(start, kind), folder / ADAPTER).merge_and_unload()
    else:
        model = load_weights(gathered, kind) if gathered.exists() else trained
    model.config.use_cache = True
    model.to(kind).save_pretrained(part)
    tokenizer.save_pretrained(part)
    shutil.rmtree(gathered, ignore_errors=True)
    shutil.rmtree(folder / "model", ignore_errors=True)
    part.rename(folder / "model")


def _read_dtype(folder: Path) -> Any:
    """Return the type of the weights in ``folder``, which the trained model is written in."""
    from transformers import AutoConfig

    dtype = getattr(AutoConfig.from_pretrained(folder), "dtype", None)
    return dtype if dtype in (torch.bfloat16, torch.float16) else torch.float32
