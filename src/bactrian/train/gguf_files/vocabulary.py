# pyright: basic, reportMissingImports=false
"""The vocabulary of a tokenizer of transformers, as llama.cpp reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gguf import GGUFWriter, TokenType

_LLAMA_3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
_QWEN_2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"


def find_pre_tokenizer(folder: Path) -> str | None:
    """Return llama.cpp's name of the way that text is divided before BPE; None if it is not one of these."""
    raw = _read_tokenizer(folder)
    if raw["model"].get("type") != "BPE" or raw["model"].get("byte_fallback"):
        return None
    given: Any = raw.get("pre_tokenizer") or {}
    steps = given.get("pretokenizers", [given])
    kinds = [step.get("type") for step in steps]
    if kinds == ["ByteLevel"] and steps[0].get("use_regex", True):
        return "gpt-2"
    if kinds == ["Digits", "ByteLevel"] and steps[0].get("individual_digits"):
        return "smollm"
    if kinds == ["Split", "ByteLevel"]:
        pattern = str(steps[0]["pattern"].get("Regex", ""))
        return (
            "llama-bpe" if pattern.startswith(_LLAMA_3) else "qwen2" if pattern.startswith(_QWEN_2) else None
        )
    return None


def add_vocabulary(writer: GGUFWriter, folder: Path, template: str | None = None) -> None:
    """Write tokens, merges, control tokens and the chat template: ``template``, or the model's own."""
    raw = _read_tokenizer(folder)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    names: dict[int, str] = {number: token for token, number in raw["model"]["vocab"].items()}
    kinds = dict.fromkeys(names, TokenType.NORMAL)
    for token in raw["added_tokens"]:
        names[token["id"]] = token["content"]
        kinds[token["id"]] = TokenType.CONTROL if token["special"] else TokenType.USER_DEFINED
    count = config["vocab_size"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(find_pre_tokenizer(folder) or "default")
    writer.add_token_list([names.get(number, f"[PAD{number}]") for number in range(count)])
    writer.add_token_types([kinds.get(number, TokenType.UNUSED) for number in range(count)])
    writer.add_token_merges(
        [one if isinstance(one, str) else " ".join(one) for one in raw["model"]["merges"]]
    )
    for name, add in (
        ("bos_token", writer.add_bos_token_id),
        ("eos_token", writer.add_eos_token_id),
        ("pad_token", writer.add_pad_token_id),
    ):
        known = _find_id(folder, names, name)
        if known is not None:
            add(known)
    writer.add_add_bos_token(_adds_bos(raw))
    own = folder / "chat_template.jinja"
    if template or own.exists():
        writer.add_chat_template(template or own.read_text("utf-8"))


def _adds_bos(raw: dict[str, Any]) -> bool:
    """Return True if the tokenizer puts a start token before each text."""
    return "TemplateProcessing" in json.dumps(raw.get("post_processor") or {})


def _find_id(folder: Path, names: dict[int, str], name: str) -> int | None:
    settings = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    token = settings.get(name)
    text = token.get("content") if isinstance(token, dict) else token
    return next((number for number, one in names.items() if one == text), None)


def _read_tokenizer(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "tokenizer.json").read_text("utf-8"))
