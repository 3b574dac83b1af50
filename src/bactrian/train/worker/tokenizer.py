# pyright: basic, reportMissingImports=false
"""The tokenizer of a model, and how it cuts conversations into tokens: by a chat template, or as pairs of texts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from transformers import AutoTokenizer, GenerationConfig

from bactrian.errors import InputError
from bactrian.train.training_data import ChatMessage
from bactrian.train.training_examples import CutCounts, Cutter, Example, encode_protected, is_empty
from bactrian.train.training_recipe import Base, read_template
from bactrian.train.worker.model_files import is_encoder_decoder

_SPACE = "\u2581"
"""A space, as SentencePiece writes it."""
_BEFORE = "\n"
"""Stands for the prompt before a reply. It merges with nothing in SentencePiece's vocabularies of bytes."""


def open_tokenizer(model: str, base: Base) -> Any:
    """Open the tokenizer of a model's folder, with the recipe's chat template, which sequence-to-sequence models lack.

    Raises:
        InputError: there is no tokenizer, or a language model has no template.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(model)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"The model's tokenizer cannot be read: {type(error).__name__}.",
            where=model,
            next="Put the files of its tokenizer (tokenizer.json, tokenizer_config.json) into this folder.",
        ) from error
    if is_encoder_decoder(Path(model)):
        return tokenizer
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

    def render(messages: Sequence[ChatMessage], add: bool) -> str:
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
        stated = GenerationConfig.from_pretrained(model).eos_token_id
        ids += stated if isinstance(stated, list) else [stated] if stated is not None else []
    return tuple(dict.fromkeys(tokenizer.convert_ids_to_tokens(token) for token in ids))


_NAMES = {"user": "User: ", "assistant": "Assistant: ", "system": ""}


@dataclass(frozen=True, slots=True)
class Seq2SeqCutter:
    """A tokenizer of a sequence-to-sequence model such as FlanT5 (paper, Table 6); each reply is an example of its own.

    Such a model has no chat template. The encoder reads the conversation as plain text, one message a paragraph.
    """

    tokenizer: Any

    def cut_replies(
        self, messages: Sequence[ChatMessage], max_length: int, counts: CutCounts
    ) -> list[Example]:
        """Return one example for each reply with words; of a long conversation, the last tokens before the reply."""
        examples: list[Example] = []
        for number, message in enumerate(messages):
            if message["role"] == "assistant":
                counts.pairs += 1
                if is_empty(message):
                    counts.empty += 1
                    continue
                before = self.tokenizer.encode(write_source(messages[:number]))
                reply = self.tokenizer.encode(message["content"])
                examples.append(Example(before[-max_length:], reply[:max_length]))
        counts.conversations += 1
        counts.split += len(examples) > 1
        return examples


def write_source(messages: Sequence[ChatMessage]) -> str:
    """Return the text that the encoder reads before a reply."""
    parts = [f"{_NAMES[message['role']]}{message['content']}" for message in messages]
    return "\n\n".join([*parts, "Assistant:"])
