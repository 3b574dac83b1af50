"""The inception protocol: the text form of instructions and solutions (paper, section 3.2 and figure 2).

Turns are parsed leniently, because models decorate markers (``**Instruction:**``), translate them (``Anweisung:``), use
the colon of another script (``Instruction：``) and add a preface. Markers inside fenced code blocks are ignored. One
pattern parses the turns of both agents: an instruction from the AI user is a role flip if the AI assistant writes it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Literal

from bactrian.records.turn import Instruction, Solution

Marker = Literal["Instruction", "Input", "Solution", "Next request"]

_LANGUAGES = tomllib.loads(resources.files("bactrian.protocol").joinpath("languages.toml").read_text("utf-8"))
MARKERS: Mapping[str, Mapping[Marker, str]] = MappingProxyType(_LANGUAGES["markers"])
"""Alternatives of a regular expression, by language name from :func:`identify_language`."""
# Words for "no input" in all of the languages, as alternatives of a regular expression.
NOTHING = (
    "none|n/a|nothing|لا يوجد|لا شيء|keine?|ninguno|ninguna|aucune?"
    "|कोई नहीं|nessuno|nessuna|なし|無し|없음|нет|无|無"
)


DONE = "<CAMEL_TASK_DONE>"  # The done token: the AI user says it, alone, when the task is solved.

# A block may begin behind a marker: "Solution: ```python".
_FENCED = re.compile(r"(?:^|(?<=[:：*]))[ \t]*(```|~~~).*?(?:^[ \t]*\1[^\n]*$|\Z)", re.MULTILINE | re.DOTALL)
_NO_INPUT = re.compile(rf"(?:{NOTHING})?[.。\s]*", re.IGNORECASE)
_WRAPPING = " \t\r\n*_`\"'.!"
_QUOTATION_MARKS = _WRAPPING + "“”„«»\u2018\u2019「」\u00a0\u202f"
# The done token inside a quotation.
_QUOTED = re.compile(
    rf"`[^`\n]*{DONE}[^`\n]*`|\"[^\"\n]*{DONE}[^\"\n]*\"|[“„«][^”“»\n]*{DONE}[^”“»\n]*[”“»]"
    rf"|(?<!\w)'[^'\n]*{DONE}[^'\n]*'(?!\w)|^[ \t]*>[^\n]*{DONE}[^\n]*",
    re.MULTILINE,
)
# Words that show that a sentence mentions the done token instead of using it.
_MENTION = re.compile(
    r"\b(?:say|write|reply|respond|send|use|type|will|would|when|until|unless|once|not|never|before|token)\b|n't\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"[.!?。！？]+\s|\n")


@dataclass(frozen=True, slots=True)
class _Patterns:
    """Patterns of the markers of one language, the English ones included."""

    hints: Mapping[Marker, tuple[str, ...]]
    """Plain substrings; a text with the marker contains at least one of them."""
    leading: Mapping[Marker, re.Pattern[str]]  # The marker at the start of a line.
    inside: Mapping[Marker, re.Pattern[str]]  # The marker after the end of a sentence or phrase.
    next_request: re.Pattern[str]

    def find(self, marker: Marker, text: str, start: int = 0) -> re.Match[str] | None:
        """Find the marker at the start of a line, otherwise at the start of a sentence or phrase; None if not found."""
        hints = self.hints[marker]
        if len(hints) == 1:  # English, the common case: a generator would cost more than the search.
            first = text.find(hints[0], start)
        else:
            first = min((at for word in hints if (at := text.find(word, start)) >= 0), default=-1)
        if first < 0:
            return None
        # A match is on the line of a word of the marker: plain searches are much faster than to try the patterns
        # at each character before that line.
        line = max(start, text.rfind("\n", start, first) + 1)
        return self.leading[marker].search(text, line) or self.inside[marker].search(text, line)

    def may_contain(self, marker: Marker, text: str) -> bool:
        """Return True if ``text`` contains a word of the marker anywhere; a check that is cheaper than the patterns."""
        hints = self.hints[marker]
        if len(hints) == 1:  # English, the common case: a generator would cost more than the search.
            return hints[0] in text
        return any(word in text for word in hints)


@cache
def _build_patterns(language: str) -> _Patterns:
    translated: Mapping[Marker, str] = MARKERS.get(language, {})

    def words(marker: Marker) -> tuple[str, ...]:
        return tuple(dict.fromkeys((marker, *translated.get(marker, marker).split("|"))))

    hints: dict[Marker, tuple[str, ...]] = {}
    leading: dict[Marker, re.Pattern[str]] = {}
    inside: dict[Marker, re.Pattern[str]] = {}
    markers: tuple[Marker, ...] = ("Instruction", "Input", "Solution")
    for marker in markers:
        hints[marker] = words(marker)
        either = rf"(?:{'|'.join(map(re.escape, words(marker)))})"
        # Bold before the marker closes after it: **Instruction:** or **Instruction**: are both common. French has a
        # space before its colon. CAMEL's agents that have tools write "Solution&Action:".
        more = r"(?:[ ]?\#?\d{1,3}|[ ]?&[ ]?Actions?)?"
        bold = rf"(\*\*|__)?{either}{more}(?(1)(?:{_COLON}\1|\1{_COLON})|{_COLON})[ \t]*"
        leading[marker] = re.compile(rf"^[ \t>#]*{bold}", re.MULTILINE)
        inside[marker] = re.compile(rf"(?:{_PHRASE_END})[ \t]*{bold}")
    hints["Next request"] = words("Next request")
    ends = "|".join(re.escape(word).replace(r"\ ", " ") for word in words("Next request"))
    last = re.compile(rf"(?:{ends})[.。]?(?:\*\*|__)?\s*\Z")
    return _Patterns(
        MappingProxyType(hints),
        MappingProxyType(leading),
        MappingProxyType(inside),
        last,
    )


_COLON = "[ \u00a0\u202f]?[:：]"
_PHRASE_END = r"(?<=[.!?,;)…—–。！？，；）”])|(?<=[.!?][\"')*_])|(?<=[.!?]\*\*)|(?<= -)"


def read_instruction(text: str, language: str | None = None) -> Instruction | None:
    """Parse an AI user's turn; None if it contains no instruction.

    ``language`` is the session's; its markers count in addition to the English ones.
    """
    visible, patterns = strip_code(text), _pick_patterns(language)
    marker = patterns.find("Instruction", visible)
    if marker is None:
        return None
    rest = marker.end()
    split = patterns.find("Input", visible, rest)
    instruction = text[rest : split.start() if split else None].strip()
    if not instruction.strip(_WRAPPING) or instruction.lstrip(_WRAPPING).startswith(DONE):
        return None
    input_text = text[split.end() :].strip() if split else ""
    return Instruction(
        instruction,
        None if _NO_INPUT.fullmatch(input_text) else input_text,
        text[: marker.start()].strip(),
    )


def read_solution(text: str, language: str | None = None) -> Solution | None:
    """Parse an AI assistant's turn; None if it contains no solution marker."""
    patterns = _pick_patterns(language)
    marker = patterns.find("Solution", strip_code(text))
    if marker is None:
        return None
    body = text[marker.end() :]
    # Searching only at the last occurrence: from the beginning, the pattern would try every space of a long solution.
    last = max(map(body.rfind, patterns.hints["Next request"]))
    asks_next = last >= 0 and patterns.next_request.match(body, last) is not None
    if asks_next:
        body = body[: last - 2 if body.endswith(("**", "__"), 0, last) else last]
    return Solution(body.strip(), asks_next=asks_next, preface=text[: marker.start()].strip())


