"""What a model knows of a turn besides its wording: overlap with the instruction, news, speech acts, form.

Every feature is a number with a name; :mod:`.reasons` says in words what it means.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache
from itertools import chain
from math import log1p
from typing import NamedTuple

from bactrian.detect.speech_acts import load_lexicon
from bactrian.detect.turns import ReadTurn
from bactrian.detect.wording import BARE

REMEMBERED = 12
"""Earlier turns that a turn is compared with."""
_LATE = 8
"""Number from which on a turn is simply late."""
_FRESH = 0.34
"""Share of a sentence's words in the message before, below which it says something else."""
_SOFT = frozenset(("promise", "accept", "delay", "thanks", "leave", "serve", "finished"))
"""Acts in place of work."""
_NO_WORK = _SOFT | {"restate", "assign"}
"""Acts of sentences that are hardly ever the work itself."""
_ITEM = re.compile(r"^\s*(?:[-*•]|\d+[.)、])", re.MULTILINE)
# Begins with one set of characters, which is searched for fast.
_FORMULA = re.compile(r"[=+^∑√≈→\\](?:(?<!\\)|[a-z])")


class _WordBits(dict[str, int]):
    """A bit for each word of a conversation: sets of words are whole numbers, which are compared at once."""

    def __missing__(self, word: str) -> int:
        bit = self[word] = 1 << len(self)
        return bit

    def collect(self, words: Iterable[str]) -> int:
        """Return the set of ``words``."""
        return sum(map(self.__getitem__, set(words)))


class _WordSets(NamedTuple):
    """The words of a turn, and as sets of :class:`_WordBits`, which are quick to compare with those of many turns."""

    words: Set[str]
    all: int
    asked: int
    given: int


_NO_WORDS = _WordSets(frozenset(), 0, 0, 0)


class Features:
    """The features of a conversation's turns. Each turn is described when first asked for."""

    def __init__(self, turns: Sequence[ReadTurn]) -> None:
        self._turns = turns
        self._bits = _WordBits()
        self._words: dict[int, _WordSets] = {}
        self._earlier: dict[int, dict[str, float]] = {}
        self._described: dict[int, dict[str, float]] = {}

    def describe(self, place: int) -> dict[str, float]:
        """Return the features of the turn at ``place``, always in the same order."""
        if place not in self._described:
            self._described[place] = self._describe(place)
        return self._described[place]

    def _describe(self, place: int) -> dict[str, float]:
        turn, words = self._turns[place], self._collect_words(place)
        if place:
            before, words_before = self._turns[place - 1], self._collect_words(place - 1)
            again = self._compare_earlier(place - 1)
        else:
            before, words_before, again = NOTHING, _NO_WORDS, {}
        return {
            **_describe_form(turn, place),
            **_describe_acts(turn),
            **_compare_before(turn, words, before, words_before),
            **self._compare_earlier(place),
            # The turn before compared with earlier ones of its speaker.
            "asked_again": again.get("like_own", 0.0),
            "asked_again_within": again.get("like_own_within", 0.0),
        }

    def _collect_words(self, place: int) -> _WordSets:
        if place not in self._words:
            turn, collect = self._turns[place], self._bits.collect
            words = frozenset(turn.stems)
            everything = collect(words)
            given = collect(turn.given) if turn.given else 0
            asked = collect(turn.asked) if given else everything
            self._words[place] = _WordSets(words, everything, asked, given)
        return self._words[place]

    def _compare_earlier(self, place: int) -> dict[str, float]:
        """Compare a turn with what was said before."""
        if place not in self._earlier:
            begin = max(0, place - REMEMBERED)
            self._earlier[place] = _compare_earlier(
                self._turns[place],
                self._collect_words(place).all,
                self._turns[begin:place],
                [self._collect_words(other) for other in range(begin, place)],
            )
        return self._earlier[place]


def _describe_form(turn: ReadTurn, place: int) -> dict[str, float]:
    sentences, prose = turn.sentences, turn.prose
    count = max(1, len(sentences))
    questions = sum([sentence.asks for sentence in sentences])
    numbers = [sentence.has_number for sentence in sentences]
    return {
        "length": log1p(len(turn.stems)),
        "sentences": len(sentences),
        "words_per_sentence": len(turn.stems) / count,
        "questions": questions,
        "questions_share": questions / count,
        "questions_last": bool(sentences and sentences[-1].asks),
        "exclaims": (prose.count("!") + prose.count("！")) / count,
        "instructs": turn.instructs,
        "gives_input": turn.gives_input,
        "solves": turn.solves,
        "asks_next": turn.asks_next,
        "is_done": turn.is_done,
        "numbers": len(turn.numbers),
        "numbers_sentences": sum(numbers) / count,
        "code": turn.has_code,
        "code_lines": turn.code_lines,
        "items": len(_ITEM.findall(prose)),
        "quotes": sum([sentence.has_quote for sentence in sentences]) / count,
        "colons": prose.count(":") + prose.count("："),
        "formula": _FORMULA.search(prose) is not None,
        "table": "|" in prose,
        "number": min(place + 1, _LATE),
    }


