# pyright: basic, reportMissingImports=false
"""What this machine offers: a device, its precision, and memory."""

from __future__ import annotations

import re
import resource
import time
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from bactrian.errors import InputError
from bactrian.train.training_recipe import Training

_BF16 = ("amx_bf16", "avx512_bf16")
"""Flags of processors that compute in bf16; others emulate it, slower than fp32."""


@dataclass(frozen=True, slots=True)
class Machine:
    """The device of a stage."""

    device: str
    """``cuda`` or ``cpu``."""
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
            next="Use --set method=lora, which runs on processors too.",
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
            next="Use --set devices=1: gradients are accumulated to the same batch.",
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
