"""Loops: turns in a row that bring nothing new.

The behaviour ``infinite_loop`` and the ending ``repeat_loop`` both call :func:`count_void_turns`, so that a session
that ends because of a loop is reported for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from bactrian.detect.detector import DetectedConversation, DetectorModel, load_model
from bactrian.detect.features import REMEMBERED
from bactrian.detect.turn_text import ReadTurn, Spoken, compute_jaccard, read_turn

LOOP = "infinite_loop"
SHORTEST_LOOP = 4  # turns in a row (two rounds) that make a loop
_SHORT = 200  # characters of a turn that may be mere courtesy
_ALIKE = 0.9  # least Jaccard similarity of the words of turns that say the same again
_NEARLY = 0.7  # the same of a turn that can be asked for again
_NEWS = 0.6  # share of new words above which turns are not a loop
# Log odds that the turns of a loop have on average, or eight of them together: on real conversations, what is found so
# is right nine times in ten. Less is enough for courtesies, whose turns have few words.
_SURE, _FULL = 4.5, 8
_SURE_SHORT, _COURTESY = 2.5, 30
_NUMBER = re.compile(r"\b[^\W\d]*+\d\w*")
_DIGITS = re.compile(r"\d\w*")  # the same from its first digit on
# Turns that are kept as read, so that each is read once though the ending is asked after every turn.
_KEPT = 512
_MEMORY = 10  # turns before, in which a number is looked up


def count_void_turns(detected: DetectedConversation) -> list[int]:
    """Return, for each turn, how many turns up to it bring nothing new in a row; in rows that are long enough."""
    counts = [0] * len(detected.turns)
    # A loop takes up one place in four: only where such a turn is void are its neighbours looked at.
    index = SHORTEST_LOOP - 1
    while index < len(counts):
        if not _is_void(detected, index):
            index += SHORTEST_LOOP
            continue
        begin = index
        while begin and _is_void(detected, begin - 1):
            begin -= 1
        end = begin
        while end < len(counts) and _is_void(detected, end):
            counts[end] = end - begin + 1
            end += 1
        index = end + SHORTEST_LOOP
    if any(
        _is_repeated(detected.turns, index) for index in range(SHORTEST_LOOP - 1, len(counts), SHORTEST_LOOP)
    ):
        return [max(pair) for pair in zip(counts, count_repeats(detected.turns), strict=True)]
    return counts


def is_sure(detected: DetectedConversation, turns: Sequence[int]) -> bool:
    """Return True if turns that bring nothing new are a loop for sure."""
    scores = [detected.score(detected.model.get_head(LOOP), index) for index in turns]
    if sum(scores) >= _SURE * min(len(scores), _FULL):
        return True
    longest = max((len(detected.turns[index].stems) for index in turns), default=0)
    return longest <= _COURTESY and sum(scores) >= _SURE_SHORT * len(scores)


def _is_void(detected: DetectedConversation, index: int) -> bool:
    """Return True if a turn brings nothing new."""
    turn = detected.turns[index]
    if turn.is_done or not turn.stems:
        return not turn.is_done
    return detected.is_shown(detected.model.get_head(LOOP), index)


def count_repeats(turns: Sequence[ReadTurn]) -> list[int]:
    """Return, for each turn, how many turns up to it say in a row what their speaker said the turn before.

    The first round is not counted: nothing is said again in it.
    """
    counts: list[int] = []
    for index in range(len(turns)):
        counts.append(counts[-1] + 1 if _is_repeated(turns, index) else 0)
    return counts


def _is_repeated(turns: Sequence[ReadTurn], index: int) -> bool:
    """Return True if a turn has the same words as its speaker's turn before but for a few, and the same numbers."""
    if index < 2 or turns[index].numbers != turns[index - 2].numbers:
        return False
    stems, earlier = turns[index].stems, turns[index - 2].stems
    return stems == earlier or compute_jaccard(frozenset(stems), frozenset(earlier)) >= _ALIKE


