"""What a model knows of a turn besides its wording: overlap with the instruction, news, speech acts, form.

Every feature is a number with a name; :mod:`.reasons` says in words what it means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache
from math import log1p
from typing import NamedTuple

from bactrian.detect.speech_acts import load_lexicon
from bactrian.detect.turns import ReadTurn
from bactrian.detect.wording import BARE

REMEMBERED = 8
"""Earlier turns that a turn is compared with."""
_LATE = 8
"""Number from which on a turn is simply late."""
_FRESH = 0.34
"""Share of a sentence's words in the message before, below which it says something else."""
_SOFT = frozenset(("promise", "accept", "delay", "thanks", "leave", "serve", "finished"))
"""Acts instead of work."""
_NO_WORK = _SOFT | {"restate", "assign"}
"""Acts of sentences that are hardly ever the work itself."""


class _WordBits(dict[str, int]):
    """A bit for each word of a conversation: sets of words are whole numbers, which are compared at once."""

    def __missing__(self, word: str) -> int:
        bit = self[word] = 1 << len(self)
        return bit

    def collect(self, words: Iterable[str]) -> int:
        """Return a set of words, each of which is given once."""
        return sum(map(self.__getitem__, words))


class _WordSets(NamedTuple):
    """The words of a turn, and as sets of :class:`_WordBits`, which are quick to compare with those of many turns."""

    words: Set[str]
    all: int
    size: int
    asked: int
    given: int


_NO_WORDS = _WordSets(frozenset(), 0, 0, 0, 0)


class Features:
    """The features of a conversation's turns. Each turn is described when first asked for."""

    def __init__(self, turns: Sequence[ReadTurn]) -> None:
        self._turns = turns
        bits = _WordBits()
        self._words = [_collect_words(turn, bits) for turn in turns]
        self._earlier: dict[int, dict[str, float]] = {}
        self._described: dict[int, dict[str, float]] = {}

    def describe(self, place: int) -> dict[str, float]:
        """Return the features of the turn at ``place``, always in the same order."""
        if place not in self._described:
            self._described[place] = self._describe(place)
        return self._described[place]

    def _describe(self, place: int) -> dict[str, float]:
        turn, words = self._turns[place], self._words[place]
        if place:
            before, words_before = self._turns[place - 1], self._words[place - 1]
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

    def _compare_earlier(self, place: int) -> dict[str, float]:
        """Compare a turn with what was said before."""
        if place not in self._earlier:
            earlier = slice(max(0, place - REMEMBERED), place)
            self._earlier[place] = _compare_earlier(
                self._turns[place], self._words[place], self._turns[earlier], self._words[earlier]
            )
        return self._earlier[place]


def _collect_words(turn: ReadTurn, bits: _WordBits) -> _WordSets:
    words = frozenset(turn.stems)
    everything = bits.collect(words)
    given = bits.collect(set(turn.given)) if turn.given else 0
    asked = bits.collect(set(turn.asked)) if given else everything
    return _WordSets(words, everything, len(words), asked, given)


def _describe_form(turn: ReadTurn, place: int) -> dict[str, float]:
    count = max(1, len(turn.sentences))
    questions = sum([sentence.asks for sentence in turn.sentences])
    return {
        "length": log1p(len(turn.stems)),
        "sentences": len(turn.sentences),
        "words_per_sentence": len(turn.stems) / count,
        "questions": questions,
        "questions_share": questions / count,
        "instructs": turn.instructs,
        "gives_input": turn.gives_input,
        "solves": turn.solves,
        "asks_next": turn.asks_next,
        "is_done": turn.is_done,
        "numbers": len(turn.numbers),
        "numbers_sentences": sum([sentence.has_number for sentence in turn.sentences]) / count,
        "code": turn.has_code,
        "code_lines": turn.code_lines,
        "quotes": sum([sentence.has_quote for sentence in turn.sentences]) / count,
        "number": min(place + 1, _LATE),
    }


