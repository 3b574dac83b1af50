# pyright: basic, reportMissingImports=false
"""Opens the base model, writes all data as tokens in Arrow files, and probes the training by three steps."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, Features, Value
from datasets import Sequence as ArrowSequence
from datasets.arrow_writer import ArrowWriter
from torch.nn.utils.rnn import pad_sequence

from bactrian.errors import BactrianError, InputError
from bactrian.train.training_data import Conversation, read_prepared
from bactrian.train.training_examples import IGNORED, CutCounts, Cutter, Example, cut_conversation, is_empty
from bactrian.train.training_folder import (
    StageFolder,
    hash_weights,
    list_stage_folders,
    read_plan,
    weigh_model,
    write_json,
)
from bactrian.train.training_recipe import Training, TrainRecipe
from bactrian.train.worker.base_model import OpenBase, open_base
from bactrian.train.worker.machine import Machine, find_machine, measure_peak
from bactrian.train.worker.model_files import add_adapters, is_encoder_decoder, load_model
from bactrian.train.worker.tokenizer import (
    Seq2SeqCutter,
    hash_template,
    make_cutter,
    open_tokenizer,
)
from bactrian.train.worker.worker_events import Emit

_FEATURES = Features({"input_ids": ArrowSequence(Value("int32")), "labels": ArrowSequence(Value("int32"))})
PARTS = ("train", "held-out")
_PREVIEWED = 50
"""Examples that the preview shows."""


def encode_stage(
    stage: StageFolder, cutter: Cutter | Seq2SeqCutter, tokenizer: Any, training: Training
) -> dict[str, Any]:
    """Write the tokens of a stage's data, and a preview for people. Return the numbers for its manifest.

    Raises:
        InputError: no example is left, too many are lost, or nothing in one is learned.
    """
    numbers: dict[str, Any] = {}
    for part in PARTS:
        source = stage.data / f"{part}.jsonl"
        counts = CutCounts()
        preview: list[Example] = []
        conversations = read_prepared(source)
        totals = _write(
            stage.data / f"{part}.arrow", _cut(conversations, cutter, training.max_length, counts, preview)
        )
        counts.check(training.lost_at_most, str(source))
        if part == "train":
            if not totals["learned_tokens"]:
                empty = f": {counts.empty:,} of {counts.pairs:,} replies are empty" if counts.empty else ""
                raise InputError(
                    f"The stage {stage.name} has no example in which anything is learned{empty}.",
                    where=str(source),
                    next="Change its data, its filters, its side or max_length, and use another --out.",
                )
            (stage.data / "preview.txt").write_text(_show(preview, tokenizer), "utf-8")
        numbers[part] = {
            **totals,
            "conversations": counts.conversations,
            "pairs": counts.pairs,
            "split": counts.split,
            "truncated_pairs": counts.truncated,
            "empty_replies": counts.empty,
            "lost_pairs": len(counts.lost),
            "lost": counts.lost[:20],
        }
    return numbers


def load_part(stage: StageFolder, part: str) -> Dataset:
    """Open the tokens of a part of a stage's data."""
    return Dataset.from_file(str(stage.data / f"{part}.arrow"))


def _cut(
    conversations: Iterable[Conversation],
    cutter: Cutter | Seq2SeqCutter,
    max_length: int,
    counts: CutCounts,
    preview: list[Example],
) -> Iterator[Example]:
    for conversation in conversations:
        messages = conversation.messages
        examples = (
            cut_conversation(conversation.id, messages, cutter, max_length, counts)
            if isinstance(cutter, Cutter)
            else cutter.cut_replies(messages, max_length, counts)
        )
        for example in examples:
            if len(preview) < _PREVIEWED:
                preview.append(example)
            yield example


def _write(path: Path, examples: Iterable[Example]) -> dict[str, int]:
    totals = {"examples": 0, "tokens": 0, "learned_tokens": 0, "longest": 0}
    with ArrowWriter(features=_FEATURES, path=str(path)) as writer:
        for example in examples:
            writer.write({"input_ids": example.ids, "labels": example.labels})
            totals["examples"] += 1
            totals["tokens"] += len(example.ids)
            totals["learned_tokens"] += example.learned
            totals["longest"] = max(totals["longest"], len(example.ids))
        writer.finalize()
    return totals


