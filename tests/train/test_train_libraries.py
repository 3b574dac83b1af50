# pyright: basic, reportMissingImports=false
"""What TRL, accelerate and transformers make of a recipe. Runs where the extra ``train`` is installed."""

from __future__ import annotations

import gc
import json
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import BactrianError, InputError
from bactrian.models.model import Request
from bactrian.models.open import ModelOptions, open_model
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling
from bactrian.train.training import EXTRA, TrainOrder, find_launcher, train_recipe
from bactrian.train.training_folder import list_stage_folders
from bactrian.train.training_recipe import list_templates, load_train_recipe, read_template
from tests.helpers.tiny_models import make_t5

for name in EXTRA:
    pytest.importorskip(name, reason="needs PyTorch: pip install 'bactrian[train]'")
# The libraries warn about their own future.
pytestmark = [pytest.mark.soak, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def collected_garbage() -> Generator[None]:
    """Collect what the libraries leave open within the test that ignores their warnings, not at the end of all."""
    yield
    gc.collect()


def write_chat(path: Path) -> Path:
    rows = [
        [{"role": "user", "content": f"Name {n}."}, {"role": "assistant", "content": f"Solution: {n}."}]
        for n in range(8)
    ]
    path.write_text("".join(json.dumps({"messages": row}) + "\n" for row in rows), "utf-8")
    return path


def test_the_file_of_a_stage_is_checked_by_prompts_that_are_longer_than_usual_too() -> None:
    from bactrian.train.worker.train_stage import IGNORED, cut_prompt

    row = {"input_ids": list(range(900)), "labels": [IGNORED] * 700 + list(range(700, 900))}
    assert [len(cut_prompt(row, number)) for number in (0, 5)] == [700, 700]
    row["labels"][100:110] = range(100, 110)
    assert [len(cut_prompt(row, number)) for number in (0, 1)] == [100, 107]
    assert cut_prompt({**row, "labels": [IGNORED] * 900}, 0) == []


def test_accelerate_and_trl_read_the_settings_of_camel_7b(tmp_path: Path) -> None:
    from accelerate.commands.config.config_args import load_config_from_file
    from trl.trainer.sft_config import SFTConfig

    from bactrian.train.worker.model_files import Machine
    from bactrian.train.worker.train_stage import make_arguments

    training = load_train_recipe("camel-7b").training
    _, path = find_launcher(training, tmp_path)
    read: Any = load_config_from_file(path)
    assert (read.num_processes, read.mixed_precision) == (4, "bf16")
    assert read.fsdp_config["fsdp_auto_wrap_policy"] == "TRANSFORMER_BASED_WRAP"
    arguments = make_arguments(training, Machine("cpu", True, "here"), tmp_path, 100, evaluates=True)
    config = SFTConfig(**arguments, max_length=None)
    assert (config.per_device_train_batch_size, config.gradient_accumulation_steps) == (4, 8)
    assert (config.learning_rate, config.warmup_steps, config.bf16) == (2e-5, 4, True)
    assert str(config.lr_scheduler_type).endswith("COSINE")


def test_the_launcher_of_accelerate_starts_camel_7b_on_four_gpus_that_share_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from accelerate import FullyShardedDataParallelPlugin
    from accelerate.commands.launch import (
        _validate_launch_command,  # pyright: ignore[reportPrivateUsage]
        launch_command_parser,
        prepare_multi_gpu_env,
    )

    launcher = find_launcher(load_train_recipe("camel-7b").training, tmp_path)
    parsed = launch_command_parser().parse_args(
        [*launcher, "-m", "bactrian.train.worker", "stage", "out", "1"]
    )
    arguments, _, _ = _validate_launch_command(parsed)
    assert (arguments.num_processes, arguments.use_fsdp) == (4, True)
    assert (arguments.training_script, arguments.training_script_args) == (
        "bactrian.train.worker",
        ["stage", "out", "1"],
    )
    for name, value in prepare_multi_gpu_env(arguments).items():
        monkeypatch.setenv(name, value)
    plugin: Any = FullyShardedDataParallelPlugin()
    assert (plugin.fsdp_version, plugin.reshard_after_forward) == (2, True)


def test_qlora_on_a_machine_without_a_gpu_is_refused() -> None:
    import torch

    from bactrian.train.worker.model_files import find_machine

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError, match="on a GPU"):
        find_machine(load_train_recipe("small", ["method=qlora"]).training)
    with pytest.raises(InputError, match="needs 4 GPUs"):
        find_machine(load_train_recipe("camel-7b").training)