def _describe_acts(turn: ReadTurn) -> dict[str, float]:
    count = max(1, len(turn.sentences))
    described = dict(_name_acts())
    bare = bare_words = work = 0
    for sentence in turn.sentences:
        for act in sentence.acts:
            described[act + "_count"] += 1
            described[act + "_share"] += 1 / count
        if sentence.acts <= BARE:
            bare += 1
            bare_words += len(sentence.stems)
        work += _SOFT.isdisjoint(sentence.acts)
    if turn.sentences:
        for act in turn.sentences[-1].acts:
            described[act + "_last"] = 1.0
    described["bare_share"] = bare / count
    described["bare_words"] = bare_words / max(1, len(turn.stems))
    described["work_sentences"] = work
    described["work_sentences_share"] = work / count
    return described


@cache
def _name_acts() -> Mapping[str, float]:
    """Return a zero for each feature of an act."""
    of = ("share", "count", "last")
    return {f"{act}_{measure}": 0.0 for act in load_lexicon().acts for measure in of}


def _compare_before(
    turn: ReadTurn, words: _WordSets, before: ReadTurn, words_before: _WordSets
) -> dict[str, float]:
    """Compare a turn with the one that it answers."""
    mine, theirs, size = words.all, words_before.all, words.size
    shares: list[float] = []
    long: list[float] = []
    fresh = 0
    work: set[str] = set()
    for sentence in turn.sentences:
        said = set(sentence.stems)
        share = len(said & words_before.words) / len(said) if said else 0.0
        shares.append(share)
        if len(said) > 2:
            long.append(share)
            fresh += share < _FRESH
        if _NO_WORK.isdisjoint(sentence.acts):
            work |= said
    worked = len(work - words_before.words)
    shared = (mine & theirs).bit_count()
    either = size + words_before.size - shared
    return {
        "said_before": shared / max(1, size),
        "said_before_asked": _share(mine, words_before.asked),
        "said_before_input": _share(mine, words_before.given),
        "said_before_most": max(long, default=0.0),
        "said_before_least": min(long, default=1.0),
        "said_before_first": shares[0] if shares else 0.0,
        "said_before_jaccard": shared / either if either else 1.0,
        "covers_asked": _share(words_before.asked, mine),
        "covers_input": _share(words_before.given, mine),
        "new_words": size - shared,
        "new_numbers": len(turn.numbers - before.numbers),
        "fresh_sentences": fresh,
        "worked": log1p(worked),
        "worked_share": worked / max(1, size),
        "fresh_sentences_share": fresh / max(1, len(turn.sentences)),
        "length_ratio": min(4.0, len(turn.stems) / max(1, len(before.stems))),
        "before_length": log1p(len(before.stems)),
        "before_instructs": before.instructs,
    }


def _compare_earlier(
    turn: ReadTurn, mine: _WordSets, earlier: Sequence[ReadTurn], words: Sequence[_WordSets]
) -> dict[str, float]:
    alike: list[float] = []
    within = old = seen = 0
    covered = 0.0
    size = max(1, mine.size)
    last = len(earlier) - 1
    for place, (one, said) in enumerate(zip(earlier, words, strict=True)):
        seen |= said.all
        if one.by_user == turn.by_user:
            shared = (mine.all & said.all).bit_count()
            alike.append(shared / max(1, size + said.size - shared))
            within = max(within, shared)
        elif place != last:
            shared = (mine.all & said.asked).bit_count()
            old = max(old, shared)
            covered = max(covered, shared / max(1, said.asked.bit_count()))
    news = (mine.all & ~seen).bit_count() if alike else 0
    new_numbers = turn.numbers.difference(*[one.numbers for one in earlier]) if alike else ()
    return {
        "like_own": max(alike, default=0.0),
        "like_own_last": alike[-1] if alike else 0.0,
        "like_own_recent": max(alike[-3:], default=0.0),
        "like_own_within": within / size,
        "news_share": news / size,
        "news": news,
        "news_numbers": len(new_numbers),
        "old_instruction": old / size,
        "old_instruction_covered": covered,
    }


def _share(part: int, whole: int) -> float:
    """Return the share of ``part`` that is in ``whole``."""
    return (part & whole).bit_count() / part.bit_count() if part else 0.0


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
