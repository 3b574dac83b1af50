"""Infinite loop: the agents go on without anything new (paper, section 4.1).

They thank, take leave, praise, wait for each other, or say the same again. A turn is void if it does only that, or if
it is empty. Two rounds in a row, four turns, that are void make a loop; every turn that goes on the loop is a finding.
One polite round, or thanks before the next instruction, makes none.
"""

from __future__ import annotations

from collections.abc import Iterator

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.language.courtesy import find_topic, is_courtesy
from bactrian.language.similarity import ALIKE, is_alike
from bactrian.records.finding import Finding

_TURNS = 4
"""Void turns in a row that make a loop."""
_REMEMBERED = 3
"""Earlier turns of the same speaker that a turn is compared with."""
_LOOSELY = 0.5
"""Share of their words that two instructions have in common which rightly get the same answer."""
_NO_CHANCE = 12
"""Words of an answer that is not right twice by chance."""


def detect_infinite_loops(reading: SessionReading) -> Iterator[Finding]:
    """Turns that go on a loop of at least two rounds."""
    void = 0
    before = 0
    """``void`` as it was before the AI user's last turn, for the case that its answer shows that to be void, too."""
    topic = find_topic(reading.session)
    earlier: dict[bool, list[HeardTurn]] = {True: [], False: []}
    for heard in reading.heard:
        mine = earlier[heard.by_user]
        alike = any(_alike(heard, other) for other in mine[-_REMEMBERED:])
        if heard.is_done or not (alike or is_polite(heard, topic)):
            before, void = (void if heard.by_user else 0), 0
        elif void == 0 and alike and not heard.by_user and _asked_alike(heard, earlier[True]):
            void = before + 2
        else:
            void += 1
        mine.append(heard)
        if void >= _TURNS:
            confidence = round(min(1.0, 0.6 + 0.1 * (void // 2)), 2)
            yield reading.make_finding(heard, "infinite_loop", confidence, heard.body or heard.turn.text)


def is_polite(heard: HeardTurn, topic: frozenset[str] = frozenset()) -> bool:
    """True if a turn does nothing but be polite, wait or agree; or nothing at all.

    Args:
        heard: The turn.
        topic: Words that a polite sentence may hold, as in "Good luck with the trading bot!".
    """
    return is_courtesy(heard.body, topic, by_user=heard.by_user)


def _asked_alike(heard: HeardTurn, asked: list[HeardTurn]) -> bool:
    """True if an answer that was given before answers much the same, or is too long to be right twice by chance."""
    if len(heard.word_list) >= _NO_CHANCE:
        return True
    return len(asked) > 1 and any(
        _alike(asked[-1], other, _LOOSELY) for other in asked[-_REMEMBERED - 1 : -1]
    )


def _alike(one: HeardTurn, other: HeardTurn, least: float = ALIKE) -> bool:
    """True if two turns are the same but for a word here and there."""
    return one.turn.text == other.turn.text or is_alike(one.words, other.words, least)
