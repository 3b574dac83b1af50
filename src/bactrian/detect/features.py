"""What a model knows of a turn besides its wording: overlap with the instruction, news, speech acts, form.

Every feature is a number with a name; :func:`explain_feature` says in words what it means, for findings.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence, Set
from functools import cache
from math import log1p
from typing import NamedTuple

from bactrian.detect.speech_acts import load_lexicon
from bactrian.detect.turns import BARE, ReadTurn

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
_FORMULA = re.compile(r"[=+^∑√≈→]|\\[a-z]+")


class Reason(NamedTuple):
    """What a feature says in words if its value is in a range."""

    beginning: str
    """Of the feature's name."""
    least: float
    most: float
    words: str


_MUCH, _LITTLE, _ANY = 0.5, 5.0, 1e9
_REASONS = (
    Reason("said_before", _MUCH, _ANY, "most of its words stand in the message before"),
    Reason("covers_asked", _MUCH, _ANY, "it says most words of the instruction"),
    Reason("old_instruction", _MUCH, _ANY, "it says most words of an earlier instruction"),
    Reason("new_words", 0, _LITTLE, "hardly any new word"),
    Reason("news", 0, _LITTLE, "hardly any new word"),
    Reason("fresh_sentences", 0, 0, "no sentence says something new"),
    Reason("like_own", _MUCH, _ANY, "its speaker has said almost the same before"),
    Reason("asked_again", _MUCH, _ANY, "the same was asked before"),
    Reason("worked", 0, 0, "no sentence of work"),
    Reason("work_sentences", 0, 0, "no sentence of work"),
    Reason("bare", 0, 0, "no sentence of work"),
    Reason("instructs", 1, 1, "a line begins with the marker of an instruction"),
    Reason("solves", 1, 1, "a line begins with the marker of a solution"),
    Reason("asks_next", 1, 1, "it asks for the next instruction"),
    Reason("questions", 1, _ANY, "it asks"),
    Reason("promise", 0.01, _ANY, "it promises"),
    Reason("accept", 0.01, _ANY, "it accepts"),
    Reason("delay", 0.01, _ANY, "it asks for time"),
    Reason("thanks", 0.01, _ANY, "it thanks"),
    Reason("leave", 0.01, _ANY, "it takes leave"),
    Reason("serve", 0.01, _ANY, "it offers help or waits for orders"),
    Reason("assign", 0.01, _ANY, "it gives the other work to do"),
    Reason("restate", 0.01, _ANY, "it says what is wanted"),
    Reason("deliver", 0.01, _ANY, "it hands something over"),
    Reason("finished", 0.01, _ANY, "it says that all is done"),
    Reason("refuse", 0.01, _ANY, "it declines"),
)


def explain_feature(name: str, value: float) -> str | None:
    """Return in words what a feature says; None if it says little to a reader."""
    for reason in _REASONS:
        if name.startswith(reason.beginning) and reason.least <= value <= reason.most:
            return reason.words
    return None


def describe_turns(turns: Sequence[ReadTurn]) -> list[dict[str, float]]:
    """Return the features of each turn of a conversation."""
    described: list[dict[str, float]] = []
    for place, turn in enumerate(turns):
        before = described[-1] if described else None
        described.append(
            {
                **_describe_form(turn),
                **_describe_acts(turn),
                **_compare_before(turn, turns[place - 1] if place else NOTHING),
                **_compare_earlier(turn, turns[max(0, place - REMEMBERED) : place]),
                # The turn before compared with earlier ones of its speaker.
                "asked_again": before["like_own"] if before else 0.0,
                "asked_again_within": before["like_own_within"] if before else 0.0,
            }
        )
    return described


def _describe_form(turn: ReadTurn) -> dict[str, float]:
    sentences = turn.sentences
    count = max(1, len(sentences))
    questions = sum(sentence.asks for sentence in sentences)
    return {
        "length": log1p(len(turn.stems)),
        "sentences": len(sentences),
        "words_per_sentence": len(turn.stems) / count,
        "questions": questions,
        "questions_share": questions / count,
        "questions_last": bool(sentences and sentences[-1].asks),
        "exclaims": (turn.prose.count("!") + turn.prose.count("！")) / count,
        "instructs": turn.instructs,
        "gives_input": turn.gives_input,
        "solves": turn.solves,
        "asks_next": turn.asks_next,
        "is_done": turn.is_done,
        "numbers": len(turn.numbers),
        "numbers_sentences": sum(sentence.has_number for sentence in sentences) / count,
        "code": turn.has_code,
        "code_lines": turn.code_lines,
        "items": len(_ITEM.findall(turn.prose)),
        "quotes": sum(sentence.has_quote for sentence in sentences) / count,
        "colons": turn.prose.count(":") + turn.prose.count("："),
        "formula": _FORMULA.search(turn.prose) is not None,
        "table": "|" in turn.prose,
        "number": min(turn.number, _LATE),
    }


