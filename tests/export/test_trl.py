"""TRL's own trainers prepare what we write. Runs where the ``trl`` extra is installed: TRL needs PyTorch."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from bactrian.records.turn import Preference
from tests.helpers.exports import exported
from tests.helpers.runs import session

trl = pytest.importorskip("trl", reason="needs TRL and PyTorch: pip install 'bactrian[trl]'")
transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")
datasets = pytest.importorskip("datasets")
# The tools warn about their own future.
pytestmark = pytest.mark.filterwarnings("ignore")

TEMPLATE = (
    "{% for message in messages %}{{ message['role'] }} "
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}</s>{% endgeneration %}"
    "{% else %}{{ message['content'] }}{% endif %}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant {% endif %}"
)


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, Any]:
    """A tokenizer of one token a byte, a model of a few hundred weights, and where to put what they make."""
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    known = {word: number for number, word in enumerate(["<s>", "</s>", "<pad>", *alphabet])}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(known, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )
    tokenizer.chat_template = TEMPLATE
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = transformers.LlamaConfig(vocab_size=len(known), **shape)
    return {"model": transformers.LlamaForCausalLM(config), "processing_class": tokenizer}


def arguments(folder: Path, **more: Any) -> dict[str, Any]:
    return {"output_dir": str(folder / "made"), "report_to": [], "use_cpu": True, "bf16": False, **more}


@pytest.mark.parametrize("side", ["assistant", "user"])
@pytest.mark.parametrize("form", ["messages", "hf"])
async def test_supervised_training_learns_the_words_of_the_side_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, Any], form: str, side: Any
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    one = session(rounds=2)
    out, _ = await exported(tmp_path, [one], form, "tea", side=side)
    source = [str(out)] if form == "hf" else ["json"]
    more = {} if form == "hf" else {"data_files": str(out)}
    rows = datasets.load_dataset(*source, split="train", cache_dir=str(tmp_path / "cache"), **more)
    settings = trl.SFTConfig(**arguments(tmp_path, max_length=None, assistant_only_loss=True))
    trainer = trl.SFTTrainer(train_dataset=rows, args=settings, **parts)
    (prepared,) = trainer.train_dataset
    learnt = [
        token for token, label in zip(prepared["input_ids"], prepared["labels"], strict=True) if label != -100
    ]
    own = [str(turn.text) for turn in one.turns if turn.speaker == side]
    assert parts["processing_class"].decode(learnt) == "".join(f"{text}</s>" for text in own)


async def test_preference_training_takes_the_pairs(tmp_path: Path, parts: dict[str, Any]) -> None:
    choice = Preference(2, "assistant", ("Solution: A dial.", "No."), 0, "critic")
    out, _ = await exported(tmp_path, [session()], "preference", "tea.jsonl", choices=lambda _: [choice])
    rows = datasets.load_dataset(
        "json", data_files=str(out), split="train", cache_dir=str(tmp_path / "cache")
    )
    settings = trl.DPOConfig(**arguments(tmp_path, max_length=None))
    reference = deepcopy(parts["model"])
    trainer = trl.DPOTrainer(train_dataset=rows, args=settings, ref_model=reference, **parts)
    (prepared,) = trainer.train_dataset
    decoded = {
        name: parts["processing_class"].decode(prepared[name])
        for name in ("prompt_ids", "chosen_ids", "rejected_ids")
    }
    assert decoded["prompt_ids"].endswith("assistant ")
    assert decoded["chosen_ids"].startswith("Solution: A dial.</s>")
    assert decoded["rejected_ids"].startswith("No.</s>")


async def test_the_configuration_leads_trl_to_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = await exported(tmp_path, [session()], "messages", "tea.jsonl", tool="trl")
    monkeypatch.chdir(tmp_path)
    parser = trl.TrlParser([trl.DatasetMixtureConfig])
    (mixture,) = parser.parse_args_and_config(["--config", "tea.trl.yaml"])
    found = trl.get_dataset(mixture)
    assert found["train"].column_names == ["messages"]
    assert len(found["train"]) == 1
    assert out.exists()
