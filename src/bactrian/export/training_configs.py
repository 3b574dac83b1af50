"""Configuration entries of training tools for the exported data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast, get_args

from bactrian.errors import InputError
from bactrian.files.json_text import parse_json

Tool = Literal["trl", "axolotl", "llama-factory"]
TOOLS: tuple[Tool, ...] = get_args(Tool)
DATASET_INFO = "dataset_info.json"
"""LLaMA-Factory's list of data sets; other entries in it are kept."""


@dataclass(frozen=True, slots=True)
class DataFile:
    """A part of the data, as a path relative to the configuration."""

    part: str
    path: str


_OPENAI_TAGS = {
    "role_tag": "role",
    "content_tag": "content",
    "user_tag": "user",
    "assistant_tag": "assistant",
    "system_tag": "system",
}
_LLAMA_FACTORY: dict[str, dict[str, Any]] = {
    "messages": {"formatting": "sharegpt", "columns": {"messages": "messages"}, "tags": _OPENAI_TAGS},
    "sharegpt": {"formatting": "sharegpt", "columns": {"messages": "conversations"}},
    "alpaca": {
        "formatting": "alpaca",
        "columns": {"prompt": "instruction", "query": "input", "response": "output"},
    },
}
_AXOLOTL: dict[str, dict[str, Any]] = {
    "messages": {"type": "chat_template", "field_messages": "messages"},
    "sharegpt": {
        "type": "chat_template",
        "field_messages": "conversations",
        "message_property_mappings": {"role": "from", "content": "value"},
    },
    "alpaca": {"type": "alpaca"},
}
_TRL = {"messages": ["messages"], "hf": ["messages"], "preference": ["prompt", "chosen", "rejected"]}
"""Columns that TRL reads; it ignores or rejects others."""
_READS: dict[Tool, Sequence[str]] = {
    "trl": tuple(_TRL),
    "axolotl": tuple(_AXOLOTL),
    "llama-factory": tuple(_LLAMA_FACTORY),
}


def check_tool(tool: Tool, format_name: str) -> None:
    """Raise InputError if ``tool`` does not read the format."""
    if format_name not in _READS[tool]:
        raise InputError(
            f"{tool} does not read {format_name}.",
            where="--for",
            next=f"Formats it reads: {', '.join(_READS[tool])}.",
        )


def write_entry(
    tool: Tool, format_name: str, name: str, files: Sequence[DataFile], present: Path
) -> tuple[str, str]:
    """Return name and text of the configuration file of ``tool``; the content of an existing file ``present`` is kept.

    Raises:
        InputError: the existing file cannot be read.
    """
    if tool == "llama-factory":
        return DATASET_INFO, _dataset_info(format_name, name, files, present)
    if tool == "axolotl":
        return f"{name}.axolotl.yaml", _axolotl(format_name, files)
    return f"{name}.trl.yaml", _trl(format_name, files)


def _dataset_info(format_name: str, name: str, files: Sequence[DataFile], present: Path) -> str:
    known = _known(present)
    for one in files:
        own = name if one.part == "train" else f"{name}_{one.part}"
        known[own] = {"file_name": one.path, **_LLAMA_FACTORY[format_name]}
    return json.dumps(known, ensure_ascii=False, indent=2) + "\n"


def _known(present: Path) -> dict[str, Any]:
    """Return the existing entries."""
    try:
        known: object = parse_json(present.read_bytes()) if present.exists() else {}
    except ValueError:
        known = None
    if not isinstance(known, dict):
        raise InputError(
            "This file is not LLaMA-Factory's list of data sets.",
            where=str(present),
            next="Fix it, or use another --out.",
        )
    return cast("dict[str, Any]", known)


def _axolotl(format_name: str, files: Sequence[DataFile]) -> str:
    sections = {
        "datasets": [one for one in files if one.part == "train"],
        "test_datasets": [one for one in files if one.part != "train"],
    }
    return "".join(
        f"{section}:\n"
        + "".join(
            _item({"path": one.path, "ds_type": "json", "split": "train", **_AXOLOTL[format_name]})
            for one in chosen
        )
        for section, chosen in sections.items()
        if chosen
    )


def _trl(format_name: str, files: Sequence[DataFile]) -> str:
    if format_name == "hf":
        return f"dataset_name: {_scalar(files[0].path)}\ndataset_train_split: train\n"
    train = next(one for one in files if one.part == "train")
    return "datasets:\n" + _item(
        {"path": "json", "data_files": train.path, "split": "train", "columns": _TRL[format_name]}
    )


def _item(values: dict[str, Any]) -> str:
    """Write one item of a YAML list. JSON is valid YAML, which solves quoting and nesting."""
    return "".join(
        f"{'  - ' if number == 0 else '    '}{key}: {_scalar(value)}\n"
        for number, (key, value) in enumerate(values.items())
    )


def _scalar(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
