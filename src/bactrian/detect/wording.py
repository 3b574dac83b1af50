"""Scores of sentences by their wording: a linear model on n-grams, for all heads of a speaker at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import sqrt
from typing import NamedTuple

from bactrian.detect.turns import Sentence, Signs, describe_signs, list_counted_stems, list_signs

_OFFSET = 128
"""Added to a weight, which is at least -127: so each field of a packed number is positive."""
_BITS = 15
"""Of a field."""
_MASK = (1 << _BITS) - 1
_AT_ONCE = 128
"""Packed numbers whose sum fits: 128 fields of 255 are less than 2 ** 15."""
_KEPT = 65_536
"""Combinations of signs whose packed numbers are kept."""


class LinearWeights(NamedTuple):
    """The linear model of a head."""

    name: str
    bias: float
    scale: float
    weights: Sequence[int]
    """Of the vocabulary's n-grams, in units of ``scale``; from -127 to 127."""


class WordingScorer:
    """Scores sentences.

    The weights of an n-gram stand side by side in one whole number, a field for each head. Those of four heads have 60
    bits, which Python adds up without making an object for each sum.
    """

    def __init__(self, vocabulary: Mapping[str, int], heads: Sequence[LinearWeights]) -> None:
        self._heads = heads
        self._words: dict[str, int] = {}
        self._pairs: dict[tuple[str, ...], int] = {}
        self._first: dict[str, int] = {}
        self._first_pairs: dict[tuple[str, ...], int] = {}
        self._last: dict[str, int] = {}
        self._signs: dict[str, int] = {}
        self._known_signs: dict[Signs, tuple[int, ...]] = {}
        shifts = range(0, _BITS * len(heads), _BITS)
        for gram, *weights in zip(vocabulary, *(head.weights for head in heads), strict=True):
            packed = sum(weight + _OFFSET << shift for weight, shift in zip(weights, shifts, strict=True))
            self._keep(gram, packed)

    def _keep(self, gram: str, packed: int) -> None:
        if gram[0] in "@#":
            self._signs[gram] = packed
        elif " " in gram:
            pairs, gram = (self._first_pairs, gram[1:]) if gram[0] == "^" else (self._pairs, gram)
            pairs[tuple(gram.split(" "))] = packed
        elif gram[0] == "^":
            self._first[gram[1:]] = packed
        elif gram[-1] == "$":
            self._last[gram[:-1]] = packed
        else:
            self._words[gram] = packed

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
        for place, (name, bias, scale, _) in enumerate(self._heads):
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
        stems = list_counted_stems(sentence)
        known = [*filter(None, map(self._words.get, stems))]
        known += filter(None, map(self._pairs.get, pairwise(stems)))
        if stems:
            known += filter(None, (self._first.get(stems[0]), self._last.get(stems[-1])))
            if len(stems) > 1 and (first := self._first_pairs.get((stems[0], stems[1]))):
                known.append(first)
        known += self._look_up_signs(describe_signs(sentence))
        return known

    def _look_up_signs(self, signs: Signs) -> Sequence[int]:
        known = self._known_signs.get(signs)
        if known is None:
            if len(self._known_signs) >= _KEPT:
                self._known_signs.clear()
            known = self._known_signs[signs] = tuple(filter(None, map(self._signs.get, list_signs(signs))))
        return known
