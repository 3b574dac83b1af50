"""Divides conversations into those that a model is trained on and those that are held out, without a leak.

A held-out conversation shares nothing with the training data of any stage: neither its id, nor its group (a pair of
roles), nor 13 consecutive words of what is said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bactrian.export.decontaminate import GRAM, list_grams
from bactrian.export.split import locate_group
from bactrian.files.json_text import read_lines
from bactrian.train.data.conversation import Conversation, Said, hash_messages

MOST_HELD_OUT = 500
"""Conversations; more would not make the loss on them more certain, and cost time."""
_NOT_SAID = frozenset(("id", "question_id", "role", "category"))
"""Keys whose values are not texts."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class Division:
    """The conversations of a stage."""

    train: Sequence[Conversation]
    held_out: Sequence[Conversation]
    leaks: int
    """Conversations of held-out groups that quote training data, and are in neither part."""


def divide(stages: Sequence[Sequence[Conversation]], share: float) -> list[Division]:
    """Divide the conversations of all stages; a group is held out in all stages or in none.

    A held-out conversation that quotes training data is left out of both parts.
    """
    share = min(share, MOST_HELD_OUT / max(1, sum(map(len, stages))))
    parts = [_divide_by_group(stage, share) for stage in stages]
    held = [one for _, out in parts for one in out]
    leaking = _find_leaks([one for train, _ in parts for one in train], held)
    return [
        Division(
            train,
            [one for one in out if id(one) not in leaking],
            sum(id(one) in leaking for one in out),
        )
        for train, out in parts
    ]


def _divide_by_group(
    stage: Iterable[Conversation], share: float
) -> tuple[list[Conversation], list[Conversation]]:
    train: list[Conversation] = []
    out: list[Conversation] = []
    for one in stage:
        (out if locate_group(one.group) < share else train).append(one)
    return train, out


def _find_leaks(train: Sequence[Conversation], held: Sequence[Conversation]) -> set[int]:
    """Return the identities of held-out conversations that share an id, all messages or 13 words with ``train``."""
    owners: dict[str, list[int]] = {}
    for one in held:
        for mark in _list_marks(one):
            owners.setdefault(mark, []).append(id(one))
    if not owners:
        return set()
    return {owner for one in train for mark in _list_marks(one) for owner in owners.get(mark, ())}


def _list_marks(one: Conversation) -> Iterable[str]:
    """Return what must not occur in both parts."""
    spoken = [said for said in one.messages if said["role"] != "system"]
    yield f"id\0{one.id}"
    yield f"hash\0{hash_messages(spoken)}"
    for text in one.list_texts():
        yield from list_grams(text)


@dataclass(frozen=True, slots=True)
class ForbiddenTexts:
    """Texts that a model must not be trained on, such as the questions of an evaluation."""

    whole: frozenset[str]
    """Texts as words in lower case, for those too short to have 13 words."""
    grams: frozenset[str]

    def is_said_in(self, messages: Sequence[Said]) -> bool:
        """Return True if a message is one of the texts, or shares 13 consecutive words with one."""
        return any(
            _to_words(said["content"]) in self.whole
            or any(gram in self.grams for gram in list_grams(said["content"]))
            for said in messages
        )


def make_forbidden(texts: Iterable[str]) -> ForbiddenTexts:
    """Return these texts as words."""
    whole: set[str] = set()
    grams: set[str] = set()
    for text in texts:
        words = _to_words(text)
        whole.add(words)
        if words.count(" ") + 1 >= GRAM:
            grams.update(list_grams(text))
    return ForbiddenTexts(frozenset(whole - {""}), frozenset(grams))


def read_forbidden(paths: Iterable[Path]) -> ForbiddenTexts:
    """Read files of texts: JSON lines, of which every string counts, or one text a line.

    Raises:
        InputError: a file cannot be read.
    """
    texts: list[str] = []
    for path in paths:
        for _, line in read_lines(path):
            texts += _list_strings(line)
    return make_forbidden(texts)


def _list_strings(line: str) -> list[str]:
    """Return the texts of a line: all strings of a JSON value that are said, or the line itself."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return [line]
    found: list[str] = []
    stack: list[Any] = [value]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            found.append(one)
        elif isinstance(one, dict):
            stack += [each for key, each in cast("dict[str, Any]", one).items() if key not in _NOT_SAID]
        elif isinstance(one, list):
            stack += cast("list[Any]", one)
    return found


def _to_words(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))
