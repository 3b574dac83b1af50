"""Near-duplicate turn: an agent says almost the same as in an earlier turn of its own.

Nine of ten words are the same, in the same order. Numbers count: the same sentence with other numbers says something
new, and so does a short answer that happens to be right twice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.records.finding import Finding

_SHORTEST = 6
"""Words."""
_ALIKE = 0.9
"""Least similarity in order, from 0 to 1 (difflib's ratio, over words)."""
_LONGEST = 400
"""Words; of longer turns the different words are compared, in any order: that takes no longer than reading."""
_SHARED = 0.8
"""Share of different words in common, below which the order is not compared."""


def detect_near_duplicates(reading: SessionReading) -> Iterator[Finding]:
    """Turns that their speaker has almost said before."""
    # One look at all words of earlier turns spares a look at each turn: most turns bring new words.
    earlier: defaultdict[tuple[bool, frozenset[str]], tuple[list[HeardTurn], set[str]]]
    earlier = defaultdict(lambda: ([], set()))
    for heard in reading.heard:
        if len(heard.word_list) < _SHORTEST:
            continue
        turns, said = earlier[heard.by_user, _find_numbers(heard.words)]
        if len(heard.words & said) >= _SHARED * len(heard.words):
            likeness = max((_likeness(heard, other) for other in turns), default=0.0)
            if likeness >= _ALIKE:
                yield reading.make_finding(heard, "near_duplicate", round(likeness, 2), heard.body)
        turns.append(heard)
        said |= heard.words


def _find_numbers(words: Iterable[str]) -> frozenset[str]:
    """Return the words that hold a digit. Turns that differ in one are no duplicates."""
    return frozenset([word for word in words if not word.isalpha() and any(map(str.isdigit, word))])


def _likeness(one: HeardTurn, other: HeardTurn) -> float:
    """From 0 to 1, of two turns with the same numbers; 0 as soon as they are known to be different."""
    left, right = one.words, other.words
    if not _SHARED * len(left) <= len(right) <= len(left) / _SHARED:
        return 0.0
    shared = len(left & right)
    if shared < _SHARED * (len(left) + len(right) - shared):
        return 0.0
    if one.word_list == other.word_list:
        return 1.0
    if max(len(one.word_list), len(other.word_list)) > _LONGEST:
        return shared / len(left | right)
    return SequenceMatcher(None, one.word_list, other.word_list, autojunk=False).ratio()
