"""Done too early: the AI user says that the task is done, and nothing is solved.

No turn of the AI assistant before it contains any work: there is none, or each is empty, a promise, a refusal or the
instruction again. The done token in a turn that still instructs comes too early as well. How *well* the task is solved
is a question for a judge.
"""

from __future__ import annotations

from collections.abc import Iterator

from bactrian.analyze.behaviours.cooperation import is_failure
from bactrian.analyze.behaviours.empty_turn import is_empty
from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.analyze.behaviours.refusal import is_refusal
from bactrian.language.protocol import DONE, find_instruction, strip_code
from bactrian.records.finding import Finding
from bactrian.records.turn import Instruction

_LIKELY = 0.5


def detect_early_done(reading: SessionReading) -> Iterator[Finding]:
    """Yield done tokens before which nothing was solved."""
    for place, heard in enumerate(reading.heard):
        if heard.by_user and DONE in heard.turn.text:
            before = (one for one in reading.heard[:place] if not one.by_user)
            if heard.is_done and not any(_is_work(reading, one) for one in before):
                yield reading.make_finding(heard, "early_done", 0.9, heard.turn.text)
            elif _goes_on(heard):
                yield reading.make_finding(heard, "early_done", 0.7, heard.turn.text)


def _is_work(reading: SessionReading, heard: HeardTurn) -> bool:
    declined = is_refusal(heard)
    return not (
        is_empty(heard)
        or find_instruction(heard.turn.text)
        or (declined is not None and declined[0] >= _LIKELY)
        or is_failure(reading, heard)
        or not reading.detected.describe(heard.turn.number - 1)["work_sentences"]
    )


def _goes_on(heard: HeardTurn) -> bool:
    """Return True if the token ends a turn that instructs, not merely quoted in the middle of a sentence or in code."""
    if not isinstance(heard.turn.said, Instruction):
        return False
    return any(line.strip(" *_`.") == DONE for line in strip_code(heard.turn.text).splitlines())
