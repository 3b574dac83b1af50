"""Configurations of accelerate, for a training on several GPUs of one machine."""

from __future__ import annotations

from importlib import resources
from pathlib import Path

from bactrian.errors import InputError
from bactrian.train.recipe import Training

FILE = "accelerate.yaml"


def find_launcher(training: Training, out: Path) -> tuple[str, ...]:
    """Return the arguments of accelerate's launcher; empty for one device.

    Raises:
        InputError: the recipe names a configuration that does not exist.
    """
    if training.accelerate is None or training.devices == 1:
        return ()
    if training.accelerate == "fsdp":
        path = out / FILE
        path.write_text(write_fsdp_config(training.devices), "utf-8")
    else:
        path = Path(training.accelerate)
        if not path.is_file():
            raise InputError(
                "There is no such configuration of accelerate.",
                where=training.accelerate,
                next='Use accelerate = "fsdp", or a file that `accelerate config` wrote.',
            )
    return ("--config_file", str(path))


def write_fsdp_config(devices: int) -> str:
    """Return accelerate's configuration for fully sharded data parallelism on this number of GPUs, in bf16."""
    text = resources.files("bactrian.train").joinpath("fsdp.yaml").read_text("utf-8")
    return text.replace("num_processes: 4", f"num_processes: {devices}")
