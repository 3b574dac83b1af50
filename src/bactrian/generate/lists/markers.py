"""How models mark the items of a list: by a number, a letter, a bullet or a heading."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from bactrian.language.numbering import AFTER, BOLD, NUMBERED

_LABELLED = re.compile(
    rf"^(?:\#{{1,6}}\s+)?{BOLD}(?P<label>[^\W\d_]+)\s*\#?(?P<value>\d{{1,6}}){BOLD}"
    rf"(?:\s*[.:)\uff1a]|\s+[-–—](?=\s)){AFTER}"
)
_ONLYNUMBERED = re.compile(rf"^{BOLD}(?:n[or]\.\s+)?\#?(?P<value>\d{{1,6}})(?:[.:]|\s){AFTER}", re.IGNORECASE)
_BULLET = re.compile(r"^(?:[-*‣–—+][^\S\n]+|[•◦●○■□▪▫►▸→✓✔✅·]\s*)(?:\[[ xX]?\]\s+)?(?P<item>.*)$")
_TIGHT_BULLET = re.compile(r"^(?:[-–]|\*(?![^*]*\*))(?P<item>[^\W\d_].*)$")
_LETTERED = re.compile(rf"^{BOLD}[(\uff08]?(?P<value>[a-z])[.)\uff09](?=\s){AFTER}")
_CAPITAL = re.compile(rf"^{BOLD}\(?(?P<value>[A-Z])\)(?=\s){AFTER}")
_CAPITAL_POINT = re.compile(rf"^{BOLD}(?P<value>[A-Z])\.(?=\s){AFTER}")
_ROMAN = re.compile(rf"^{BOLD}\(?(?P<value>[ivx]{{1,7}}|[IVX]{{1,7}})[.)](?=\s){AFTER}")
BOLD_LINE = re.compile(r"^\*\*(?P<item>[^*]+)\*\*:?$")

_OTHER_DIGITS = re.compile(
    r"^(?P<bold>\**)(?:(?P<key>\d)\ufe0f?\u20e3|(?P<ten>🔟)|(?P<ring>[①-⑳❶-❿]|[\u2160-\u216b](?=[.)]))"
    r"|(?P<han>[一二三四五六七八九十]{1,3})(?=[、.\uff0e]))[、.)\uff0e]?\s*"
)
_HAN = " 一二三四五六七八九"
HEADING = re.compile(r"^#{1,6}\s|^(?:\*\*|__)[^*]+(?:\*\*|__):?$")
_UNITS = ("", "i", "ii", "iii", "iv", "v", "vi", "vii", "viii", "ix")


@dataclass(frozen=True, slots=True)
class MarkerStyle:
    """One way to mark items."""

    pattern: re.Pattern[str]
    value: Callable[[str], int] | None = None
    """Which item it is, from 1, by what stands under ``value`` in a match."""
    least: int = 1
    """Items below which the marks may be something else."""
    counts: bool = False
    """True if only lines that count up from 1 are items."""
    titles: bool = False
    """True if a marked line is a title and the text below it a description."""


def _letter(value: str) -> int:
    return ord(value.lower()) - ord("a") + 1


def _roman(value: str) -> int:
    numbers = {"x" * tens + unit: 10 * tens + n for tens in range(4) for n, unit in enumerate(_UNITS)}
    return numbers.get(value.lower(), 0)


MARKER_STYLES = (
    MarkerStyle(NUMBERED, int),
    MarkerStyle(_LABELLED, int, least=2, counts=True),
    MarkerStyle(_ONLYNUMBERED, int, least=2, counts=True),
    MarkerStyle(_BULLET),
    MarkerStyle(_LETTERED, _letter, least=2, counts=True),
    MarkerStyle(_CAPITAL, _letter, least=2, counts=True),
    MarkerStyle(_CAPITAL_POINT, _letter, least=3, counts=True),
    MarkerStyle(_ROMAN, _roman, least=2, counts=True),
    MarkerStyle(_TIGHT_BULLET, least=2),
    *(
        MarkerStyle(re.compile(rf"^#{{{level}}}\s+(?P<item>\S.*)$"), least=2, titles=True)
        for level in range(6, 0, -1)
    ),
    MarkerStyle(BOLD_LINE, least=2, titles=True),
)


def has_numbers(text: str) -> bool:
    """Return True if a line of ``text`` begins with a number or a bullet."""
    lines = [normalize_digits(line.strip()) for line in text.split("\n")]
    return any(NUMBERED.match(line) or _BULLET.match(line) for line in lines)


def normalize_digits(line: str) -> str:
    """Return the line with another form of number, such as ``①`` or ``一、``, replaced by ``1.``"""
    return _OTHER_DIGITS.sub(_as_number, line)


def _as_number(match: re.Match[str]) -> str:
    if han := match["han"]:
        tens, ten, ones = han.rpartition("十")
        number = (10 * max(_HAN.find(tens), 1) if ten else 0) + max(_HAN.find(ones), 0)
    elif ring := match["ring"]:
        number = 1 + min(ord(ring) - ord(first) for first in "\u2160①❶" if first <= ring)
    else:
        number = 10 if match["ten"] else int(match["key"])
    return f"{match['bold']}{number}. "
