"""What a model knows of a turn: the wording of its sentences, overlap with the instruction, news, acts, form.

Every feature is a number with a name; :mod:`.reasons` says in words what it means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cache
from itertools import chain, combinations, pairwise, repeat
from math import log1p, sqrt
from typing import NamedTuple

from bactrian.detect.turn_text import ReadTurn, Sentence, load_lexicon, read_turn

# The wording of a sentence: its n-grams, and its scores by a linear model on them.
#
# The heads of a speaker are scored at once.


BARE = frozenset(("self", "you", "question"))  # Acts that work shows, too
_LONGEST_LENGTH = 6  # Power of two of words, from which on a sentence is simply long
_OFFSET = 128  # Added to a weight, which is at least -127: so each field of a packed number is positive
_BITS = 30  # of a field: enough for millions of n-grams
_MASK = (1 << _BITS) - 1
_ZEROS = repeat(0)  # the weight of an n-gram that is not known
_KEPT = 65_536  # Combinations of signs whose packed numbers are kept

# A word or a sign, or a pair of words. ``^`` marks the first word and pair of a sentence, ``$`` the last
# word.
Gram = str | tuple[str, str]
# Of a sentence: its speech acts, whether it has a number and a quotation, its last character, its length.
Signs = tuple[Set[str], bool, bool, str, int]


class WordingScorer:
    """Scores sentences.

    The weights of an n-gram stand side by side in one whole number, a field for each head. The first field counts.
    """

    def __init__(
        self, vocabulary: Mapping[Gram, int], heads: Mapping[str, tuple[float, float, Sequence[int]]]
    ) -> None:
        """Take the n-grams by their positions in weights, and bias, scale and weights of the heads by name."""
        self._heads = heads
        self._known_signs: dict[Signs, int] = {}
        packed = [1] * len(vocabulary)
        for number, (_, _, weights) in enumerate(heads.values(), 1):
            shift = _BITS * number
            packed = [
                sum_of_heads + (weight + _OFFSET << shift)
                for sum_of_heads, weight in zip(packed, weights, strict=True)
            ]
        self._packed = dict(zip(vocabulary, packed, strict=True))

    def score(self, sentences: Sequence[Sentence]) -> dict[str, list[float]]:
        """Return the scores of the sentences by head."""
        if not sentences:
            return {}
        totals = [self._add_up(sentence) for sentence in sentences]
        counts = [total & _MASK for total in totals]
        roots = [sqrt(count + 1) for count in counts]
        scores: dict[str, list[float]] = {}
        for number, (name, (bias, scale, _)) in enumerate(self._heads.items(), 1):
            shift = _BITS * number
            scores[name] = [
                bias + scale * ((total >> shift & _MASK) - _OFFSET * count) / root
                for total, count, root in zip(totals, counts, roots, strict=True)
            ]
        return scores

    def _add_up(self, sentence: Sentence) -> int:
        """Return the sum of the packed weights of the n-grams that are known."""
        find, words = self._packed.get, sentence.counted
        signs = _describe_signs(sentence)
        of_signs = self._known_signs.get(signs)
        if of_signs is None:
            if len(self._known_signs) >= _KEPT:
                self._known_signs.clear()
            of_signs = self._known_signs[signs] = sum(map(find, _list_signs(signs), _ZEROS))
        grams = chain(words, pairwise(words), _list_ends(words))
        return sum(map(find, grams, _ZEROS), of_signs)


def list_grams(sentence: Sentence) -> list[Gram]:
    """Return what models score a sentence by: words, pairs of words, its ends and signs."""
    words = sentence.counted
    return [*words, *pairwise(words), *_list_ends(words), *_list_signs(_describe_signs(sentence))]


def _list_ends(words: Sequence[str]) -> list[Gram]:
    """Return the first word and pair of a sentence and its last word."""
    if not words:
        return []
    first, last = "^" + words[0], words[-1] + "$"
    return [first, last, (first, words[1])] if len(words) > 1 else [first, last]


def _describe_signs(sentence: Sentence) -> Signs:
    """Return what :func:`_list_signs` needs to know of a sentence."""
    return (
        sentence.acts,
        sentence.has_number,
        sentence.has_quote,
        sentence.text[-1],
        (len(sentence.stems) + 1).bit_length() - 1,
    )


def _list_signs(described: Signs) -> list[str]:
    """Return what models score a sentence by besides its words: speech acts, its end and its length."""
    acts, has_number, has_quote, last, length = described
    length = min(_LONGEST_LENGTH, length)
    signs = [f"#{'a' if last.isalnum() else last}", f"#length{length}"]
    signs += ["@" + act for act in sorted(acts)]
    # Who does what: an act of the speaker is another one than the same act of the other.
    signs += [f"@{act}@{other}" for act, other in combinations(sorted(acts), 2)]
    if acts <= BARE:
        signs.append("@nothing")
    if has_number:
        signs.append("#number")
    if has_quote:
        signs.append("#quote")
    return signs


REMEMBERED = 8  # Earlier turns that a turn is compared with
_LATE = 8  # number from which on a turn is simply late
_FRESH = 0.34  # share of a sentence's words in the message before, below which it says something else
# Acts instead of work.
_SOFT = frozenset(("promise", "accept", "delay", "thanks", "leave", "serve", "finished"))
_NO_WORK = _SOFT | {"restate", "assign"}  # Acts of sentences that are hardly ever the work itself


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
    input: int


_NO_WORDS = _WordSets(frozenset(), 0, 0, 0, 0)


class Features:
    """The features of a conversation's turns. Each turn is described when first asked for."""

    def __init__(self, turns: Sequence[ReadTurn]) -> None:
        self._turns = turns
        bits = _WordBits()
        self.words = [_collect_words(turn, bits) for turn in turns]
        self._earlier: dict[int, dict[str, float]] = {}
        self._described: dict[int, dict[str, float]] = {}

    def describe(self, index: int) -> dict[str, float]:
        """Return the features of the turn at ``index``, always in the same order."""
        if index not in self._described:
            self._described[index] = self._describe(index)
        return self._described[index]

    def _describe(self, index: int) -> dict[str, float]:
        turn, words = self._turns[index], self.words[index]
        if index:
            before, words_before = self._turns[index - 1], self.words[index - 1]
            again = self._compare_earlier(index - 1)
        else:
            before, words_before, again = _read_nothing(), _NO_WORDS, {}
        return {
            **_describe_form(turn, index),
            **_describe_acts(turn),
            **_compare_before(turn, words, before, words_before),
            **self._compare_earlier(index),
            # The turn before compared with earlier ones of its speaker.
            "asked_again": again.get("like_own", 0.0),
            "asked_again_within": again.get("like_own_within", 0.0),
        }

    def _compare_earlier(self, number: int) -> dict[str, float]:
        """Compare a turn with what was said before."""
        if number not in self._earlier:
            earlier = slice(max(0, number - REMEMBERED), number)
            self._earlier[number] = _compare_earlier(
                self._turns[number], self.words[number], self._turns[earlier], self.words[earlier]
            )
        return self._earlier[number]


