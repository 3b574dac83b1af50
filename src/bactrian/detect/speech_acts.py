"""Speech acts: what a sentence does (promises, thanks, offers help, assigns work, …), in twelve languages.

``speech_acts.toml`` lists the words and phrases that tell, by act and language.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass
from functools import cache
from importlib import resources

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_UNSPACED = frozenset(("zh", "ja", "ko"))
"""Languages whose phrases are found anywhere in a sentence."""
_HEAD = 3
"""Characters by which word beginnings are indexed."""

_TRIPLE = 2
"""Spaces in a phrase of three words."""

Acts = frozenset[str]
_NO_ACTS: Acts = frozenset()


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Phrases by the acts that they show."""

    acts: tuple[str, ...]
    phrases: Mapping[str, Acts]
    """Whole words and phrases of up to three words."""
    triples: frozenset[str]
    """The first two words of phrases of three."""
    beginnings: Mapping[str, tuple[tuple[str, Acts], ...]]
    """Beginnings of words, by their first characters."""
    anywhere: re.Pattern[str]
    """Phrases of languages without spaces between words."""
    unspaced: Mapping[str, Acts]

    def find_acts(self, sentence: str, words: list[str], grams: Set[str]) -> set[str]:
        """Return the acts of a sentence in lower case; ``grams`` are its words and pairs of words."""
        found: set[str] = set()
        for phrase in self.phrases.keys() & grams:
            found |= self.phrases[phrase]
        if not self.triples.isdisjoint(grams):
            for three in zip(words, words[1:], words[2:], strict=False):
                found |= self.phrases.get(" ".join(three), _NO_ACTS)
        beginnings = self.beginnings
        for word in words:
            for beginning, acts in beginnings.get(word[:_HEAD], ()):
                if word.startswith(beginning):
                    found |= acts
        if not sentence.isascii():
            for match in self.anywhere.finditer(sentence):
                found |= self.unspaced[match[1]]
        return found


@cache
def load_lexicon() -> Lexicon:
    """Load the built-in lexicon."""
    text = resources.files("bactrian.detect").joinpath("speech_acts.toml").read_text("utf-8")
    table: Mapping[str, Mapping[str, list[str]]] = tomllib.loads(text)
    phrases: defaultdict[str, set[str]] = defaultdict(set)
    beginnings: defaultdict[str, set[str]] = defaultdict(set)
    unspaced: defaultdict[str, set[str]] = defaultdict(set)
    for act, languages in table.items():
        for language, listed in languages.items():
            for phrase in listed:
                if language in _UNSPACED:
                    unspaced[phrase].add(act)
                elif phrase.endswith("*"):
                    beginnings[phrase[:-1]].add(act)
                else:
                    phrases[" ".join(_WORD.findall(phrase)) or phrase].add(act)
    by_head: defaultdict[str, list[tuple[str, Acts]]] = defaultdict(list)
    for beginning, acts in sorted(beginnings.items()):
        by_head[beginning[:_HEAD]].append((beginning, frozenset(acts)))
    # A phrase may contain another one; the act of the longer one counts as well as that of the shorter.
    for phrase in unspaced:
        for other in unspaced:
            if other != phrase and phrase.startswith(other):
                unspaced[phrase] |= unspaced[other]
    longest_first = sorted(unspaced, key=lambda phrase: (-len(phrase), phrase))
    return Lexicon(
        acts=tuple(table),
        triples=frozenset(phrase.rpartition(" ")[0] for phrase in phrases if phrase.count(" ") == _TRIPLE),
        phrases={phrase: frozenset(acts) for phrase, acts in phrases.items()},
        beginnings={head: tuple(listed) for head, listed in by_head.items()},
        anywhere=re.compile(f"(?=({'|'.join(map(re.escape, longest_first))}))"),
        unspaced={phrase: frozenset(acts) for phrase, acts in unspaced.items()},
    )