def _show(examples: Iterable[Example], tokenizer: Any) -> str:
    """Return examples as text, with ⟦ and ⟧ around what is learned."""
    shown: list[str] = []
    for number, example in enumerate(examples, start=1):
        runs: list[tuple[bool, list[int]]] = []
        if len(example.ids) != len(example.labels):  # a sequence-to-sequence model
            text = f"{tokenizer.decode(example.ids)}⟦{tokenizer.decode(example.labels)}⟧"
            shown.append(f"=== example {number} ===\n{text}\n")
            continue
        for token, label in zip(example.ids, example.labels, strict=True):
            learned = label != IGNORED
            if not runs or runs[-1][0] != learned:
                runs.append((learned, []))
            runs[-1][1].append(token)
        text = "".join(
            f"⟦{tokenizer.decode(ids)}⟧" if learned else tokenizer.decode(ids) for learned, ids in runs
        )
        shown.append(
            f"=== example {number}: {len(example.ids)} tokens, {example.learned} learned ===\n{text}\n"
        )
    return "What is between ⟦ and ⟧ is learned, the stop token included.\n\n" + "\n".join(shown)


def probe_training(folder: Path, training: Training, machine: Machine, data: Any) -> dict[str, Any]:
    """Train three steps: one on the longest examples, for the memory, and two on typical ones, for the speed.

    Raises:
        BactrianError: there is too little memory, or the loss is not a number.
    """
    begun = time.perf_counter()
    model = add_adapters(
        load_model(folder, training, machine), training, encoder_decoder=is_encoder_decoder(folder)
    )
    if training.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    model = model.to(machine.device).train()
    load_seconds = time.perf_counter() - begun
    lengths = [len(ids) for ids in data["input_ids"]]
    try:
        rate = _measure_rate(model, data, choose_examples(lengths, training.held_at_once), machine)
    except torch.OutOfMemoryError as error:
        raise BactrianError(
            f"The GPU has too little memory for {training.held_at_once} examples of {max(lengths):,} tokens.",
            where=str(folder),
            next="Add --set per_device=1 (the batch stays) or --set checkpointing=true, or use --set method=lora.",
        ) from error
    if rate is None:
        raise BactrianError(
            "The loss is not a number in the first step.",
            where=str(folder),
            next='Use precision = "fp32", or another base model.',
        )
    return {
        "tokens_per_second": rate,
        "load_seconds": load_seconds,
        "peak_bytes": measure_peak(),
        "parameters": sum(weight.numel() for weight in model.parameters()),
        "trained_parameters": sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        "machine": machine.name,
        "device": machine.device,
        "bf16": machine.bf16,
    }


def choose_examples(lengths: Sequence[int], size: int) -> list[list[int]]:
    """Return the positions of ``size`` examples for each of three steps: the longest, and twice typical ones."""
    longest = sorted(range(len(lengths)), key=lambda index: -lengths[index])[:size]
    stride = max(1, len(lengths) // (2 * size))
    typical = [
        [(step * size + position) * stride % len(lengths) for position in range(size)] for step in range(2)
    ]
    return [longest, *typical]


def _measure_rate(model: Any, data: Any, steps: list[list[int]], machine: Machine) -> float | None:
    """Return the tokens a second of the steps after the first; None if a loss is not a number."""
    optimizer = torch.optim.AdamW((weight for weight in model.parameters() if weight.requires_grad), lr=1e-8)
    tokens, seconds = 0, 0.0
    for number, indices in enumerate(steps):
        rows = [data[index] for index in indices]
        begun = time.perf_counter()
        if not math.isfinite(_step(model, optimizer, rows, machine)):
            return None
        if number:
            tokens += sum(len(row["input_ids"]) for row in rows)
            seconds += time.perf_counter() - begun
    return tokens / seconds


def _step(model: Any, optimizer: Any, rows: list[dict[str, Any]], machine: Machine) -> float:
    def pad(values: list[list[int]], padding: int) -> torch.Tensor:
        return pad_sequence(list(map(torch.tensor, values)), batch_first=True, padding_value=padding)

    inputs = {
        "input_ids": pad([row["input_ids"] for row in rows], 0),
        "labels": pad([row["labels"] for row in rows], IGNORED),
        "attention_mask": pad([[1] * len(row["input_ids"]) for row in rows], 0),
    }
    with torch.autocast(machine.device, torch.bfloat16, enabled=machine.bf16):
        loss = model(**{name: values.to(machine.device) for name, values in inputs.items()}).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss)