def _collect_words(turn: ReadTurn, bits: _WordBits) -> _WordSets:
    words = frozenset(turn.stems)
    everything = bits.collect(words)
    in_input = bits.collect(set(turn.input)) if turn.input else 0
    asked = bits.collect(set(turn.asked)) if in_input else everything
    return _WordSets(words, everything, len(words), asked, in_input)


def _describe_form(turn: ReadTurn, index: int) -> dict[str, float]:
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
        "number": min(index + 1, _LATE),
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
        stems = set(sentence.stems)
        share = len(stems & words_before.words) / len(stems) if stems else 0.0
        shares.append(share)
        if len(stems) > 2:
            long.append(share)
            fresh += share < _FRESH
        if _NO_WORK.isdisjoint(sentence.acts):
            work |= stems
    worked = len(work - words_before.words)
    shared = (mine & theirs).bit_count()
    either = size + words_before.size - shared
    return {
        "said_before": shared / max(1, size),
        "said_before_asked": _share(mine, words_before.asked),
        "said_before_input": _share(mine, words_before.input),
        "said_before_most": max(long, default=0.0),
        "said_before_least": min(long, default=1.0),
        "said_before_first": shares[0] if shares else 0.0,
        "said_before_jaccard": shared / either if either else 1.0,
        "covers_asked": _share(words_before.asked, mine),
        "covers_input": _share(words_before.input, mine),
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
    for number, (before, words_before) in enumerate(zip(earlier, words, strict=True)):
        seen |= words_before.all
        if before.by_user == turn.by_user:
            shared = (mine.all & words_before.all).bit_count()
            alike.append(shared / max(1, size + words_before.size - shared))
            within = max(within, shared)
        elif number != last:
            shared = (mine.all & words_before.asked).bit_count()
            old = max(old, shared)
            covered = max(covered, shared / max(1, words_before.asked.bit_count()))
    news = (mine.all & ~seen).bit_count() if alike else 0
    new_numbers = turn.numbers.difference(*[before.numbers for before in earlier]) if alike else ()
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


@cache
def _read_nothing() -> ReadTurn:
    """Return what stands before the first turn."""
    return read_turn("", by_user=False)


@cache
def list_names() -> tuple[str, ...]:
    """Return the names of the features, in their order."""
    return tuple(Features([_read_nothing()]).describe(0))