def _describe_acts(turn: ReadTurn) -> dict[str, float]:
    sentences = turn.sentences
    count = max(1, len(sentences))
    shown = Counter([act for sentence in sentences for act in sentence.acts])
    first = sentences[0].acts if sentences else frozenset[str]()
    last = sentences[-1].acts if sentences else frozenset[str]()
    described = dict.fromkeys(_name_acts(), 0.0)
    for act, times in shown.items():
        described[f"{act}_share"] = times / count
        described[f"{act}_count"] = times
    for act in first:
        described[f"{act}_first"] = 1.0
    for act in last:
        described[f"{act}_last"] = 1.0
    bare = [sentence for sentence in sentences if sentence.acts <= BARE]
    work = sum(not sentence.acts & _SOFT for sentence in sentences)
    return {
        **described,
        "bare": len(bare),
        "bare_share": len(bare) / count,
        "bare_words": sum(len(sentence.words) for sentence in bare) / max(1, len(turn.stems)),
        "bare_numbers": sum(sentence.has_number for sentence in bare),
        "work_sentences": work,
        "work_sentences_share": work / count,
    }


@cache
def _name_acts() -> tuple[str, ...]:
    of = ("share", "count", "first", "last")
    return tuple(f"{act}_{measure}" for act in load_lexicon().acts for measure in of)


def _compare_before(turn: ReadTurn, before: ReadTurn) -> dict[str, float]:
    """Compare a turn with the one that it answers."""
    mine, theirs = turn.stem_set, before.stem_set
    shares = [_share(sentence.stems, theirs) for sentence in turn.sentences if len(sentence.stems) > 2]
    fresh = sum(share < _FRESH for share in shares)
    working = [sentence for sentence in turn.sentences if not sentence.acts & _NO_WORK]
    worked = frozenset[str]().union(*[sentence.stems for sentence in working]) - theirs
    return {
        "said_before": _share(mine, theirs),
        "said_before_asked": _share(mine, before.asked),
        "said_before_input": _share(mine, before.given),
        "said_before_most": max(shares, default=0.0),
        "said_before_least": min(shares, default=1.0),
        "said_before_first": _share(turn.sentences[0].stems, theirs) if turn.sentences else 0.0,
        "said_before_jaccard": _jaccard(mine, theirs),
        "covers_asked": _share(before.asked, mine),
        "covers_input": _share(before.given, mine),
        "new_words": len(mine - theirs),
        "new_numbers": len(turn.numbers - before.numbers),
        "fresh_sentences": fresh,
        "worked": log1p(len(worked)),
        "worked_share": len(worked) / max(1, len(mine)),
        "fresh_sentences_share": fresh / max(1, len(turn.sentences)),
        "length_ratio": min(4.0, len(turn.stems) / max(1, len(before.stems))),
        "before_length": log1p(len(before.stems)),
        "before_questions": sum(sentence.asks for sentence in before.sentences),
        "before_instructs": before.instructs,
        "before_asks_next": before.asks_next,
        "before_solves": before.solves,
        "before_is_done": before.is_done,
    }


def _compare_earlier(turn: ReadTurn, earlier: Sequence[ReadTurn]) -> dict[str, float]:
    """Compare a turn with what was said before."""
    mine, size = turn.stem_set, max(1, len(turn.stem_set))
    alike: list[float] = []
    within = old = covered = 0.0
    for one in earlier:
        if one.by_user == turn.by_user:
            theirs = one.stem_set
            shared = len(mine & theirs)
            alike.append(shared / max(1, size + len(theirs) - shared))
            within = max(within, shared / size)
        elif one is not earlier[-1]:
            shared = len(mine & one.asked)
            old = max(old, shared / size)
            covered = max(covered, shared / max(1, len(one.asked)))
    news = mine.difference(*[one.stem_set for one in earlier]) if alike else ()
    return {
        "like_own": max(alike, default=0.0),
        "like_own_last": alike[-1] if alike else 0.0,
        "like_own_recent": max(alike[-3:], default=0.0),
        "like_own_within": within,
        "news_share": len(news) / size,
        "news": len(news),
        "news_numbers": len(turn.numbers.difference(*[one.numbers for one in earlier])) if alike else 0,
        "old_instruction": old,
        "old_instruction_covered": covered,
    }


def _share(part: Set[str], whole: Set[str]) -> float:
    """Return the share of ``part`` that is in ``whole``."""
    return len(part & whole) / len(part) if part else 0.0


def _jaccard(one: Set[str], other: Set[str]) -> float:
    shared = len(one & other)
    return shared / (len(one) + len(other) - shared) if shared else float(not one and not other)


_EMPTY: frozenset[str] = frozenset()
NOTHING = ReadTurn(
    number=0,
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
    stem_set=_EMPTY,
    asked=_EMPTY,
    given=_EMPTY,
    numbers=_EMPTY,
)
"""What stands before the first turn."""
