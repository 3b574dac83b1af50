"""The tokens of a text, as the built-in model reads it: byte pairs that are merged, by the vocabulary in its file.

This is what llama.cpp does with this vocabulary (``smollm``): digits stand alone, then GPT-2's words, then merges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from heapq import heappop, heappush
from pathlib import Path
from unicodedata import category

from bactrian.models.local.gguf import read_vocabulary
from bactrian.models.local.weights import BUILT_IN, find_cache_folder, is_whole
from bactrian.records.turn import Turn

# Kinds of characters: letter, number, space, other white space, anything else.
_KINDS: Mapping[str, str] = {"L": "L", "N": "N"}
_WORDS = re.compile(r"N| ?L+| ?O+|[ S]+(?![^ SN])|[ S]+")
_ENDINGS = re.compile("'(?:s|t|re|ve|m|ll|d)")


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """The tokens of a model, and how they are made."""

    # By bytes.
    ids: Mapping[bytes, int]
    # Of two neighbours, the pair with the lowest rank is merged first.
    ranks: Mapping[tuple[bytes, bytes], int]


def can_show_tokens(turns: Iterable[Turn]) -> bool:
    """Return True if the built-in model wrote one of ``turns``, and its file, which has the vocabulary, is here."""
    return any(map(is_built_in, turns)) and (find_cache_folder() / BUILT_IN.file).exists()


def is_built_in(turn: Turn) -> bool:
    """Return True if the built-in model wrote a turn. Tokens of any other model would be another model's."""
    return turn.model == Path(BUILT_IN.file).stem


@cache
def load_vocabulary() -> Vocabulary | None:
    """Return the vocabulary of the built-in model; None if its file was not downloaded."""
    path = find_cache_folder() / BUILT_IN.file
    if not is_whole(path, BUILT_IN):
        return None
    tokens, merges = read_vocabulary(path)
    ranks: dict[tuple[bytes, bytes], int] = {}
    for rank, merge in enumerate(merges):
        left, _, right = merge.partition(b" ")
        ranks[_read_bytes(left), _read_bytes(right)] = rank
    return Vocabulary({_read_bytes(token): number for number, token in enumerate(tokens)}, ranks)


@cache
def _get_bytes() -> Mapping[str, int]:
    """Return the byte of each sign: a vocabulary writes bytes as signs that can be seen."""
    seen = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unseen = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(unseen)}


def _read_bytes(written: bytes) -> bytes:
    signs = _get_bytes()
    text = written.decode("utf-8", "replace")
    return bytes(signs[sign] for sign in text) if all(sign in signs for sign in text) else written


def split_tokens(text: str, vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the tokens of ``text`` as bytes, which may be parts of a character."""
    for word in _split_words(text):
        yield from _merge(word.encode("utf-8", "replace"), vocabulary)


def _split_words(text: str) -> Iterator[str]:
    kinds = "".join(map(_tell_kind, text))
    at = 0
    while at < len(text):
        found = _ENDINGS.match(text, at) or _WORDS.match(kinds, at)
        end = found.end() if found else at + 1
        yield text[at:end]
        at = end


@lru_cache(maxsize=4096)
def _tell_kind(sign: str) -> str:
    if sign.isspace():
        return " " if sign == " " else "S"
    return _KINDS.get(category(sign)[0], "O")


def _merge(word: bytes, vocabulary: Vocabulary) -> Iterator[bytes]:
    """Yield the tokens of a word. A heap knows the next pair, as a text without spaces is one long word."""
    parts = [word[at : at + 1] for at in range(len(word))]
    # Where the next and the previous part begin; a part that was merged into another is empty.
    after, before = list(range(1, len(parts) + 1)), list(range(-1, len(parts) - 1))
    waiting: list[tuple[int, int, bytes, bytes]] = []

    def wait(at: int) -> None:
        if at >= 0 and after[at] < len(parts):
            pair = parts[at], parts[after[at]]
            if (rank := vocabulary.ranks.get(pair)) is not None:
                heappush(waiting, (rank, at, *pair))

    for at in range(len(parts)):
        wait(at)
    while waiting:
        _, at, left, right = heappop(waiting)
        to = after[at]
        if to >= len(parts) or parts[at] != left or parts[to] != right:
            continue  # One of them was merged meanwhile.
        parts[at], parts[to], after[at] = left + right, b"", after[to]
        if after[at] < len(parts):
            before[after[at]] = at
        wait(before[at])
        wait(at)
    yield from filter(None, parts)


def show_tokens(text: str, vocabulary: Vocabulary) -> tuple[str, ...]:
    """Return the tokens of ``text`` as they are shown: one that is a part of a character by its bytes."""
    return tuple(map(_show_token, split_tokens(text, vocabulary)))


def _show_token(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        return f"⟨{token.hex(' ').upper()}⟩"