PREPARED = "prepared.json"
_PROMPTS_OF_A_STAGE = 5


def prepare(root: Path, emit: Emit, import_seconds: float = 0.0) -> None:
    """Write the base's manifest, the tokens of each stage, and the numbers for a forecast.

    ``import_seconds`` is how long the libraries took to be imported: each stage imports them again.

    Raises:
        BactrianError: the model or the data cannot be used for training.
    """
    recipe = TrainRecipe.model_validate(read_plan(root)["recipe"])
    folders = list_stage_folders(root, [part.name for part in recipe.stages])
    machine = find_machine(recipe.training)
    folders[0].path.mkdir(exist_ok=True)
    emit("opening", model=recipe.base.model or "a new model")
    base = open_base(recipe, folders[0], _iterate_texts(folders[1:]))
    tokenizer = open_tokenizer(str(base.model), recipe.base)
    cutter: Any = (
        Seq2SeqCutter(tokenizer)
        if is_encoder_decoder(base.model)
        else make_cutter(tokenizer, str(base.model))
    )
    described = _describe(base, folders[0], tokenizer)
    _check_same(described, folders[0], str(base.source or base.model))
    stages: list[dict[str, Any]] = []
    for folder in folders[1:]:
        emit("encoding", stage=folder.name)
        stages.append(encode_stage(folder, cutter, tokenizer, recipe.training))
        emit(
            "encoded",
            stage=folder.name,
            empty_replies=sum(part["empty_replies"] for part in stages[-1].values()),
        )
    if base.gguf is not None:
        _write_prompts(folders[0].path, folders[1:], cutter)
    emit("probing")
    probe = (
        None
        if recipe.training.devices > 1
        else probe_training(base.model, recipe.training, machine, load_part(folders[-1], "train"))
    )
    write_json(folders[0].path / "manifest.json", described)
    if probe is not None:
        probe["start_seconds"] = import_seconds + probe.pop("load_seconds")
    write_json(root / PREPARED, {"stages": stages, "probe": probe, "weights": weigh_model(base.model)})


def _check_same(described: dict[str, Any], folder: StageFolder, where: str) -> None:
    """Raise InputError if the training was begun with another base model, or with another template."""
    if not folder.is_complete:
        return
    before = folder.read_manifest()
    if (before["base"]["sha256"], before["template"]) != (described["base"]["sha256"], described["template"]):
        raise InputError(
            "This is another base model than the one that the training was begun with.",
            where=where,
            next="Put the former one back, or use another --out: what is trained so far is kept.",
        )


def _write_prompts(path: Path, folders: list[StageFolder], cutter: Cutter) -> None:
    """Write the first prompts of some conversations as they are trained on, to compare with what ``play`` sends."""
    rows: list[dict[str, Any]] = []
    for folder in folders:
        for conversation in islice(read_prepared(folder.data / "train.jsonl"), _PROMPTS_OF_A_STAGE):
            messages = list(conversation.messages)
            learned = (
                index
                for index, message in enumerate(messages)
                if message["role"] == "assistant" and not is_empty(message)
            )
            if (first := next(learned, None)) is not None:
                asked = cutter.render_pieces(messages[: first + 1])[0].text
                rows.append({"messages": messages[:first], "tokens": cutter.encode_prompt(asked)})
    (path / "prompts.json").write_text(json.dumps(rows), "utf-8")


def _iterate_texts(folders: list[StageFolder]) -> Iterator[str]:
    for folder in folders:
        for conversation in read_prepared(folder.data / "train.jsonl"):
            for message in conversation.messages:
                yield message["content"]


def _describe(base: OpenBase, folder: StageFolder, tokenizer: Any) -> dict[str, Any]:
    def locate(path: Path) -> str:
        return path.relative_to(folder.path).as_posix() if path.is_relative_to(folder.path) else str(path)

    return {
        "number": 0,
        "name": "base",
        "base": {"name": base.name, "sha256": base.sha256, "license": base.license},
        "model": locate(base.model),
        "weights": hash_weights(base.model),
        "gguf": locate(base.gguf) if base.gguf else None,
        "gguf_source": str(base.source) if base.source else None,
        "template": {"sha256": hash_template(tokenizer) if tokenizer.chat_template else None},
    }
