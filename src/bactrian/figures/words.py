"""The words of a text, for maps: in lower case, without the commonest, by their approximate stems."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

STOP_WORDS = frozenset(
    (
        "a an the and or but of to in on at by for from with without into onto as is are was were be been "
        "being am it its this that these those i you he she we they me him her us them my your his our their "
        "so then than too also not no do does did done has have had will would can could may might shall "
        "should must there here which who whom whose what when where how if please each every all any some "
        "more most very just only own same such up out about per none"
    ).split()
)

_ENDINGS = "ations ation ments ment ings ing ions ion ies ers ed es ly er s e".split()
_STEM = 6
_TOKEN = re.compile(r"[^\W_]+")
# Chinese, Japanese, Thai, Lao and Khmer have no spaces between words.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


def tokenize(text: str) -> list[str]:
    """Return the words of ``text`` in lower case; for scripts without spaces, pairs of adjacent characters."""
    tokens: list[str] = []
    for token in _TOKEN.findall(text.lower()):
        if len(token) == 1 or token.isascii() or _UNSPACED.search(token) is None:
            tokens.append(token)
        else:
            tokens += [token[i : i + 2] for i in range(len(token) - 1)]
    return tokens


def stem(word: str) -> str:
    """Return an approximate stem of an English word: ``evaluate`` and ``evaluation`` give ``evalu``."""
    # British and American spelling; analysis, analyse, analyze.
    word = word.replace("z", "s")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    # write, writing; plan, planned
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:_STEM]


class StemReader:
    """Returns the stems of a text, and remembers how each was spelled."""

    def __init__(self) -> None:
        self._spellings: dict[str, Counter[str]] = {}

    def list_stems(self, text: str) -> list[str]:
        """Return the stems of the words that say something."""
        return list(self._read(text))

    def _read(self, text: str) -> Iterator[str]:
        for word in tokenize(text):
            if word not in STOP_WORDS and (len(word) > 1 or not word.isascii()) and not word.isdecimal():
                key = stem(word)
                self._spellings.setdefault(key, Counter())[word] += 1
                yield key

    def spell(self, key: str) -> str:
        """Return the commonest spelling of a stem."""
        return self._spellings[key].most_common(1)[0][0]
