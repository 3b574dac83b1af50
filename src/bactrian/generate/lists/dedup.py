"""Which items of a list say the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

_TOKEN = re.compile(r"[^\W_]+|[^\w\s]")
_MINUS = re.compile(r"[-–](?=\s?(?:\d|[b-z]\b))")
_SIGNS = "#%&/*@"
"""Punctuation, to Unicode, without which an item would be another: C and C#."""
_NEAR = 0.85
"""Share of their words from which two items count as one."""
_ARTICLES = frozenset("a an the his her its our their your this these those".split())
_SMALL_WORDS = _ARTICLES | frozenset(
    "and are as at be by for from in into is it of on or that to was which will with you".split()
)
"""English words that one item may have and another one lack, or have others of, and still say the same."""
_TELLING = re.compile(r"no|not|non|never|without|[b-z]|x{0,3}(?:i[xv]|v?i{0,3})")
"""Words that make another item where one has them: a negation, a single letter, a Roman number."""


def remove_duplicates(items: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """The items that are new: neither among ``known`` nor said before in other letters or nearly the same words.

    Two items are one if they are the same but for case, accents' form, punctuation, spaces and articles; or, from
    four words on, if they share 85 % of their words and the one is the other with words added. A word in place of
    another makes another item, and so do another order and other numbers or signs: ``C`` and ``C#``, ``2 + 3`` and
    ``2 - 3``, ``Celsius to Fahrenheit`` and ``Fahrenheit to Celsius``.
    """
    exact: set[str] = set()
    by_word: dict[tuple[str, str], list[_Words]] = {}

    def is_new(item: str) -> bool:
        words = _words(item)
        if words.key in exact:
            return False
        # Two bags this much alike share at least one of the rarer words; any shared word leads to the other.
        if len(words.bag) >= 4 and any(
            _near(words, other) for word in words.bag for other in by_word.get((word, words.figures), ())
        ):
            return False
        exact.add(words.key)
        if len(words.bag) >= 4:
            # The word that fewest others have keeps the places to look at few.
            rarest = sorted(words.bag, key=lambda word: len(by_word.get((word, words.figures), ())))
            for word in rarest[: _places(len(words.bag))]:
                by_word.setdefault((word, words.figures), []).append(words)
        return True

    for item in known:
        is_new(item)
    return [item for item in items if is_new(item)]


@dataclass(frozen=True, slots=True)
class _Words:
    key: str
    """The same for two items that differ in nothing but form."""
    figures: str
    """What must be the same in two items that are near."""
    bag: frozenset[str]
    content: tuple[str, ...]
    """Words of weight, in their order."""


def _words(item: str) -> _Words:
    text = unicodedata.normalize("NFKC", item).replace("**", "")
    written = [token for token in _TOKEN.findall(_MINUS.sub("\u2212", text)) if _counts(token)]
    tokens = [token.casefold() for token in written]
    return _Words(
        key=_key(written) or item,
        figures=" ".join(token for token in tokens if _tells(token)),
        bag=frozenset(tokens),
        content=tuple(token for token in tokens if token not in _SMALL_WORDS),
    )


def _near(one: _Words, other: _Words) -> bool:
    if len(one.bag & other.bag) < _NEAR * len(one.bag | other.bag):
        return False
    less, more = sorted((one.content, other.content), key=len)
    following = iter(more)
    return all(word in following for word in less)


def _places(size: int) -> int:
    """How many words of a bag must lead to it, so that a bag that is near to it cannot miss all of them."""
    return size - int(_NEAR * size) + 1


def _key(written: list[str]) -> str:
    """The tokens without articles, and with no space between words, as in ``sales person``.

    A capital A is a name, as in ``Vitamin A``, unless the item begins with it.
    """
    key = ""
    for position, token in enumerate(written):
        if len(written) > 1 and (token.casefold() if position == 0 else token) in _ARTICLES:
            continue
        key += token if token.isalpha() and key[-1:].isalpha() else f" {token}"
    return key.strip().casefold()


def _counts(token: str) -> bool:
    """True for a word, a number or a sign; false for punctuation."""
    return token.isalnum() or token in _SIGNS or unicodedata.category(token[0])[0] != "P"


def _tells(token: str) -> bool:
    """True for what holds a digit or is a sign, but no mark of a script that writes its vowels as marks."""
    if token.isalpha():
        return _TELLING.fullmatch(token) is not None
    return unicodedata.category(token[0])[0] != "M"
