"""Truncated turn: it stops before it is finished.

The endpoint says so (``finish`` is ``length``), or the text does: a block of code that is never closed, a last line
that ends with a comma, an opening bracket or a word that needs another one, a numbered list whose last number stands
alone, or a paragraph of sentences whose last one has no end. Titles, lists, verses and signatures end without a full
stop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from bactrian.analyze.behaviours.reading import HeardTurn, SessionReading
from bactrian.records.finding import Finding

_SHORTEST = 60
"""Characters; no text that is shorter was cut at a limit."""
_ENDED = ".!?…。！？।؟:\"'”’»」)]}>`*_|~$%;"
_OPEN = re.compile(r"(?:[(\[{,，、=+]|[–—-])\Z")
_NEEDS_ANOTHER = frozenset(
    (
        "a an the and or but nor of to with for from into onto by at as than because if while although whose "
        "which is are was were be been will would can could should must may might your my our their its his "
        "these those such very between during about including und oder der die das ein eine et ou le la les "
        "un une des du de y o el los las un una con per di il"
    ).split()
)
_FENCE = re.compile(r"^[ \t]*(```|~~~)", re.MULTILINE)
_NUMBER = re.compile(r"(\d{1,2})[.)]")
_SENTENCES = re.compile(r"[a-zà-ÿ)\"”][.!?]\s+[A-ZÀ-Þ\"“]")
_LIST_ITEM = re.compile(r"\s*(?:[-*•#>|]|\d+[.)])")
_FEWEST_WORDS = 4


def detect_truncated_turns(reading: SessionReading) -> Iterator[Finding]:
    """Yield turns that are cut off."""
    for heard in reading.heard:
        confidence = _truncated(heard)
        if confidence:
            yield reading.make_finding(heard, "truncated_turn", confidence, heard.turn.text.rstrip()[-60:])


def _truncated(heard: HeardTurn) -> float:
    if heard.turn.finish == "length":
        return 1.0
    text = heard.turn.text.rstrip()
    if len(text) < _SHORTEST or heard.is_done:
        return 0.0
    if "```" in text and len(_FENCE.findall(text)) % 2:
        return 0.8
    if text[-1] in _ENDED:
        return _lonely_number(text)
    last = text[text.rfind("\n") + 1 :]
    # Code, and text after the marker of the input, end in other ways than prose.
    if heard.plain.rstrip() != text or "=" in last[:-1]:
        return 0.0
    words = last.split()
    if len(words) < _FEWEST_WORDS:
        return 0.0
    if _OPEN.search(last) or words[-1].lower() in _NEEDS_ANOTHER:
        return 0.8
    return 0.6 if _is_cut_prose(last) else 0.0


def _is_cut_prose(line: str) -> bool:
    """Return True if a line contains whole sentences and then one without an end."""
    if not line[-1].isalpha() or _LIST_ITEM.match(line) or "://" in line:
        return False
    ends = [found.end() - 1 for found in _SENTENCES.finditer(line)]
    return bool(ends) and len(line[ends[-1] :].split()) >= _FEWEST_WORDS


def _lonely_number(text: str) -> float:
    """Return the confidence that the last number of a list lacks its item."""
    if text[-1] not in ".)":
        return 0.0
    lines = text.rsplit("\n", 1)
    number = _NUMBER.fullmatch(lines[-1].strip())
    if number is None or len(lines) == 1:
        return 0.0
    return 0.8 if re.search(rf"^\s*{int(number[1]) - 1}[.)] ", lines[0], re.MULTILINE) else 0.0
