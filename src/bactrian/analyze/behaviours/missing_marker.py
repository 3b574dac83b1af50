"""Missing marker: a turn without the word of the protocol that it must carry (paper, figure 2).

That is ``Instruction:`` for the AI user, unless it says that the task is done, and ``Solution:`` for the AI assistant.
Only a marker that the protocol reads counts, at the start of a line or inside one; one in small letters or in another
language is a marker, though none that a program finds, and makes the finding unsure. A turn that says nothing is empty.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bactrian.analyze.behaviours.empty_turn import is_empty
from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.records.finding import Finding

_OTHER_FORMS = {
    True: re.compile(
        r"^[ \t>#*_-]*(?:instruction|anweisung|instrucci[oó]n|istruzione|инструкция|指令|指示|지시|निर्देश"
        r"|تعليمات)[ *_]*[:：]",
        re.MULTILINE | re.IGNORECASE,
    ),
    False: re.compile(
        r"^[ \t>#*_-]*(?:solution|lösung|soluci[oó]n|soluzione|решение|解决方案|解決策"
        r"|解答|해결책|समाधान|الحل)[ *_]*[:：]",
        re.MULTILINE | re.IGNORECASE,
    ),
}


def detect_missing_markers(reading: SessionReading) -> Iterator[Finding]:
    """Yield turns of a role-play that the protocol cannot read."""
    if not reading.role_play:
        return
    for heard in reading.heard:
        if heard.turn.said is not None or heard.is_done or is_empty(heard):
            continue
        confidence = 0.4 if _other_form(heard) else 1.0
        yield reading.make_finding(heard, "missing_marker", confidence, heard.turn.text)


def _other_form(heard: HeardTurn) -> bool:
    return _OTHER_FORMS[heard.by_user].search(heard.plain) is not None