def write_instruction(instruction: str, input_text: str | None = None) -> str:
    """Return an instruction as text, with its input or ``None``."""
    return f"Instruction: {instruction}\nInput: {input_text or 'None'}"


def write_solution(solution: str) -> str:
    """Return a solution as text, with the request for the next instruction."""
    return f"Solution: {solution}\nNext request."


def is_done(text: str, language: str | None = None) -> bool:
    """Return True if an AI user's turn says that the task is done.

    The turn must contain no instruction, and the done token alone, at its end, or anywhere outside code and
    quotations. A token that a sentence only mentions ("I will say … when we are through") does not count.
    """
    if DONE not in text or read_instruction(text, language) is not None:
        return False
    alone = text.strip(_QUOTATION_MARKS) == DONE
    return alone or text.rstrip(_WRAPPING).endswith(DONE) or _has_done_token(text)


def _has_done_token(text: str) -> bool:
    visible = _QUOTED.sub(lambda quoted: " " * len(quoted[0]), strip_code(text))
    for sentence in _SENTENCE_END.split(visible):
        before, token, after = sentence.partition(DONE)
        if token and not _MENTION.search(before) and (not before.strip() or not _MENTION.search(after)):
            return True
    return False


def find_instruction(text: str, language: str | None = None) -> re.Match[str] | None:
    """Find the marker of an instruction, which only the AI user may give; None if not found."""
    patterns = _pick_patterns(language)
    if not patterns.may_contain("Instruction", text):
        return None
    return patterns.find("Instruction", strip_code(text))


def strip_code(text: str) -> str:
    """Replace fenced code with spaces, so that positions stay the same."""
    if "```" not in text and "~~~" not in text:
        return text
    return _FENCED.sub(lambda block: "\n".join([" " * len(line) for line in block[0].split("\n")]), text)


def identify_language(language: str | None) -> str:
    """Return the lower-case English name of a language given by name or code; English for None."""
    if not language:
        return "english"
    names: Mapping[str, str] = _LANGUAGES["names"]
    known = language.strip().lower()
    first = re.split(r"[-_ (,]", known, maxsplit=1)[0]
    return names.get(known) or names.get(first, first)


def _pick_patterns(language: str | None) -> _Patterns:
    if language is None:
        return _build_patterns("english")
    return _build_patterns(identify_language(language) or "english")


# Numbering of list items.


BOLD = r"(?:\*\*|__)?"
AFTER = rf"{BOLD}\s*(?P<item>.*)$"
NUMBERED = re.compile(
    rf"^(?:\#{{1,6}}\s+)?{BOLD}(?:(?:item|task|role|topic|subtopic|problem|question|n[or]\.?)\s+)?"
    rf"\#?[(\[\uff08]?(?P<value>\d{{1,6}})(?:st|nd|rd|th)?{BOLD}"
    rf"(?:\s*\\?(?:[.:\uff0e\uff1a。]\)?(?!\d)|[)\]\uff09、][.:]?)|\s*[-–—](?=\s)){AFTER}",
    re.IGNORECASE,
)


def strip_count(items: Sequence[str]) -> list[str]:
    """Remove the numbers from ``items`` if they count up from 1."""
    matches = [NUMBERED.match(item) for item in items]
    values = [int(match["value"]) for match in matches if match]
    if len(items) < 2 or values != list(range(1, len(items) + 1)):
        return list(items)
    return [match["item"] for match in matches if match]
