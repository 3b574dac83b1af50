# pyright: basic, reportMissingImports=false
"""The tokenizer and chat template of a model, as a :class:`~bactrian.train.examples.Cutter`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from transformers import AutoTokenizer, GenerationConfig

from bactrian.errors import InputError
from bactrian.train.data.conversation import Said
from bactrian.train.examples import Cutter, encode_protected
from bactrian.train.recipe import Base
from bactrian.train.templates import read_template

_SPACE = "\u2581"
"""A space, as SentencePiece writes it."""
_BEFORE = "\n"
"""Stands for the prompt before a reply. It merges with nothing in SentencePiece's vocabularies of bytes."""


def open_tokenizer(model: str, base: Base) -> Any:
    """Open the tokenizer of a model's folder, with the recipe's chat template. Raises InputError without either."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"The model's tokenizer cannot be read: {type(error).__name__}.",
            where=model,
            next="Put the files of its tokenizer (tokenizer.json, tokenizer_config.json) into this folder.",
        ) from error
    if base.template is not None:
        tokenizer.chat_template = read_template(base.template)
    if not tokenizer.chat_template:
        raise InputError(
            "The model has no chat template, so nothing says how messages are written to it.",
            where=model,
            next="Use a chat model (often named -Instruct or -Chat), or a template: --set base.template=vicuna",
        )
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def make_cutter(tokenizer: Any, model: str) -> Cutter:
    """Return the way that this model's conversations are cut into tokens."""
    controls = tuple(
        token.content for token in tokenizer.added_tokens_decoder.values() if token.special and token.content
    )

    def render(messages: Sequence[Said], add: bool) -> str:
        try:
            return tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=add)
        except (jinja2.TemplateError, ValueError, TypeError) as error:
            raise InputError(
                f"The model's chat template cannot write these messages: {error}.",
                where=model,
                next="Models without a system role, for example, cannot be trained with a system prompt.",
            ) from error

    def encode(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False)

    def spell(name: str) -> list[int]:
        return tokenizer.encode(name, add_special_tokens=False, split_special_tokens=True)

    def encode_safe(text: str) -> list[int]:
        return encode_protected(text, controls, encode, spell)

    before = len(encode(_BEFORE))
    return Cutter(
        render=render,
        encode=encode_safe,
        stops=_find_stops(tokenizer, model),
        controls=controls,
        start=_find_start(tokenizer),
        encode_reply=(lambda text: encode_safe(_BEFORE + text)[before:]) if _adds_space(tokenizer) else None,
    )


def _find_start(tokenizer: Any) -> tuple[int, ...]:
    """Return the token that the tokenizer puts before each text, as llama.cpp does too."""
    begun = tokenizer.encode("")[:1]
    return tuple(begun) if begun == [tokenizer.bos_token_id] else ()


def _adds_space(tokenizer: Any) -> bool:
    """Return True if the tokenizer puts a space before each text, as LLaMA's does: a reply would begin with two."""
    first = tokenizer.convert_ids_to_tokens(tokenizer.encode("a", add_special_tokens=False))[0]
    return str(first).startswith(_SPACE)


def hash_template(tokenizer: Any) -> str:
    """Return the SHA-256 of the chat template."""
    return hashlib.sha256(str(tokenizer.chat_template).encode()).hexdigest()


def _find_stops(tokenizer: Any, model: str) -> tuple[str, ...]:
    """Return the texts of the tokens at which generation stops."""
    ids: list[int] = [tokenizer.eos_token_id] if tokenizer.eos_token_id is not None else []
    if (Path(model) / "generation_config.json").exists():
        given = GenerationConfig.from_pretrained(model).eos_token_id
        ids += given if isinstance(given, list) else [given] if given is not None else []
    return tuple(dict.fromkeys(tokenizer.convert_ids_to_tokens(one) for one in ids))
