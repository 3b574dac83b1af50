"""Words of texts and of searches, by one rule for the index and for highlighting."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

# Thai, Lao, Khmer, kana and Chinese characters: each counts as a word, as these scripts have no spaces.
_UNSPACED = "\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_SPLIT = re.compile(rf"([{_UNSPACED}])")
_WORD = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+")
_TERM = re.compile(r'(-?)"([^"]*)"?|(-?)(\S+)')
_ACCENTS = re.compile("[\u0300-\u036f]")


@dataclass(frozen=True, slots=True)
class Term:
    """A word or phrase of a search."""

    # Folded, one or more.
    words: tuple[str, ...]
    # True if the last word is only the beginning of one.
    prefix: bool = False
    # True if texts must not contain it.
    without: bool = False


def prepare_text(text: str) -> str:
    """Return ``text`` for the full-text index: compatible characters unified, characters without spaces separated."""
    if text.isascii():
        return text
    text = unicodedata.normalize("NFKC", text)
    return _SPLIT.sub(r" \1 ", text)


def fold(word: str) -> str:
    """Return ``word`` without case and accents."""
    if word.isascii():
        return word.lower()
    return _ACCENTS.sub("", unicodedata.normalize("NFKD", word)).casefold()


def read_search(text: str) -> tuple[Term, ...]:
    """Parse a search: words, ``"phrases"``, ``beginning*`` and ``-not``. Nothing is an error."""
    terms: list[Term] = []
    for match in _TERM.finditer(text):
        minus, quoted, other_minus, plain = match.groups()
        plain_text = quoted if plain is None else plain
        words = tuple(fold(word) for word in _WORD.findall(unicodedata.normalize("NFKC", plain_text)))
        if words:
            terms.append(Term(words, bool(plain and plain.endswith("*")), bool(minus or other_minus)))
    return tuple(terms)


def write_match(terms: tuple[Term, ...]) -> str | None:
    """Return the terms as an expression of SQLite's FTS5; None if no term is to be found."""
    included = [_quote(term) for term in terms if not term.without]
    if not included:
        return None
    return " ".join([" AND ".join(included), *(f"NOT {_quote(term)}" for term in terms if term.without)])


def _quote(term: Term) -> str:
    return f'"{" ".join(term.words)}"{" *" if term.prefix else ""}'


def find_hits(text: str, terms: tuple[Term, ...]) -> Iterator[tuple[int, int]]:
    """Yield where ``text`` contains a term, as positions of its begin and end, in order of the terms."""
    # Most texts lack the words, which is seen sooner in the whole text than word by word.
    whole = fold(text) if terms else ""
    included = [term for term in terms if not term.without and all(word in whole for word in term.words)]
    if not included:
        return
    places = [(match.start(), match.end(), fold(match[0])) for match in _WORD.finditer(text)]
    for term in included:
        count = len(term.words)
        for at in range(len(places) - count + 1):
            if all(
                folded == word or (term.prefix and offset == count - 1 and folded.startswith(word))
                for offset, (word, (_, _, folded)) in enumerate(
                    zip(term.words, places[at : at + count], strict=True)
                )
            ):
                yield places[at][0], places[at + count - 1][1]
