"""The wording of a sentence: its n-grams, and its scores by a linear model on them.

The heads of a speaker are scored at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from itertools import combinations, pairwise
from math import sqrt
from typing import NamedTuple

from bactrian.detect.turns import Sentence

BARE = frozenset(("self", "you", "question"))
"""Acts that work shows, too."""
_LONGEST_LENGTH = 6
"""Power of two of words, from which on a sentence is simply long."""
_OFFSET = 128
"""Added to a weight, which is at least -127: so each field of a packed number is positive."""
_BITS = 15
"""Of a field."""
_MASK = (1 << _BITS) - 1
_AT_ONCE = 128
"""Packed numbers whose sum fits: 128 fields of 255 are less than 2 ** 15."""
_KEPT = 65_536
"""Combinations of signs whose packed numbers are kept."""

Gram = str | tuple[str, str]
"""A word or a sign, or a pair of words. ``^`` marks the first word and pair of a sentence, ``$`` the last word."""
Signs = tuple[Set[str], bool, bool, str, int]
"""Of a sentence: its speech acts, whether it has a number and a quotation, its last character, its length."""


class LinearWeights(NamedTuple):
    """The linear model of a head."""

    bias: float
    scale: float
    weights: Sequence[int]
    """Of the vocabulary's n-grams, in units of ``scale``; from -127 to 127."""


class WordingScorer:
    """Scores sentences.

    The weights of an n-gram stand side by side in one whole number, a field for each head. Those of four heads have 60
    bits, which Python adds up without making an object for each sum.
    """

    def __init__(self, vocabulary: Mapping[Gram, int], heads: Mapping[str, LinearWeights]) -> None:
        self._heads = heads
        self._known_signs: dict[Signs, Sequence[int]] = {}
        packed = [0] * len(vocabulary)
        for place, head in enumerate(heads.values()):
            shift = _BITS * place
            packed = [
                one + (weight + _OFFSET << shift) for one, weight in zip(packed, head.weights, strict=True)
            ]
        self._packed = dict(zip(vocabulary, packed, strict=True))

    def score(self, sentences: Sequence[Sentence]) -> dict[str, list[float]]:
        """Return the scores of the sentences by head."""
        if not sentences:
            return {}
        known = [self._look_up(sentence) for sentence in sentences]
        counts = [len(weights) for weights in known]
        roots = [sqrt(count + 1) for count in counts]
        fit = max(counts) <= _AT_ONCE
        totals = [sum(weights) for weights in known] if fit else []
        scores: dict[str, list[float]] = {}
        for place, (name, (bias, scale, _)) in enumerate(self._heads.items()):
            shift = _BITS * place
            if fit:
                sums = [total >> shift & _MASK for total in totals]
            else:
                sums = [sum([packed >> shift & _MASK for packed in weights]) for weights in known]
            scores[name] = [
                bias + scale * (total - _OFFSET * count) / root
                for total, count, root in zip(sums, counts, roots, strict=True)
            ]
        return scores

    def _look_up(self, sentence: Sentence) -> list[int]:
        """Return the packed weights of the n-grams that are known."""
        find, words = self._packed.get, sentence.counted
        signs = _describe_signs(sentence)
        of_signs = self._known_signs.get(signs)
        if of_signs is None:
            if len(self._known_signs) >= _KEPT:
                self._known_signs.clear()
            of_signs = self._known_signs[signs] = [*filter(None, map(find, _list_signs(signs)))]
        return [
            *filter(None, map(find, words)),
            *filter(None, map(find, pairwise(words))),
            *filter(None, map(find, _list_ends(words))),
            *of_signs,
        ]


def list_grams(sentence: Sentence) -> list[Gram]:
    """Return what models score a sentence by: words, pairs of words, its ends and signs."""
    words = sentence.counted
    return [*words, *pairwise(words), *_list_ends(words), *_list_signs(_describe_signs(sentence))]


def _list_ends(words: Sequence[str]) -> list[Gram]:
    """Return the first word and pair of a sentence and its last word."""
    if not words:
        return []
    first, last = "^" + words[0], words[-1] + "$"
    return [first, last, (first, words[1])] if len(words) > 1 else [first, last]


def _describe_signs(sentence: Sentence) -> Signs:
    """Return what :func:`_list_signs` needs to know of a sentence."""
    return (
        sentence.acts,
        sentence.has_number,
        sentence.has_quote,
        sentence.text[-1],
        (len(sentence.stems) + 1).bit_length() - 1,
    )


def _list_signs(described: Signs) -> list[str]:
    """Return what models score a sentence by besides its words: speech acts, its end and its length."""
    acts, has_number, has_quote, last, length = described
    length = min(_LONGEST_LENGTH, length)
    signs = [f"#{'a' if last.isalnum() else last}", f"#length{length}"]
    signs += ["@" + act for act in sorted(acts)]
    # Who does what: an act of the speaker is another one than the same act of the other.
    signs += [f"@{one}@{other}" for one, other in combinations(sorted(acts), 2)]
    if acts <= BARE:
        signs.append("@nothing")
    if has_number:
        signs.append("#number")
    if has_quote:
        signs.append("#quote")
    return signs
