# pyright: basic, reportMissingImports=false
"""Reads and writes models as GGUF: Llama's architecture, with byte-level BPE."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType, GGUFWriter, LlamaFileType, TokenType, quants
from safetensors import safe_open

from bactrian.errors import InputError


def read_metadata(path: Path) -> dict[str, Any]:
    """Return the metadata by key. Raises InputError if the file is not GGUF."""
    try:
        reader = GGUFReader(path)
    except (ValueError, IndexError, OSError) as error:
        raise InputError(
            "This is not a readable GGUF file.", where=str(path), next="Download it again, or check the path."
        ) from error
    return {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}


_LLAMA_3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
_QWEN_2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"


def find_pre_tokenizer(folder: Path) -> str | None:
    """Return llama.cpp's name of the way that text is divided before BPE; None if it is not one of these."""
    raw = _read_tokenizer(folder)
    if raw["model"].get("type") != "BPE" or raw["model"].get("byte_fallback"):
        return None
    written: Any = raw.get("pre_tokenizer") or {}
    steps = written.get("pretokenizers", [written])
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
        [merge if isinstance(merge, str) else " ".join(merge) for merge in raw["model"]["merges"]]
    )
    for name, add in (
        ("bos_token", writer.add_bos_token_id),
        ("eos_token", writer.add_eos_token_id),
        ("pad_token", writer.add_pad_token_id),
    ):
        known = _find_id(folder, names, name)
        if known is not None:
            add(known)
    # Whether the tokenizer puts a start token before each text.
    writer.add_add_bos_token("TemplateProcessing" in json.dumps(raw.get("post_processor") or {}))
    in_folder = folder / "chat_template.jinja"
    if template or in_folder.exists():
        writer.add_chat_template(template or in_folder.read_text("utf-8"))


def _find_id(folder: Path, names: dict[int, str], name: str) -> int | None:
    token = json.loads((folder / "tokenizer_config.json").read_text("utf-8")).get(name)
    text = token.get("content") if isinstance(token, dict) else token
    return next((number for number, known in names.items() if known == text), None)


def _read_tokenizer(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "tokenizer.json").read_text("utf-8"))


_KINDS = {
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
}
# Keys that are not copied from the source.
_WRITTEN = frozenset(("general.architecture", "general.file_type", "general.quantization_version"))
_TEMPLATE = "tokenizer.chat_template"
_ROWS = 32  # Values of a block of Q8_0; a row of another length stays F16


def can_write(folder: Path) -> bool:
    """Return True if :func:`write_gguf` supports the model."""
    config = _read_config(folder)
    return (
        config.get("model_type") == "llama"
        and not config.get("rope_scaling")
        and (folder / "tokenizer.json").exists()
        and find_pre_tokenizer(folder) is not None
    )


def write_gguf(
    folder: Path, target: Path, kind: str, *, source: Path | None = None, template: str | None = None
) -> None:
    """Write the model in ``folder`` to ``target``, whole or not at all.

    Args:
        folder: A folder of transformers with safetensors.
        target: The file.
        kind: ``f16`` or ``q8_0``; vectors are always 32-bit.
        source: The GGUF file that the base was made from; its metadata is copied, the vocabulary with it.
        template: A chat template instead of the model's own.
    """
    config = _read_config(folder)
    part = target.with_name(f".{target.name}.part")
    tensor_kind, file_kind = _KINDS[kind]
    writer = GGUFWriter(part, "llama")
    if source is not None:
        _copy_metadata(writer, source, without=frozenset((_TEMPLATE,) if template else ()))
        if template:
            writer.add_chat_template(template)
    else:
        _add_shape(writer, config, folder)
        add_vocabulary(writer, folder, template)
    writer.add_file_type(file_kind)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config["num_hidden_layers"])
    for name, tensor in _iterate_tensors(folder):
        if name == "lm_head.weight" and config.get("tie_word_embeddings"):
            continue
        known = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if known is None:
            raise ValueError(f"no name in GGUF for {name}")
        values = _arrange(name, tensor, config)
        if values.ndim == 1:
            writer.add_tensor(known, values)
        elif kind == "f16" or values.shape[-1] % _ROWS:
            writer.add_tensor(known, values.astype(np.float16))
        else:
            packed = quants.quantize(values, tensor_kind)
            writer.add_tensor(known, packed, raw_dtype=tensor_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(target)


def _arrange(name: str, tensor: torch.Tensor, config: dict[str, Any]) -> np.ndarray:
    """Return the values as llama.cpp orders them: it rotates pairs of neighbours, transformers the two halves."""
    values = tensor.to(torch.float32).numpy()
    heads = config["num_attention_heads"]
    if name.endswith("k_proj.weight"):
        heads = config.get("num_key_value_heads") or heads
    if name.endswith(("q_proj.weight", "k_proj.weight")):
        rows = values.shape[0]
        values = (
            values.reshape(heads, 2, rows // heads // 2, *values.shape[1:])
            .swapaxes(1, 2)
            .reshape(values.shape)
        )
    return np.ascontiguousarray(values)


def _iterate_tensors(folder: Path) -> Any:
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118  it is not a dictionary
                yield name, file.get_tensor(name)


def _copy_metadata(writer: GGUFWriter, source: Path, without: frozenset[str]) -> None:
    for key, field in GGUFReader(source).fields.items():
        if key.startswith("GGUF.") or key in _WRITTEN | without:
            continue
        inner = field.types[-1] if field.types[0] == GGUFValueType.ARRAY else None
        writer.add_key_value(key, field.contents(), field.types[0], sub_type=inner)


def _add_shape(writer: GGUFWriter, config: dict[str, Any], folder: Path) -> None:
    heads = config["num_attention_heads"]
    size = config.get("head_dim") or config["hidden_size"] // heads
    rope = config.get("rope_parameters") or {}
    writer.add_name(folder.parent.name)
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads") or heads)
    writer.add_key_length(size)
    writer.add_value_length(size)
    writer.add_rope_dimension_count(size)
    writer.add_rope_freq_base(config.get("rope_theta") or rope.get("rope_theta") or 10_000.0)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])


def _read_config(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text("utf-8"))
