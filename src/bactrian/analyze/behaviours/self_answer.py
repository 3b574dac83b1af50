"""Self-answer: the AI user instructs and answers in the same turn.

After its instruction a line begins with ``Solution:`` or with the assistant's name, or the turn ends by asking for the
next request. A solution that is handed over as the input, to be checked or improved, is no answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.language.protocol import find_instruction
from bactrian.records.finding import Finding

_ANSWER = re.compile(r"\n[ \t>#*_-]*(?:solution|answer|response)[*_]*[ ]?:(?!\s*\n*\s*$)", re.IGNORECASE)
_ANSWER_INLINE = re.compile(r"input:[ \t*_]*none[.]?[ \t*_]+(?:solution|answer)[*_]*:", re.IGNORECASE)
_NEXT = re.compile(r"\bnext request\.?[*_\s]*\Z", re.IGNORECASE)
_ABOUT_IT = re.compile(
    r"\b(?:check|review|improve|correct|verify|evaluate|assess|rate|grade|fix|rewrite|translate|compare|explain"
    r"|following"
    r"|template|format|structure|proofread|critique|debug|summari[sz]e|complete|fill)\b",
    re.IGNORECASE,
)
_HINTS = ("solution", "answer", "response", "next request", "assistant")


def detect_self_answers(reading: SessionReading) -> Iterator[Finding]:
    """Yield turns of the AI user that answer themselves."""
    name = reading.session.assistant.name.lower()
    for heard in reading.heard:
        if not heard.by_user or not _may(heard, name):
            continue
        begins = find_instruction(heard.turn.text)
        if begins is None:
            continue
        found = _answer(heard.plain[begins.end() :], name)
        if found is not None:
            confidence, quote = found
            yield reading.make_finding(heard, "self_answer", confidence, quote)


def _may(heard: HeardTurn, name: str) -> bool:
    lower = heard.lower
    return any(hint in lower for hint in _HINTS) or (len(name) > 2 and f"{name}:" in lower)


def _answer(rest: str, name: str) -> tuple[float, str] | None:
    answer = _ANSWER.search(rest) or _ANSWER_INLINE.search(rest)
    if answer is not None:
        # An input of its own lines, between the instruction that is about it and the end, may contain the word.
        given = re.search(
            r"^[ \t>#*_]*input[*_]*:[*_ \t]*(\S+)?", rest[: answer.start() + 1], re.IGNORECASE | re.MULTILINE
        )
        handed_over = given is not None and (given[1] or "").strip("*_.").lower() not in ("none", "n/a")
        about_it = handed_over and _ABOUT_IT.search(rest[: given.start()] if given else rest) is not None
        return (0.4 if about_it else 0.9), rest[answer.start() :]
    speaker = re.search(rf"\n[ \t>#*_-]*(?:(?:ai )?assistant|{re.escape(name)})[*_]*:", rest, re.IGNORECASE)
    if speaker is not None:
        return 0.8, rest[speaker.start() :]
    asks = _NEXT.search(rest)
    return None if asks is None else (0.8, rest[asks.start() :])