def _brings_number(turns: Sequence[Spoken], index: int) -> bool:
    """Return True if a turn contains a number, or a word with a digit, that the turns before it do not."""
    text = turns[index].text
    if not (ends := _DIGITS.findall(text)):
        return False
    before = "\n".join([turn.text for turn in turns[max(0, index - _MEMORY) : index]])
    for end in ends:
        if end not in before:
            return True
    # The words from their beginning on: it takes five times as long to find these, so only where it matters.
    return any(number not in before for number in _NUMBER.findall(text))


def can_be_loop(turns: Sequence[Spoken], length: int) -> bool:
    """Return False if the last ``length`` turns are obviously no loop, without reading them.

    A round with a new number ("Do part 14.") is not one, to be on the safe side: an ending stops a conversation.
    Of the loops' turns in the corpus by authors, 5 of 703 bring one; of those of the built-in model, 14 of 177.
    """
    if len(turns) < length:
        return False
    if _brings_number(turns, len(turns) - 2) or _brings_number(turns, len(turns) - 1):
        return False
    last = turns[-1].text
    if len(last) > _SHORT and _measure_news([turns[-3].text, last]) > _NEWS:
        return False
    return _measure_news([turn.text for turn in turns[-length:]]) <= _NEWS


def is_loop(turns: Sequence[Spoken], length: int, model: DetectorModel | None = None) -> bool:
    """Return True if the last ``length`` turns bring nothing new, for sure: an ending stops a conversation.

    Costs microseconds for turns that are obviously no loop. Others are scored from the last one back, until one brings
    something. Turns that were read at an earlier call are not read again.
    """
    if not can_be_loop(turns, length):
        return False
    # What came earlier changes no feature of these turns.
    recent = [_read_turn(turn.text, turn.speaker == "user") for turn in turns[-length - REMEMBERED - 2 :]]
    newest_first = range(len(recent) - 1, len(recent) - 1 - length, -1)
    # The first round of a repetition is part of the loop, though nothing is said again in it yet.
    if all(_is_repeated(recent, index) for index in newest_first[:-2]):
        return True
    # The scores of its sentences change with no later turn: they are kept, too.
    sentences = [_score_sentences(turn.text, turn.by_user) for turn in recent] if model is None else ()
    detected = DetectedConversation(model or load_model(), recent, sentences)
    if not all(_is_void(detected, index) for index in newest_first):
        return False
    return is_sure(detected, [index for index in newest_first if recent[index].stems])


@lru_cache(maxsize=_KEPT)
def _read_turn(text: str, by_user: bool) -> ReadTurn:
    return read_turn(text, by_user=by_user)


@lru_cache(maxsize=_KEPT)
def _score_sentences(text: str, by_user: bool) -> Mapping[str, Sequence[float]]:
    return load_model().score_sentences(_read_turn(text, by_user))


def is_repetition(turns: Sequence[Spoken]) -> bool:
    """Return True if the last turn is useless: its speaker said nearly the same before, or it repeats the
    instruction that it answers, or it is the second in a row that brings nothing new.
    """
    read = [_read_turn(turn.text, turn.speaker == "user") for turn in turns]
    stems = frozenset(read[-1].stems)
    if any(compute_jaccard(stems, frozenset(turn.stems)) >= _NEARLY for turn in read[-3::-2]):
        return True
    detected = DetectedConversation(load_model(), read[-REMEMBERED - 3 :])
    last = len(detected.turns) - 1
    if last and _is_void(detected, last) and _is_void(detected, last - 1):
        return True
    return any(
        detected.is_shown(head, last)
        for head in detected.model.heads
        if head.behaviour == "repeats_instruction" and head.applies_to(read[-1])
    )


def _measure_news(texts: Sequence[str]) -> float:
    """Return the share of the words of all texts but the first that no text before has."""
    seen = _split_words(texts[0])
    words = new = 0
    for text in texts[1:]:
        mine = _split_words(text)
        words += len(mine)
        new += len(mine - seen)
        seen |= mine
    return new / max(1, words)


def _split_words(text: str) -> set[str]:
    """Return the words; of a text without spaces, the characters."""
    words = text.lower().split()
    return set(words) if len(words) > 1 or len(text) < 20 else set(text)
