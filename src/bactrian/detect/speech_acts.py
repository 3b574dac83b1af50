"""Speech acts: what a sentence does (promises, thanks, offers help, assigns work, …), in twelve languages.

``speech_acts.toml`` lists the words and phrases that tell, by act and language.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources

_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_UNSPACED = frozenset(("zh", "ja", "ko"))
"""Languages whose phrases are found anywhere in a sentence."""
_HEAD = 3
"""Characters by which word beginnings are indexed."""
_KEPT = 65_536
"""Words whose look-up is kept."""

Acts = frozenset[str]
_NO_ACTS: Acts = frozenset()

Continuations = Mapping[str, tuple[Acts, Mapping[str, Acts]]]
"""By the second word of a phrase: the acts of the phrase that ends there, and those of phrases with a third word."""


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Phrases by the acts that they show."""

    acts: tuple[str, ...]
    phrases: Mapping[str, tuple[Acts, Continuations]]
    """By the first word: the acts of this word alone, and phrases that go on."""
    beginnings: Mapping[str, tuple[tuple[str, Acts], ...]]
    """Beginnings of words, by their first characters."""
    endings: tuple[tuple[str, Acts], ...]
    """Endings of words."""
    anywhere: re.Pattern[str]
    """Phrases of languages without spaces between words."""
    unspaced: Mapping[str, Acts]

    def find_acts(self, sentence: str, words: Sequence[str]) -> Acts:
        """Return the acts of a sentence in lower case, given its words, too."""
        found: list[Acts] = []
        for place, begun in enumerate(map(_look_up, words)):
            if begun is not None:
                found += _follow_phrase(begun, words, place)
        if not sentence.isascii():
            found += [self.unspaced[match[1]] for match in self.anywhere.finditer(sentence)]
        return _NO_ACTS.union(*found) if found else _NO_ACTS


@lru_cache(maxsize=_KEPT)
def _look_up(word: str) -> tuple[Acts, Continuations] | None:
    """Return the acts of a word alone, and phrases that begin with it; None if it begins nothing."""
    lexicon = load_lexicon()
    beginnings = lexicon.beginnings.get(word[:_HEAD], ())
    acts, continuations = lexicon.phrases.get(word, (_NO_ACTS, {}))
    acts = acts.union(
        *[more for beginning, more in beginnings if word.startswith(beginning)],
        *[more for ending, more in lexicon.endings if word.endswith(ending)],
    )
    return (acts, continuations) if acts or continuations else None


def _follow_phrase(begun: tuple[Acts, Continuations], words: Sequence[str], place: int) -> list[Acts]:
    """Return the acts of the phrases that begin at ``place``."""
    acts, continuations = begun
    found = [acts] if acts else []
    if continuations and place + 1 < len(words):
        second = continuations.get(words[place + 1])
        if second is not None:
            found.append(second[0])
            if second[1] and place + 2 < len(words):
                found.append(second[1].get(words[place + 2], _NO_ACTS))
    return found


@cache
def load_lexicon() -> Lexicon:
    """Load the built-in lexicon."""
    text = resources.files("bactrian.detect").joinpath("speech_acts.toml").read_text("utf-8")
    table: Mapping[str, Mapping[str, list[str]]] = tomllib.loads(text)
    phrases: defaultdict[str, set[str]] = defaultdict(set)
    beginnings: defaultdict[str, set[str]] = defaultdict(set)
    endings: defaultdict[str, set[str]] = defaultdict(set)
    unspaced: defaultdict[str, set[str]] = defaultdict(set)
    for act, languages in table.items():
        for language, listed in languages.items():
            for phrase in listed:
                if language in _UNSPACED:
                    unspaced[phrase].add(act)
                elif phrase.startswith("*"):
                    endings[phrase[1:]].add(act)
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
        phrases=_index_phrases(
            {tuple(phrase.split(" ")): frozenset(acts) for phrase, acts in phrases.items()}
        ),
        beginnings={head: tuple(listed) for head, listed in by_head.items()},
        endings=tuple((ending, frozenset(acts)) for ending, acts in endings.items()),
        anywhere=re.compile(f"(?=({'|'.join(map(re.escape, longest_first))}))"),
        unspaced={phrase: frozenset(acts) for phrase, acts in unspaced.items()},
    )


def _index_phrases(phrases: Mapping[tuple[str, ...], Acts]) -> dict[str, tuple[Acts, Continuations]]:
    index: dict[str, tuple[Acts, dict[str, tuple[Acts, dict[str, Acts]]]]] = {}
    for words in phrases:
        seconds = index.setdefault(words[0], (phrases.get(words[:1], _NO_ACTS), {}))[1]
        if len(words) > 1:
            thirds = seconds.setdefault(words[1], (phrases.get(words[:2], _NO_ACTS), {}))[1]
            if len(words) > 2:
                thirds[words[2]] = phrases[words]
    return {word: (acts, seconds) for word, (acts, seconds) in index.items()}