def test_qlora_merges_its_adapters_into_the_weights_before_they_were_quantised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("bitsandbytes", reason="needs bitsandbytes")
    # The worker switches telemetry off by the environment, before it imports the library.
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
    import torch
    from datasets import Dataset
    from safetensors.torch import load_file

    from bactrian.train.training_recipe import NewModel
    from bactrian.train.worker.model_files import Machine, ProcessClock, save_trained_model
    from bactrian.train.worker.prepare_training import make_new_model, open_tokenizer
    from bactrian.train.worker.train_stage import StageWatch, build_trainer

    recipe = load_train_recipe("small", ["method=qlora", "batch=1", "per_device=1", "evaluations=0"])
    start = tmp_path / "start"
    make_new_model(NewModel(width=64, layers=1, heads=2, vocabulary=300), ["one two three"], 1, start)
    tokenizer = open_tokenizer(str(start), recipe.base)
    data = Dataset.from_list([{"input_ids": [5, 6, 7], "labels": [-100, 6, 7]}])
    machine = Machine("cpu", False, "here")
    watch = StageWatch(recipe.training, lambda *_, **__: None, 3.0, ProcessClock())
    trainer = build_trainer(start, tokenizer, recipe.training, machine, (data, data), tmp_path, 3, watch)
    trainer.train()
    save_trained_model(trainer, tokenizer, tmp_path, start)
    before, after = (
        load_file(start / "model.safetensors"),
        load_file(tmp_path / "model" / "model.safetensors"),
    )
    adapter = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    name = "model.layers.0.self_attn.q_proj"
    first, second = (adapter[f"base_model.model.{name}.lora_{part}.weight"].float() for part in "AB")
    product = second @ first
    lora = recipe.training.lora
    expected = before[f"{name}.weight"] + product * (lora.alpha / lora.rank)
    assert product.abs().max() > 0
    assert torch.allclose(after[f"{name}.weight"], expected, atol=1e-6)
    assert before.keys() == after.keys()


@pytest.mark.parametrize(
    "logs",
    [{"loss": float("nan")}, {"eval_loss": float("inf")}, {"loss": 1.0, "grad_norm": float("nan")}],
    ids=["a step", "an evaluation", "a gradient"],
)
def test_a_loss_that_is_not_a_number_ends_the_stage(logs: dict[str, float], tmp_path: Path) -> None:
    from types import SimpleNamespace

    from bactrian.train.worker.model_files import ProcessClock
    from bactrian.train.worker.train_stage import StageWatch

    before = signal.getsignal(signal.SIGTERM)
    try:
        watch = StageWatch(load_train_recipe("small").training, print, 1.0, ProcessClock())
    finally:
        signal.signal(signal.SIGTERM, before)
    with pytest.raises(BactrianError, match="not a number at step 7"):
        arguments = SimpleNamespace(output_dir=tmp_path)
        watch.on_log(arguments, SimpleNamespace(global_step=7, is_world_process_zero=True), None, logs)


@pytest.mark.parametrize("name", list_templates())
def test_a_built_in_chat_template_writes_what_is_learned_after_what_is_sent(name: str) -> None:
    import jinja2

    from bactrian.train.training_examples import Cutter

    compiled = jinja2.Environment(trim_blocks=True, lstrip_blocks=True).from_string(read_template(name))

    def render(messages: Any, add: bool) -> str:
        return compiled.render(messages=messages, add_generation_prompt=add, eos_token="</s>")

    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "And?"},
        {"role": "assistant", "content": "So."},
    ]
    stop = "<|im_end|>" if name == "chatml" else "</s>"
    pieces = Cutter(render, lambda text: list(map(ord, text)), (stop,)).render_pieces(messages)
    assert [piece.text.strip() for piece in pieces if piece.learned] == [f"Ho{stop}", f"So.{stop}"]


def open_llama_like() -> Any:
    """A tokenizer of LLaMA's kind: it puts a token before each text, and a space."""
    from tokenizers import Tokenizer, models, normalizers, processors
    from transformers import PreTrainedTokenizerFast

    words = ["<unk>", "<s>", "</s>", "\n", *"▁:HUSERAITNacehilmst.?"]
    raw = Tokenizer(
        models.BPE({word: n for n, word in enumerate(dict.fromkeys(words))}, [], unk_token="<unk>")
    )
    raw.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="</s>")
    tokenizer.chat_template = read_template("vicuna")
    return tokenizer


def test_a_reply_of_llama_begins_with_one_space_and_its_prompt_with_the_start_token() -> None:
    from bactrian.train.training_examples import IGNORED
    from bactrian.train.worker.prepare_training import make_cutter

    tokenizer = open_llama_like()
    messages = [
        {"role": "user", "content": "Hi?"},
        {"role": "assistant", "content": "A camel."},
        {"role": "user", "content": "Is it?"},
        {"role": "assistant", "content": "It is."},
    ]
    made = make_cutter(tokenizer, "here").encode_pieces(messages)
    told = "USER: Hi? ASSISTANT: A camel.</s>USER: Is it? ASSISTANT: It is.</s>"
    assert made.ids == tokenizer.encode(told)
    learned = [token for token, label in zip(made.ids, made.labels, strict=True) if label != IGNORED]
    assert "".join(tokenizer.convert_ids_to_tokens(learned)) == "▁A▁camel.</s>▁It▁is.</s>"


