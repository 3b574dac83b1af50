"""How messages become text and tokens of a model of transformers: the same in training and in ``play``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

# Returns the tokens of a text; adds no token at its ends.
Encode = Callable[[str], list[int]]
# Instead of a control token's name inside a message.
STAND_IN = re.compile("\ufdd0([0-9]+)\ufdd1")
_NAMES = {"user": "User: ", "assistant": "Assistant: ", "system": ""}


def protect_controls(text: str, controls: Sequence[str]) -> str:
    """Replace names of control tokens in ``text`` by stand-ins, so that a message cannot end itself."""
    text = text.replace("\ufdd0", "\ufffd")
    for number, name in sorted(enumerate(controls), key=lambda item: -len(item[1])):
        text = text.replace(name, f"\ufdd0{number}\ufdd1")
    return text


def encode_protected(text: str, controls: Sequence[str], encode: Encode, spell: Encode) -> list[int]:
    """Return the tokens of a safe text: ``encode`` parses control tokens, and ``spell`` writes their names out."""
    tokens: list[int] = []
    for number, piece in enumerate(STAND_IN.split(text)):
        tokens += spell(controls[int(piece)]) if number % 2 else encode(piece) if piece else []
    return tokens


def write_source(messages: Sequence[Mapping[str, str]]) -> str:
    """Return the text that the encoder of a sequence-to-sequence model reads before a reply."""
    parts = [f"{_NAMES[message['role']]}{message['content']}" for message in messages]
    return "\n\n".join([*parts, "Assistant:"])
