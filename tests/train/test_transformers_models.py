# pyright: basic, reportMissingImports=false
"""Folders of transformers weights answer as `hf:FOLDER`. Runs where the extra ``train`` is installed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.errors import BactrianError, ContextFull, InputError
from bactrian.models.local.local_model import identify_weights
from bactrian.models.model import Request
from bactrian.models.open import ModelOptions, open_model
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling
from bactrian.train.training import EXTRA
from tests.helpers.tiny_models import make_t5

for name in EXTRA:
    pytest.importorskip(name, reason="needs PyTorch: pip install 'bactrian[train]'")
pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore")]


def make_llama(folder: Path) -> Path:
    """A language model of a few thousand weights with a chat template."""
    from bactrian.train.training_recipe import NewModel
    from bactrian.train.worker.prepare_training import make_new_model

    make_new_model(NewModel(width=64, layers=1, heads=2, vocabulary=300), ["one two three"], 1, folder)
    return folder


MAKERS = pytest.mark.parametrize("make", [make_llama, make_t5])


def ask(text: str, tokens: int = 8, **sampling: object) -> Request:
    messages = (Message("system", Text("You answer.")), Message("user", Text(text)))
    return Request(messages=messages, sampling=Sampling(max_tokens=tokens, **sampling))  # type: ignore[arg-type]


@MAKERS
async def test_a_folder_answers_and_a_seed_repeats_its_answer(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    model = open_model(f"hf:{make(tmp_path / 'model')}", ModelOptions())
    first, second, other = [await model.reply(ask("Hi", temperature=1.0, seed=seed)) for seed in (1, 1, 2)]
    assert first.text == second.text != other.text
    assert 0 < first.usage.completion <= 8
    assert first.usage.prompt > 5
    await model.close()


@MAKERS
async def test_what_is_shown_while_it_is_computed_is_the_reply(make, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    from dataclasses import replace

    model = open_model(f"hf:{make(tmp_path / 'model')}", ModelOptions())
    shown: list[str] = []
    reply = await model.reply(replace(ask("Hi", 12, temperature=0.0), on_text=shown.append))
    await asyncio.sleep(0)
    assert "".join(shown).strip() == reply.text.strip()


async def test_a_reply_that_is_cancelled_ends_before_the_next_begins(tmp_path: Path) -> None:
    model = open_model(f"hf:{make_t5(tmp_path / 'model')}", ModelOptions())
    await model.reply(ask("Hi", 1))
    task = asyncio.create_task(model.reply(ask("Hi", 4000, temperature=1.0)))
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await model.reply(ask("Hi", 1))).usage.completion == 1


async def test_a_conversation_that_is_too_long_is_refused(tmp_path: Path) -> None:
    for make in (make_llama, make_t5):
        model = open_model(f"hf:{make(tmp_path / make.__name__)}", ModelOptions())
        with pytest.raises(ContextFull):
            await model.reply(ask("long " * 6000))


@pytest.mark.parametrize("missing", ["config.json", "tokenizer_config.json", "model.safetensors"])
def test_a_folder_without_its_files_is_refused_before_anything_is_loaded(
    missing: str, tmp_path: Path
) -> None:
    (make_t5(tmp_path / "model") / missing).unlink()
    with pytest.raises(InputError, match="no folder of a transformers model"):
        open_model(f"hf:{tmp_path / 'model'}", ModelOptions())


async def test_weights_that_are_cut_off_are_refused_with_a_sentence(tmp_path: Path) -> None:
    folder = make_t5(tmp_path / "model")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BactrianError, match="The model cannot be loaded"):
        await open_model(f"hf:{folder}", ModelOptions()).reply(ask("Hi"))


def test_other_weights_in_the_folder_are_another_model(tmp_path: Path) -> None:
    name = f"hf:{make_t5(tmp_path / 'model')}"
    before = identify_weights(name)
    make_t5(tmp_path / "model")
    assert before is not None
    assert identify_weights(name) != before


def test_two_folders_play_together_and_the_run_resumes(tmp_path: Path) -> None:
    llama, t5 = f"hf:{make_llama(tmp_path / 'llama')}", f"hf:{make_t5(tmp_path / 't5')}"
    options = {
        "models": {"user": t5},
        "specify": False,
        "run": tmp_path / "r.db",
        "parameters": {"max_tokens": 8},
    }
    first = bt.play("Plan a garden", model=llama, max_messages=2, **options)  # type: ignore[arg-type]
    more = bt.play("Plan a garden", model=llama, max_messages=4, **options)  # type: ignore[arg-type]
    assert [turn.text for turn in more.turns[:2]] == [turn.text for turn in first.turns]
    assert len(more.turns) >= len(first.turns)
