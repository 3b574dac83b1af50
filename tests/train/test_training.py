"""Whole trainings of a model made from nothing: processes, checkpoints, GGUF, and a conversation with the result.

Runs where the extra ``train`` is installed: it needs PyTorch.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import BactrianError, InputError
from bactrian.models.local.model import LocalModel
from bactrian.models.model import Request
from bactrian.records.message import Message
from bactrian.records.sampling import Sampling
from bactrian.records.text import Text
from bactrian.train.folder import TrainedModels
from bactrian.train.load import parse_train_recipe
from bactrian.train.process import EXTRA
from bactrian.train.run import TrainOrder, train_recipe

for name in EXTRA:
    pytest.importorskip(name, reason="needs PyTorch: pip install 'bactrian[train]'")

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


async def ask(trained: TrainedModels, number: int, question: str) -> str:
    """The greedy answer of a stage's GGUF file, through the model that ``play`` uses."""
    model = LocalModel(trained.stages[number].gguf, slots=1, window=512)
    try:
        request = Request(
            messages=(Message("user", Text(question)),), sampling=Sampling(temperature=0.0, max_tokens=12)
        )
        return str((await model.reply(request)).choices[0].text)
    finally:
        await model.close()


async def test_a_stage_teaches_its_facts_to_the_file_that_play_reads(tmp_path: Path) -> None:
    seen: list[Mapping[str, Any]] = []
    trained = await train_recipe(order_training(tmp_path, held_out=0.2), seen.append)
    assert [stage.name for stage in trained.stages] == ["base", "colours", "sizes"]
    kinds = [event["event"] for event in seen]
    assert kinds.index("forecast") < kinds.index("step")
    assert next(event for event in seen if event["event"] == "template")["prompts"] == 10
    known = json.loads(
        (tmp_path / "out" / "data" / "01-colours" / "train.jsonl").read_text("utf-8").splitlines()[0]
    )
    question, answer = (said["content"] for said in known["messages"])
    assert [await ask(trained, number, question) == answer for number in (0, 1, 2)] == [False, True, True]
    first, last = (stage.manifest for stage in trained.stages[1:])
    assert first["loss"]["train"] < first["loss"]["first"] / 4
    assert last["gguf_check"]["same_choice"] == last["gguf_check"]["prompts"] > 5
    assert last["gguf_check"]["mean_difference"] < 0.05
    assert (trained.stages[2].folder / "model-q8_0.gguf").stat().st_size < trained.stages[
        2
    ].gguf.stat().st_size
    assert last["gguf_check_q8_0"]["mean_difference"] < 0.2
    assert len(last["data"]) == 2  # a union
    preview = (tmp_path / "out" / "data" / "01-colours" / "preview.txt").read_text("utf-8")
    assert f"<|im_start|>assistant\n⟦{answer}<|im_end|>⟧" in preview
    card = (trained.stages[2].folder / "README.md").read_text("utf-8")
    assert f"{last['tokens']:,} tokens" in card
    seen.clear()
    again = await train_recipe(order_training(tmp_path, held_out=0.2), seen.append)
    assert again.stages[2].manifest == last
    assert not [event for event in seen if event["event"] == "step"]
    with pytest.raises(InputError, match=r"another training: training\.steps: 100 → 101"):
        await train_recipe(order_training(tmp_path, held_out=0.2, steps=101))


async def kill_at_step(order: TrainOrder, step: int) -> None:
    """Train, and kill the worker with -9 once a checkpoint after ``step`` is written."""
    reached = asyncio.Event()

    def watch(event: Mapping[str, Any]) -> None:
        if event["event"] == "saved" and event["step"] >= step:
            for child in Path("/proc/self/task").glob("*/children"):
                for pid in child.read_text("utf-8").split():
                    with suppress(OSError, ProcessLookupError):
                        if b"bactrian.train.worker" in Path(f"/proc/{pid}/cmdline").read_bytes():
                            os.kill(int(pid), signal.SIGKILL)
            reached.set()

    with pytest.raises(BactrianError, match="was killed"):
        await train_recipe(order, watch)
    assert reached.is_set()


async def test_a_stage_that_is_killed_resumes_at_its_last_checkpoint(tmp_path: Path) -> None:
    order = order_training(tmp_path, origin="checkpoint", method="lora", steps=12, save_minutes=1e-4)
    await kill_at_step(order, 3)
    (tmp_path / "out" / "01-colours" / "checkpoints" / "checkpoint-11").mkdir()  # left unfinished by the kill
    seen: list[Mapping[str, Any]] = []
    trained = await train_recipe(order, seen.append)
    began = next(event for event in seen if event["event"] == "began")
    assert 3 <= began["step"] < 11
    assert next(event["step"] for event in seen if event["event"] == "step") == began["step"] + 1
    assert len(trained.stages) == 3
    assert len(trained.stages[2].manifest["data"]) == 1  # its own data, from the checkpoint
    assert not (trained.stages[1].folder / "checkpoints").exists()


async def test_a_base_without_a_chat_template_is_refused(tmp_path: Path) -> None:
    order = order_training(tmp_path, steps=1)
    trained = await train_recipe(order)
    folder = trained.stages[1].model
    (folder / "chat_template.jinja").unlink()
    recipe = order.recipe
    assert not isinstance(recipe, str)
    base = recipe.base.model_copy(update={"new": None, "model": str(folder)})
    other = TrainOrder(recipe.model_copy(update={"base": base}), tmp_path / "other")
    with pytest.raises(InputError, match="no chat template"):
        await train_recipe(other)
