# pyright: basic, reportMissingImports=false
"""Opens the base model of a training as a folder of transformers, from wherever it comes, or makes one from nothing."""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GgufConfig,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
    T5ForConditionalGeneration,
)

from bactrian.errors import InputError, Refused
from bactrian.models.hub_access import import_hub
from bactrian.models.local.local_model import hash_weights
from bactrian.models.local.weights import BUILT_IN, fetch_weights, find_cache_folder
from bactrian.train.training_folder import StageFolder, weigh_model
from bactrian.train.training_recipe import BUILT_IN_BASE, NEW, Base, NewModel, TrainRecipe, read_template
from bactrian.train.worker.gguf_file import can_write, read_metadata, write_gguf

CONTROLS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
# ChatML, which llama.cpp knows. It adds no system prompt.
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] "
    "+ '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def make_new_model(spec: NewModel, texts: Iterable[str], seed: int, folder: Path) -> None:
    """Write a new model and its tokenizer, trained on ``texts``, to ``folder``."""
    tokenizer = _train_tokenizer(texts, spec.vocabulary, closes=spec.kind == "t5")
    torch.manual_seed(seed)
    if spec.kind == "t5":
        shape: dict[str, Any] = {
            "d_model": spec.width,
            "d_ff": spec.width * 3,
            "d_kv": spec.width // spec.heads,
        }
        shape |= {"num_layers": spec.layers, "num_heads": spec.heads, "dropout_rate": 0.0}
        shape |= {"decoder_start_token_id": 0, "eos_token_id": 2, "pad_token_id": 2}
        made = T5ForConditionalGeneration(T5Config(vocab_size=len(tokenizer), **shape))
        # Untrained, it would say nothing but control tokens, and an empty answer is none.
        made.generation_config.suppress_tokens, made.generation_config.begin_suppress_tokens = [0, 1], [2]
        made.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=spec.width,
        intermediate_size=spec.width * 3,
        num_hidden_layers=spec.layers,
        num_attention_heads=spec.heads,
        num_key_value_heads=spec.heads,
        max_position_embeddings=spec.window,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _train_tokenizer(texts: Iterable[str], vocabulary: int, *, closes: bool) -> PreTrainedTokenizerFast:
    """Train byte-level BPE with GPT-2's way of dividing words, which llama.cpp knows too.

    One that ``closes`` puts the end token after each text, as the encoder of T5 reads it.
    """
    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(CONTROLS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    raw.train_from_iterator(texts, trainer)
    if closes:
        raw.post_processor = processors.TemplateProcessing(
            single="$A <|im_end|>", special_tokens=[("<|im_end|>", 2)]
        )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        bos_token="<|im_start|>",  # noqa: S106  names of tokens
        eos_token="<|im_end|>",  # noqa: S106
        pad_token="<|im_end|>",  # noqa: S106
        unk_token="<|endoftext|>",  # noqa: S106
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


_LARGEST_COPY = 4_000_000_000  # Bytes of a base model of which a GGUF copy is written without being asked


@dataclass(frozen=True, slots=True)
class OpenBase:
    """The base model."""

    model: Path  # Folder of transformers
    gguf: Path | None
    source: Path | None  # The GGUF file that it was converted from
    name: str
    sha256: str
    license: str | None


def open_base(recipe: TrainRecipe, stage: StageFolder, texts: Iterable[str]) -> OpenBase:
    """Fetch, convert or make the base model.

    Raises:
        InputError: it cannot be read, or has a format that training cannot use.
        ModelError: it cannot be downloaded.
    """
    base = recipe.base
    if base.new is not None:
        folder, gguf = stage.folder / "model", stage.folder / "model.gguf"
        make_new_model(base.new, texts, recipe.training.seed, folder)
        if has_gguf := base.new.kind == "llama":
            write_gguf(folder, gguf, "f16")
        return OpenBase(folder, gguf if has_gguf else None, None, NEW, hash_weights(folder), None)
    assert base.model is not None
    path = Path(base.model)
    if base.model == BUILT_IN_BASE:
        path = fetch_weights(BUILT_IN, find_cache_folder())
        return _convert(path, "SmolLM2-135M-Instruct (built-in)", base, stage)
    if path.suffix == ".gguf" and not path.is_file():
        raise InputError("There is no such file.", where=base.model, next="Check base.model.")
    if path.is_file():
        return _convert(path, path.name, base, stage)
    folder = path if path.is_dir() else _download(base.model, base.revision)
    if not (folder / "config.json").is_file():
        raise InputError(
            "This folder contains no model of transformers: it has no config.json.",
            where=base.model,
            next="Check base.model.",
        )
    gguf = stage.folder / "model.gguf"
    if can_write(folder) and weigh_model(folder) <= _LARGEST_COPY:
        write_gguf(folder, gguf, "f16", template=base.template and read_template(base.template))
    name = base.model if base.revision is None else f"{base.model} at {base.revision}"
    return OpenBase(
        folder.resolve(),
        gguf if gguf.exists() else None,
        None,
        name,
        hash_weights(folder),
        base.license or _read_license(folder),
    )


def _convert(path: Path, name: str, base: Base, stage: StageFolder) -> OpenBase:
    """Dequantise a GGUF file once, and keep the result in the cache folder."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    cached = find_cache_folder() / f"transformers-{digest[:16]}"
    if not (cached / "model.gguf").exists():
        _convert_to(path, cached)
    stated = read_metadata(path).get("general.license")
    gguf = cached / "model.gguf"
    if base.template is not None:
        gguf = stage.folder / "model.gguf"
        write_gguf(cached / "model", gguf, "f16", source=path, template=read_template(base.template))
    terms = base.license or (str(stated) if stated else None)
    return OpenBase(cached / "model", gguf, path, name, digest, terms)


def _convert_to(path: Path, cached: Path) -> None:
    needed = 12 * path.stat().st_size
    cached.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(cached.parent).free
    if free < needed:
        raise Refused(
            f"Converting the model needs up to {needed / 1e6:,.0f} MB of disk space, "
            f"and {free / 1e6:,.0f} MB are free.",
            where=str(cached.parent),
            next="Free some space, or set BACTRIAN_CACHE to another folder.",
        )
    aside = Path(tempfile.mkdtemp(dir=cached.parent, prefix="convert-"))
    try:
        try:
            tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
            model = AutoModelForCausalLM.from_pretrained(
                str(path.parent),
                gguf_file=path.name,
                quantization_config=GgufConfig(dequantize=True),
                dtype=torch.bfloat16,
            )
        except (ValueError, KeyError, NotImplementedError, TypeError, RuntimeError) as error:
            raise InputError(
                f"This GGUF file cannot be dequantised for training: {str(error).splitlines()[0]}",
                where=str(path),
                next="Use the model's original weights: a folder of transformers, or its name on the Hub.",
            ) from error
        model.save_pretrained(aside / "model")
        _restore_digits(tokenizer, path)
        tokenizer.save_pretrained(aside / "model")
        del model
        write_gguf(aside / "model", aside / "model.gguf", "f16", source=path)
        aside.chmod(0o755)
        with suppress(OSError):  # another process was faster
            aside.rename(cached)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _restore_digits(tokenizer: Any, path: Path) -> None:
    """Divide text as llama.cpp does: transformers does not read that the digits of a GGUF file stand alone.

    Without it, two newlines before a digit are other tokens in a training than in a conversation.
    """
    if read_metadata(path).get("tokenizer.ggml.pre") == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])


def _download(name: str, revision: str | None) -> Path:
    """Fetch a model from the Hub, or from its cache."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    hub: Any = import_hub("Fetching a model from the Hugging Face hub")
    try:
        return Path(
            hub.snapshot_download(
                name, revision=revision, ignore_patterns=["*.pth", "*.bin.index.json", "original/*"]
            )
        )
    except (HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError, ValueError, OSError) as error:
        raise InputError(
            f"There is no such folder, and the Hub does not give a model of that name: {type(error).__name__}.",
            where=name,
            next="Check base.model and the network; HF_TOKEN is needed for models that ask to accept their terms.",
        ) from error


def _read_license(folder: Path) -> str | None:
    """Return the licence that the model's card states."""
    with suppress(OSError, UnicodeDecodeError):
        match = re.search(
            r"^license(?:_name)?:\s*(\S.*)$", (folder / "README.md").read_text("utf-8"), re.MULTILINE
        )
        return match[1].strip() if match else None
    return None
