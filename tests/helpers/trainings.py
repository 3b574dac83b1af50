"""Small trainings for tests: a recipe of two stages, and data that a model of a few thousand weights learns."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from bactrian.train.training import TrainOrder
from bactrian.train.training_recipe import parse_train_recipe

RECIPE = """
name = "facts"
from = "{origin}"
gguf = ["f16", "q8_0"]
[base.new]
width = 64
vocabulary = 320
[training]
method = "{method}"
steps = {steps}
learning_rate = 4e-3
schedule = "constant"
warmup = 0.0
batch = 8
per_device = 8
max_length = 96
held_out = {held_out}
evaluations = 1
save_minutes = {save_minutes}
[[stages]]
name = "colours"
data = ["{folder}/colours.jsonl"]
[[stages]]
name = "sizes"
data = ["{folder}/sizes.jsonl"]
"""
QUESTIONS = ("What {} has {}?", "Tell me the {} of {}.", "{}: {}?")
FACTS = {
    "colours": {"Zorb": "red", "Plim": "blue", "Quex": "green", "Trell": "white"},
    "sizes": {"Vonk": "large", "Wibb": "small", "Yarn": "tiny", "Drosk": "huge"},
}


def order_training(folder: Path, **changes: Any) -> TrainOrder:
    """Write the data, and return the order of a training with ``changes`` to the recipe."""
    for stage, facts in FACTS.items():
        with (folder / f"{stage}.jsonl").open("w", encoding="utf-8") as file:
            for name, value in facts.items():
                for question in QUESTIONS:
                    said = [
                        {"role": "user", "content": question.format(stage, name)},
                        {"role": "assistant", "content": f"Solution: {value}."},
                    ]
                    file.write(json.dumps({"messages": said, "group": f"{name}{question}"}) + "\n")
    values = {
        "origin": "union",
        "method": "full",
        "steps": 100,
        "held_out": 0.0,
        "save_minutes": 5,
        "folder": folder,
        **changes,
    }
    return TrainOrder(parse_train_recipe(RECIPE.format(**values)), folder / "out")


def list_workers() -> list[int]:
    """The numbers of the training processes that this process has started."""
    found: list[int] = []
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text("utf-8").split():
            with suppress(OSError):
                if b"bactrian.train.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(int(pid))
    return found
