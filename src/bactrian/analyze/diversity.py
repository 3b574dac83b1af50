"""Diversity of texts: distinct-n (Li et al. 2016) and near-duplicates (MinHash, Broder 1997)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from bactrian.errors import MissingExtra
from bactrian.language.similarity import compute_jaccard
from bactrian.stats.proportion import Proportion
from bactrian.stats.streaming import StreamingMean

BLOCK = 100
"""Texts in a block for distinct-n, which decreases with their number, so that only equal blocks are comparable."""
ALIKE = 0.7
"""Jaccard similarity of shingles from which two texts are near-duplicates."""
_SHINGLE = 3
"""Words in a shingle."""
_PERMUTATIONS = 128
_BANDS = 32
"""Bands of four rows: two texts with similarity 0.7 are missed once in 6,000 cases."""
# Scripts without spaces are split into characters.
_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]|[^\W\u3040-\u30ff\u3400-\u9fff]+")


@dataclass(frozen=True, slots=True)
class Diversity:
    """Diversity of a sample of texts."""

    texts: int
    """Number of texts in the sample."""
    distinct: dict[int, StreamingMean]
    """By n, distinct n-grams as a share of all, over blocks of a hundred texts (over all if there are fewer)."""
    near_duplicates: Proportion
    """Number of texts with at least one near-duplicate."""


def measure_diversity(texts: Sequence[str]) -> Diversity:
    """Measure ``texts``, given in random order.

    Raises:
        MissingExtra: ``rensa`` is not installed.
    """
    words = [_WORD.findall(text.lower()) for text in texts]
    distinct = {n: StreamingMean() for n in (1, 2, 3)}
    for start in range(0, max(len(words) - BLOCK, 0) + 1, BLOCK):
        for n, mean in distinct.items():
            grams = [gram for one in words[start : start + BLOCK] for gram in _grams(one, n)]
            if grams:
                mean.add(len(set(grams)) / len(grams))
    return Diversity(len(texts), distinct, Proportion(_near_duplicates(words), len(words)))


def _grams(words: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    return zip(*(words[start:] for start in range(n)), strict=False)


def _near_duplicates(texts: Sequence[Sequence[str]]) -> int:
    """Return the number of texts with a near-duplicate."""
    try:
        rensa: Any = import_module("rensa")
    except ModuleNotFoundError as error:
        raise MissingExtra("analysis", "The search for near-duplicates") from error
    times = Counter(frozenset(map(" ".join, _grams(text, _SHINGLE))) or frozenset(text) for text in texts)
    different = list(times)
    hashes: list[Any] = []
    index = rensa.RMinHashLSH(ALIKE, _PERMUTATIONS, _BANDS)
    for number, shingles in enumerate(different):
        minhash = rensa.RMinHash(_PERMUTATIONS, 1)
        minhash.update(sorted(shingles))
        hashes.append(minhash)
        index.insert(number, minhash)
    alike = {number for number, shingles in enumerate(different) if times[shingles] > 1}
    for number, minhash in enumerate(hashes):
        if number not in alike:
            for other in map(int, index.query(minhash)):
                if other != number and compute_jaccard(different[number], different[other]) >= ALIKE:
                    alike |= {number, other}
                    break
    return sum(times[different[number]] for number in alike)
