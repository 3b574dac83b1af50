# pyright: basic, reportMissingImports=false
"""Examples of sequence-to-sequence models such as FlanT5 (paper, Table 6): what was said before, and the reply.

Such a model has no chat template. The encoder reads the conversation as plain text, one message a paragraph.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from transformers import AutoTokenizer

from bactrian.train.data.conversation import Said
from bactrian.train.examples import Example, is_empty

_NAMES = {"user": "User: ", "assistant": "Assistant: ", "system": ""}


@dataclass(frozen=True, slots=True)
class Seq2SeqCutter:
    """A tokenizer of a sequence-to-sequence model; each reply is an example of its own."""

    tokenizer: Any

    def cut_replies(self, messages: Sequence[Said], max_length: int) -> list[Example]:
        """Return one example for each reply with words; of a long conversation, the last tokens before the reply."""
        found: list[Example] = []
        for number, said in enumerate(messages):
            if said["role"] == "assistant" and not is_empty(said):
                before = self.tokenizer.encode(write_source(messages[:number]))
                reply = self.tokenizer.encode(said["content"])
                found.append(Example(before[-max_length:], reply[:max_length]))
        return found


def write_source(messages: Sequence[Said]) -> str:
    """Return the text that the encoder reads before a reply."""
    parts = [f"{_NAMES[said['role']]}{said['content']}" for said in messages]
    return "\n\n".join([*parts, "Assistant:"])


def make_seq2seq_cutter(tokenizer: Any) -> Seq2SeqCutter:
    """Return the way that this model's conversations are cut into tokens."""
    return Seq2SeqCutter(tokenizer)


def open_seq2seq_tokenizer(model: str) -> Any:
    """Open the tokenizer of a sequence-to-sequence model."""
    return AutoTokenizer.from_pretrained(model)
