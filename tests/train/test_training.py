"""Whole trainings of a model made from nothing: processes, checkpoints, GGUF, and a conversation with the result.

Runs where the extra ``train`` is installed: it needs PyTorch.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import BactrianError, InputError
from bactrian.models.local.local_model import LocalModel
from bactrian.models.model import Request
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling
from bactrian.train.training import EXTRA, TrainOrder, forecast_training, train_recipe
from bactrian.train.training_folder import COMPLETE, TrainedModels
from bactrian.train.training_recipe import parse_train_recipe
from tests.helpers.trainings import list_workers, order_training

for name in EXTRA:
    pytest.importorskip(name, reason="needs PyTorch: pip install 'bactrian[train]'")

pytestmark = pytest.mark.soak


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
    question, answer = (message["content"] for message in known["messages"])
    assert [await ask(trained, number, question) == answer for number in (0, 1, 2)] == [False, True, True]
    first, last = (stage.manifest for stage in trained.stages[1:])
    assert first["loss"]["train"] < first["loss"]["first"] / 4
    assert last["gguf_check"]["same_choice"] == last["gguf_check"]["prompts"] > 5
    assert last["gguf_check"]["mean_difference"] < 0.05
    half, full = trained.stages[2].folder / "model-q8_0.gguf", trained.stages[2].gguf
    assert full is not None
    assert half.stat().st_size < full.stat().st_size
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


async def kill_while_it_saves(order: TrainOrder, folder: Path) -> None:
    """Train, and kill the worker with -9 while it writes a checkpoint that is not its first."""

    async def kill() -> None:
        while True:
            saved = [(path / COMPLETE).exists() for path in folder.glob("checkpoint-*")]
            if set(saved) == {True, False}:
                os.kill(list_workers()[0], signal.SIGKILL)
                return
            await asyncio.sleep(0)

    killing = asyncio.create_task(kill())
    with pytest.raises(BactrianError, match="was killed"):
        await train_recipe(order)
    await killing


async def test_a_stage_that_is_killed_while_it_saves_resumes_at_its_last_whole_checkpoint(
    tmp_path: Path,
) -> None:
    order = order_training(tmp_path, origin="checkpoint", method="lora", steps=12, save_minutes=1e-6)
    folder = tmp_path / "out" / "01-colours" / "checkpoints"
    await kill_while_it_saves(order, folder)
    whole = [int(path.parent.name.split("-")[1]) for path in folder.glob(f"*/{COMPLETE}")]
    seen: list[Mapping[str, Any]] = []
    trained = await train_recipe(order, seen.append)
    began = next(event for event in seen if event["event"] == "began")
    assert began["step"] == max(whole) < 12
    assert next(event["step"] for event in seen if event["event"] == "step") == began["step"] + 1
    assert len(trained.stages) == 3
    assert len(trained.stages[2].manifest["data"]) == 1  # its own data, from the checkpoint
    assert not (trained.stages[1].folder / "checkpoints").exists()


DIGITS = """
name = "digits"
[base]
model = "{folder}/base.gguf"
[training]
steps = 1
[[stages]]
name = "digits"
data = ["{folder}/digits.jsonl"]
"""


async def test_a_training_divides_digits_as_play_does_or_is_refused_by_each_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bactrian.train.worker.gguf_file import write_gguf

    monkeypatch.setenv("BACTRIAN_CACHE", str(tmp_path / "cache"))
    order = order_training(tmp_path, steps=1)
    twelves = [{"role": "user", "content": "12 " * 40}, {"role": "assistant", "content": "Solution: 12."}]
    (tmp_path / "digits.jsonl").write_text(json.dumps({"messages": twelves}), "utf-8")
    with (tmp_path / "colours.jsonl").open("a", encoding="utf-8") as file:  # 12 becomes a token
        file.write(json.dumps({"messages": twelves}) + "\n")
    trained = await train_recipe(order)
    file = trained.stages[1].model / "tokenizer.json"
    tokenizer = json.loads(file.read_text("utf-8"))
    words = tokenizer["pre_tokenizer"]
    digits = {"type": "Digits", "individual_digits": True}
    divided = {"type": "Sequence", "pretokenizers": [digits, words]}
    file.write_text(json.dumps({**tokenizer, "pre_tokenizer": divided}), "utf-8")
    write_gguf(file.parent, tmp_path / "base.gguf", "f16")
    recipe, seen = parse_train_recipe(DIGITS.format(folder=tmp_path)), list[Mapping[str, Any]]()
    await forecast_training(TrainOrder(recipe, tmp_path / "first"), seen.append)
    assert [event["prompts"] for event in seen if event["event"] == "template"] == [1]
    (converted,) = (tmp_path / "cache").glob("transformers-*/model/tokenizer.json")
    right = converted.read_text("utf-8")
    converted.write_text(json.dumps({**json.loads(right), "pre_tokenizer": words}), "utf-8")
    order = TrainOrder(recipe, tmp_path / "second")
    for _ in range(2):
        with pytest.raises(BactrianError, match="would send another text"):
            await train_recipe(order)
    converted.write_text(right, "utf-8")
    assert len((await train_recipe(order)).stages) == 2


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
