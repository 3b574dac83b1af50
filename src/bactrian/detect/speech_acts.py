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
from itertools import pairwise
from unicodedata import normalize

from bactrian.language.words import WORD

_UNSPACED = frozenset(("zh", "ja", "ko"))
"""Languages whose phrases are found anywhere in a sentence."""
_HEAD = 3
"""Characters by which word beginnings are indexed."""
_KEPT = 65_536
"""Words whose look-up is kept."""

Acts = frozenset[str]
_NO_ACTS: Acts = frozenset()
_GOES_ON = "goes on"
"""What two words show that may begin a phrase of three."""
_OPENING: Acts = frozenset((_GOES_ON,))


class _ActsOfWords(dict[str, Acts]):
    """The acts of words alone. Those of a new word are worked out and kept."""

    def __init__(
        self,
        words: Mapping[str, Acts],
        beginnings: Mapping[str, Sequence[tuple[str, Acts]]],
        endings: Sequence[tuple[str, Acts]],
    ) -> None:
        """Take the acts of whole words, of beginnings by their first characters, and of endings."""
        self._listed, self._beginnings, self._endings = words, beginnings, endings

    def __missing__(self, word: str) -> Acts:
        if len(self) >= _KEPT:
            self.clear()
        begun = self._beginnings.get(word[:_HEAD], ())
        acts = self[word] = self._listed.get(word, _NO_ACTS).union(
            *[acts for beginning, acts in begun if word.startswith(beginning)],
            *[acts for ending, acts in self._endings if word.endswith(ending)],
        )
        return acts


@dataclass(frozen=True, slots=True)
class Lexicon:
    """Phrases by the acts that they show."""

    acts: tuple[str, ...]
    words: Mapping[str, Acts]
    """The acts of any word alone."""
    pairs: Mapping[tuple[str, ...], Acts]
    """Phrases of two words. Those that begin longer phrases have :data:`_GOES_ON`, too."""
    triples: Mapping[tuple[str, ...], Acts]
    anywhere: re.Pattern[str]
    """Phrases of languages without spaces between words."""
    unspaced: Mapping[str, Acts]

    def find_acts(self, sentence: str, words: Sequence[str]) -> Acts:
        """Return the acts of a sentence in lower case, given its words, too."""
        found = [
            *filter(None, map(self.words.__getitem__, words)),
            *filter(None, map(self.pairs.get, pairwise(words))),
        ]
        if not sentence.isascii():
            found += [self.unspaced[match[1]] for match in self.anywhere.finditer(sentence)]
        acts = _unite(tuple(found), _NO_ACTS)
        if _GOES_ON in acts:
            found += filter(None, map(self.triples.get, zip(words, words[1:], words[2:], strict=False)))
            acts = _unite(tuple(found), _OPENING)
        return acts


@lru_cache(maxsize=_KEPT)
def _unite(found: tuple[Acts, ...], without: Acts) -> Acts:
    """Return all acts that are found, but for some. The same acts are the same object then, whose hash is known."""
    return _NO_ACTS.union(*found) - without


@cache
def load_lexicon() -> Lexicon:
    """Load the built-in lexicon."""
    text = resources.files("bactrian.detect").joinpath("speech_acts.toml").read_text("utf-8")
    table: Mapping[str, Mapping[str, list[str]]] = tomllib.loads(normalize("NFKC", text))
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
                    phrases[" ".join(WORD.findall(phrase)) or phrase].add(act)
    by_head: defaultdict[str, list[tuple[str, Acts]]] = defaultdict(list)
    for beginning, acts in sorted(beginnings.items()):
        by_head[beginning[:_HEAD]].append((beginning, frozenset(acts)))
    # A phrase may begin with another one: the act of the longer one counts as well as that of the shorter.
    for phrase, acts in unspaced.items():
        acts.update(*[unspaced[phrase[:end]] for end in range(1, len(phrase)) if phrase[:end] in unspaced])
    longest_first = sorted(unspaced, key=lambda phrase: (-len(phrase), phrase))
    listed = {tuple(phrase.split(" ")): frozenset(acts) for phrase, acts in phrases.items()}
    # Longer phrases are told by their first three words.
    triples = {words[:3]: acts for words, acts in listed.items() if len(words) > 2}
    opening = dict.fromkeys((words[:2] for words in triples), _OPENING)
    return Lexicon(
        acts=tuple(table),
        words=_ActsOfWords(
            {words[0]: acts for words, acts in listed.items() if len(words) == 1},
            by_head,
            tuple((ending, frozenset(acts)) for ending, acts in endings.items()),
        ),
        pairs=opening
        | {words: acts | opening.get(words, _NO_ACTS) for words, acts in listed.items() if len(words) == 2},
        triples=triples,
        anywhere=re.compile(f"(?=({'|'.join(map(re.escape, longest_first))}))"),
        unspaced={phrase: frozenset(acts) for phrase, acts in unspaced.items()},
    )
