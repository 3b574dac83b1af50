"""Removes duplicates and near-duplicates from lists."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

_TOKEN = re.compile(r"[^\W_]+|[^\w\s]")
_MINUS = re.compile(r"[-–](?=\s?(?:\d|[b-z]\b))")
_SIGNS = "#%&/*@"
"""Characters that Unicode counts as punctuation but that distinguish items: C and C#."""
_NEAR = 0.85
"""Two items that share at least this share of their words are duplicates."""
_ARTICLES = frozenset("a an the his her its our their your this these those".split())
_SMALL_WORDS = _ARTICLES | frozenset(
    "and are as at be by for from in into is it of on or that to was which will with you".split()
)
"""English words that may differ between two items that are duplicates."""
_DISTINGUISHING = re.compile(r"no|not|non|never|without|[b-z]|x{0,3}(?:i[xv]|v?i{0,3})")
"""Words that distinguish items: a negation, a single letter, a Roman numeral."""


def remove_duplicates(items: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """Return the items that duplicate neither one of ``known`` nor an earlier item.

    Two items are duplicates if they differ only in case, Unicode form, punctuation, spaces and articles; or, with at
    least four words, if they share 85 % of their words and one contains the other's words in the same order. A
    replaced word makes a different item, and so do another order, other numbers and other signs: ``C`` and ``C#``,
    ``2 + 3`` and ``2 - 3``, ``Celsius to Fahrenheit`` and ``Fahrenheit to Celsius``.
    """
    exact: set[str] = set()
    by_word: dict[tuple[str, str], list[_Words]] = {}

    def is_new(item: str) -> bool:
        words = _words(item)
        if words.key in exact:
            return False
        # Two bags this similar share at least one of the rarer words, under which the other is found.
        if len(words.bag) >= 4 and any(
            _are_near(words, other) for word in words.bag for other in by_word.get((word, words.figures), ())
        ):
            return False
        exact.add(words.key)
        if len(words.bag) >= 4:
            # Filing an item under its rarest words keeps the number of comparisons small.
            rarest = sorted(words.bag, key=lambda word: len(by_word.get((word, words.figures), ())))
            for word in rarest[: _count_filed_words(len(words.bag))]:
                by_word.setdefault((word, words.figures), []).append(words)
        return True

    for item in known:
        is_new(item)
    return [item for item in items if is_new(item)]


@dataclass(frozen=True, slots=True)
class _Words:
    key: str
    """Equal for two items that differ only in form."""
    figures: str
    """Numbers, signs and distinguishing words; equal in near-duplicates."""
    bag: frozenset[str]
    content: tuple[str, ...]
    """Content words, in order."""


def _words(item: str) -> _Words:
    text = unicodedata.normalize("NFKC", item).replace("**", "")
    written = [token for token in _TOKEN.findall(_MINUS.sub("\u2212", text)) if _counts(token)]
    tokens = [token.casefold() for token in written]
    return _Words(
        key=_key(written) or item,
        figures=" ".join(token for token in tokens if _is_distinguishing(token)),
        bag=frozenset(tokens),
        content=tuple(token for token in tokens if token not in _SMALL_WORDS),
    )


def _are_near(one: _Words, other: _Words) -> bool:
    if len(one.bag & other.bag) < _NEAR * len(one.bag | other.bag):
        return False
    less, more = sorted((one.content, other.content), key=len)
    following = iter(more)
    return all(word in following for word in less)


def _count_filed_words(size: int) -> int:
    """Return under how many words a bag must be filed so that every near bag shares at least one of them."""
    return size - int(_NEAR * size) + 1


def _key(written: list[str]) -> str:
    """Return the tokens without articles and spaces between words, so that ``sales person`` equals ``salesperson``.

    A capital A is a name, as in ``Vitamin A``, unless it is the first word.
    """
    key = ""
    for position, token in enumerate(written):
        if len(written) > 1 and (token.casefold() if position == 0 else token) in _ARTICLES:
            continue
        key += token if token.isalpha() and key[-1:].isalpha() else f" {token}"
    return key.strip().casefold()


def _counts(token: str) -> bool:
    """Return True for a word, a number or a sign, and False for punctuation."""
    return token.isalnum() or token in _SIGNS or unicodedata.category(token[0])[0] != "P"


def _is_distinguishing(token: str) -> bool:
    """Return True for a token that distinguishes items: with a digit, a sign, or a word of ``_DISTINGUISHING``.

    Combining marks do not count; some scripts write vowels as marks.
    """
    if token.isalpha():
        return _DISTINGUISHING.fullmatch(token) is not None
    return unicodedata.category(token[0])[0] != "M"
