# pyright: basic, reportMissingImports=false
"""Opens the base model, writes all data as tokens, and probes the training."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from bactrian.errors import InputError
from bactrian.train.data.conversation import read_prepared
from bactrian.train.examples import Cutter, is_empty
from bactrian.train.folder import StageFolder, hash_weights, list_stage_folders, read_plan, write_json
from bactrian.train.recipe import TrainRecipe
from bactrian.train.worker.encode import encode_stage, load_part
from bactrian.train.worker.events import Emit
from bactrian.train.worker.machine import find_machine
from bactrian.train.worker.models.base import OpenBase, open_base
from bactrian.train.worker.models.load import is_encoder_decoder
from bactrian.train.worker.models.seq2seq import make_seq2seq_cutter, open_seq2seq_tokenizer
from bactrian.train.worker.models.tokens import hash_template, make_cutter, open_tokenizer
from bactrian.train.worker.probe import probe_training

PREPARED = "prepared.json"
_PROMPTS_OF_A_STAGE = 5


def prepare(root: Path, emit: Emit, import_seconds: float = 0.0) -> None:
    """Write the base's manifest, the tokens of each stage, and the numbers for a forecast.

    ``import_seconds`` is how long the libraries took to be imported: each stage imports them again.

    Raises:
        BactrianError: the model or the data cannot be used for training.
    """
    recipe = TrainRecipe.model_validate(read_plan(root)["recipe"])
    folders = list_stage_folders(root, [one.name for one in recipe.stages])
    machine = find_machine(recipe.training)
    folders[0].path.mkdir(exist_ok=True)
    emit("opening", model=recipe.base.model or "a new model")
    base = open_base(recipe, folders[0], _iterate_texts(folders[1:]))
    if is_encoder_decoder(base.model):
        tokenizer = open_seq2seq_tokenizer(str(base.model))
        cutter: Any = make_seq2seq_cutter(tokenizer)
    else:
        tokenizer = open_tokenizer(str(base.model), recipe.base)
        cutter = make_cutter(tokenizer, str(base.model))
    described = _describe(base, folders[0], tokenizer)
    _check_same(described, folders[0], str(base.source or base.model))
    stages: list[dict[str, Any]] = []
    for folder in folders[1:]:
        emit("encoding", stage=folder.name)
        stages.append(encode_stage(folder, cutter, tokenizer, recipe.training))
        emit(
            "encoded",
            stage=folder.name,
            empty_replies=sum(one["empty_replies"] for one in stages[-1].values()),
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
    write_json(root / PREPARED, {"stages": stages, "probe": probe, "weights": _weigh(base.model)})


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
        for one in islice(read_prepared(folder.data / "train.jsonl"), _PROMPTS_OF_A_STAGE):
            said = list(one.messages)
            learned = (
                place for place, each in enumerate(said) if each["role"] == "assistant" and not is_empty(each)
            )
            if (first := next(learned, None)) is not None:
                asked = cutter.render_pieces(said[: first + 1])[0].text
                rows.append({"messages": said[:first], "tokens": cutter.encode_prompt(asked)})
    (path / "prompts.json").write_text(json.dumps(rows), "utf-8")


def _iterate_texts(folders: list[StageFolder]) -> Iterator[str]:
    for folder in folders:
        for one in read_prepared(folder.data / "train.jsonl"):
            for said in one.messages:
                yield said["content"]


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


def _weigh(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))