async def test_a_sequence_to_sequence_model_learns_replies_from_what_was_said(tmp_path: Path) -> None:
    settings = (f"base.model={make_t5(tmp_path / 't5')}", "steps=2", "batch=4", "held_out=0")
    order = TrainOrder("small", tmp_path / "out", {"": [write_chat(tmp_path / "a.jsonl")]}, settings)
    (base, stage) = (await train_recipe(order)).stages
    assert (base.gguf, stage.gguf) == (None, None)
    assert (stage.model / "config.json").exists()
    preview = (tmp_path / "out" / "data" / "01-conversations" / "preview.txt").read_text("utf-8")
    assert "User: Name 0.\n\nAssistant:</s>⟦Solution: 0.</s>⟧" in preview


async def test_a_sequence_to_sequence_model_is_made_from_nothing_and_answers(tmp_path: Path) -> None:
    settings = ("base.new={kind='t5', width=16, vocabulary=300}", "steps=2", "batch=4", "held_out=0")
    order = TrainOrder("flan-t5", tmp_path / "out", {"": [write_chat(tmp_path / "a.jsonl")]}, settings)
    (base, stage) = (await train_recipe(order)).stages
    assert (base.gguf, stage.gguf) == (None, None)
    model = open_model(f"hf:{stage.model}", ModelOptions())
    request = Request((Message("user", Text("Name 0.")),), sampling=Sampling(0.0, max_tokens=4))
    assert (await model.reply(request)).usage.completion in range(1, 5)


def test_the_loss_of_a_sequence_to_sequence_model_is_that_of_a_step_however_much_fits_into_memory(
    tmp_path: Path,
) -> None:
    from datasets import Dataset
    from transformers import AutoTokenizer

    from bactrian.train.worker.model_files import Machine, ProcessClock
    from bactrian.train.worker.train_stage import StageWatch, build_trainer

    folder = make_t5(tmp_path / "t5")
    data = Dataset.from_list(
        [{"input_ids": [9] * (2 + n), "labels": [5 + n] * (1 + 2 * n) + [1]} for n in range(4)]
    )

    def train_a_step(per_device: int) -> dict[str, float]:
        settings = ["method=full", "batch=4", f"per_device={per_device}", "precision=fp32", "evaluations=1"]
        training = load_train_recipe("small", settings).training
        watch = StageWatch(training, lambda *_, **__: None, 1.0, ProcessClock())
        machine, tokenizer = Machine("cpu", False, "here"), AutoTokenizer.from_pretrained(folder)
        trainer = build_trainer(folder, tokenizer, training, machine, (data, data), tmp_path, 1, watch)
        trainer.train()
        logged = {name: value for entry in trainer.state.log_history for name, value in entry.items()}
        return {name: logged[name] for name in ("loss", "grad_norm")}

    before = signal.getsignal(signal.SIGTERM)
    try:
        assert train_a_step(1) == pytest.approx(train_a_step(4), rel=1e-3)
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("config.json", "it has no config.json"),
        ("tokenizer.json", "tokenizer cannot be read"),
        ("model.safetensors", "The model cannot be loaded"),
    ],
)
def test_a_base_model_of_which_a_file_is_missing_or_cut_off_is_refused(
    fault: str, message: str, tmp_path: Path
) -> None:
    from bactrian.train.training_recipe import Base, NewModel, Training
    from bactrian.train.worker.model_files import Machine, load_model
    from bactrian.train.worker.prepare_training import make_new_model, open_base, open_tokenizer

    make_new_model(NewModel(), ["one two three"], 0, tmp_path / "base")
    if fault == "model.safetensors":
        whole = (tmp_path / "base" / fault).read_bytes()
        (tmp_path / "base" / fault).write_bytes(whole[: len(whole) // 2])
    else:
        (tmp_path / "base" / fault).unlink()
    base = Base(model=str(tmp_path / "base"))
    with pytest.raises(InputError, match=message):
        if fault == "tokenizer.json":
            open_tokenizer(str(tmp_path / "base"), base)
        elif fault == "config.json":
            recipe = load_train_recipe("small", [f"base.model={tmp_path / 'base'}"])
            open_base(recipe, list_stage_folders(tmp_path, [])[0], [])
        else:
            load_model(tmp_path / "base", Training(), Machine("cpu", False, "here"))