def _describe_acts(turn: ReadTurn) -> dict[str, float]:
    sentences = turn.sentences
    count = max(1, len(sentences))
    described = dict(_name_acts())
    for sentence in sentences:
        for act in sentence.acts:
            described[act + "_count"] += 1
            described[act + "_share"] += 1 / count
    if sentences:
        for act in sentences[0].acts:
            described[act + "_first"] = 1.0
        for act in sentences[-1].acts:
            described[act + "_last"] = 1.0
    bare = [sentence for sentence in sentences if sentence.acts <= BARE]
    work = sum([_SOFT.isdisjoint(sentence.acts) for sentence in sentences])
    described["bare"] = len(bare)
    described["bare_share"] = len(bare) / count
    described["bare_words"] = sum([len(sentence.stems) for sentence in bare]) / max(1, len(turn.stems))
    described["bare_numbers"] = sum([sentence.has_number for sentence in bare])
    described["work_sentences"] = work
    described["work_sentences_share"] = work / count
    return described


@cache
def _name_acts() -> Mapping[str, float]:
    """Return a zero for each feature of an act."""
    of = ("share", "count", "first", "last")
    return {f"{act}_{measure}": 0.0 for act in load_lexicon().acts for measure in of}


def _compare_before(
    turn: ReadTurn, words: _WordSets, before: ReadTurn, words_before: _WordSets
) -> dict[str, float]:
    """Compare a turn with the one that it answers."""
    mine, theirs = words.all, words_before.all
    sentences = [frozenset(sentence.stems) for sentence in turn.sentences]
    shares = [len(said & words_before.words) / len(said) if said else 0.0 for said in sentences]
    long = [share for share, said in zip(shares, sentences, strict=True) if len(said) > 2]
    fresh = sum([share < _FRESH for share in long])
    work = [sentence.stems for sentence in turn.sentences if _NO_WORK.isdisjoint(sentence.acts)]
    worked = len(frozenset(chain.from_iterable(work)) - words_before.words)
    new, size = (mine & ~theirs).bit_count(), mine.bit_count()
    return {
        "said_before": _share(mine, theirs),
        "said_before_asked": _share(mine, words_before.asked),
        "said_before_input": _share(mine, words_before.given),
        "said_before_most": max(long, default=0.0),
        "said_before_least": min(long, default=1.0),
        "said_before_first": shares[0] if shares else 0.0,
        "said_before_jaccard": _jaccard(mine, theirs),
        "covers_asked": _share(words_before.asked, mine),
        "covers_input": _share(words_before.given, mine),
        "new_words": new,
        "new_numbers": len(turn.numbers - before.numbers),
        "fresh_sentences": fresh,
        "worked": log1p(worked),
        "worked_share": worked / max(1, size),
        "fresh_sentences_share": fresh / max(1, len(turn.sentences)),
        "length_ratio": min(4.0, len(turn.stems) / max(1, len(before.stems))),
        "before_length": log1p(len(before.stems)),
        "before_questions": sum([sentence.asks for sentence in before.sentences]),
        "before_instructs": before.instructs,
        "before_asks_next": before.asks_next,
        "before_solves": before.solves,
        "before_is_done": before.is_done,
    }


def _compare_earlier(
    turn: ReadTurn, mine: int, earlier: Sequence[ReadTurn], words: Sequence[_WordSets]
) -> dict[str, float]:
    alike: list[float] = []
    within = old = covered = 0.0
    size = max(1, mine.bit_count())
    seen = 0
    last = len(earlier) - 1
    for place, (one, said) in enumerate(zip(earlier, words, strict=True)):
        seen |= said.all
        if one.by_user == turn.by_user:
            shared = (mine & said.all).bit_count()
            alike.append(shared / max(1, size + said.all.bit_count() - shared))
            within = max(within, shared / size)
        elif place != last:
            shared = (mine & said.asked).bit_count()
            old = max(old, shared / size)
            covered = max(covered, shared / max(1, said.asked.bit_count()))
    news = (mine & ~seen).bit_count() if alike else 0
    new_numbers = turn.numbers.difference(*[one.numbers for one in earlier]) if alike else ()
    return {
        "like_own": max(alike, default=0.0),
        "like_own_last": alike[-1] if alike else 0.0,
        "like_own_recent": max(alike[-3:], default=0.0),
        "like_own_within": within,
        "news_share": news / size,
        "news": news,
        "news_numbers": len(new_numbers),
        "old_instruction": old,
        "old_instruction_covered": covered,
    }


def _share(part: int, whole: int) -> float:
    """Return the share of ``part`` that is in ``whole``."""
    return (part & whole).bit_count() / part.bit_count() if part else 0.0


def _jaccard(one: int, other: int) -> float:
    shared = (one & other).bit_count()
    return shared / (one | other).bit_count() if shared else float(not one and not other)


NOTHING = ReadTurn(
    by_user=False,
    text="",
    instructs=False,
    gives_input=False,
    solves=False,
    asks_next=False,
    is_done=False,
    prose="",
    code_lines=0,
    has_code=False,
    sentences=[],
    stems=[],
    asked=[],
    given=[],
    numbers=frozenset(),
)
"""What stands before the first turn."""


@cache
def list_names() -> tuple[str, ...]:
    """Return the names of the features, in their order."""
    return tuple(Features([NOTHING]).describe(0))
