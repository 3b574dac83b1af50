"""Near-duplicate turn: an agent says almost the same as in an earlier turn of its own.

Nine of ten words are the same, in the same order. Numbers count: the same sentence with other numbers says something
new, and so does a short answer that happens to be right twice.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from typing import NamedTuple

from bactrian.analyze.behaviours.reading import SessionReading
from bactrian.records.finding import Finding

_SHORTEST = 6
"""Words."""
_ALIKE = 0.9
"""Least similarity in order, from 0 to 1 (difflib's ratio, over words)."""
_LONGEST = 400
"""Words; of longer turns the different words are compared, in any order: that takes no longer than reading."""
_DIGIT = re.compile(r"\d")
_SHARED = 0.8
"""Share of different words in common, below which the order is not compared."""


class _SaidWords(NamedTuple):
    """The words of a turn, in order and as a set."""

    listed: list[str]
    different: set[str]


def detect_near_duplicates(reading: SessionReading) -> Iterator[Finding]:
    """Yield turns that their speaker has almost said before."""
    # Most turns have new words, so comparing with the words of all earlier turns is usually enough.
    earlier: defaultdict[tuple[bool, frozenset[str]], tuple[list[_SaidWords], set[str]]]
    earlier = defaultdict(lambda: ([], set()))
    for heard in reading.heard:
        listed = heard.body.lower().split()
        if len(listed) < _SHORTEST:
            continue
        words = _SaidWords(listed, set(listed))
        turns, said = earlier[heard.by_user, _find_numbers(words.different)]
        if len(words.different & said) >= _SHARED * len(words.different):
            likeness = max((_likeness(words, other) for other in turns), default=0.0)
            if likeness >= _ALIKE:
                yield reading.make_finding(heard, "near_duplicate", round(likeness, 2), heard.body)
        turns.append(words)
        said |= words.different


def _find_numbers(words: Iterable[str]) -> frozenset[str]:
    """Return the words that contain a digit. Turns that differ in one are no duplicates."""
    return frozenset([word for word in words if not word.isalpha() and _DIGIT.search(word)])


def _likeness(one: _SaidWords, other: _SaidWords) -> float:
    """Return the similarity, from 0 to 1, of two turns with the same numbers; 0 as soon as they are known to differ."""
    left, right = one.different, other.different
    if not _SHARED * len(left) <= len(right) <= len(left) / _SHARED:
        return 0.0
    shared = len(left & right)
    if shared < _SHARED * (len(left) + len(right) - shared):
        return 0.0
    if one.listed == other.listed:
        return 1.0
    if max(len(one.listed), len(other.listed)) > _LONGEST:
        return shared / len(left | right)
    return SequenceMatcher(None, one.listed, other.listed, autojunk=False).ratio()
