"""A text laid out for reading: paragraphs and blocks of code, cut where a quotation or another mark begins or ends.

It stays text: every view renders the blocks its own way.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

from bactrian.protocol.fences import find_quotation
from bactrian.records.run import LONGEST_QUOTE
from bactrian.records.text import to_line

LabelT = TypeVar("LabelT")

_FENCE = re.compile(r"^[ \t]*(```|~~~)[ \t]*([\w+#.-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$\n?|\Z)", re.M | re.S)
_CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\r\t"} | {0x7F: 0x2421}
_BIDI = {code: f"⟨U+{code:04X}⟩" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)}
_REST_OF_WORD = re.compile(r"\w{1,30}(?!\w)")
# Characters that could mislead a reader, or stay unseen, and what is shown in their place.
_VISIBLE = {**_CONTROL, **_BIDI}
_UNSEEN = re.compile(f"[{re.escape(''.join(map(chr, _VISIBLE)))}]")


@dataclass(frozen=True, slots=True)
class MarkedSpan(Generic[LabelT]):
    """A stretch of a text that means something, such as the evidence of a behaviour."""

    begin: int
    end: int
    label: LabelT


@dataclass(frozen=True, slots=True)
class Piece(Generic[LabelT]):
    """A stretch of a block under the same marks."""

    text: str
    # Those of its marks, each once.
    labels: tuple[LabelT, ...] = ()
    # The class of a piece of code (``k`` for a keyword …); empty if code is not coloured.
    token: str = ""


@dataclass(frozen=True, slots=True)
class Block(Generic[LabelT]):
    """A paragraph or a block of code."""

    pieces: tuple[Piece[LabelT], ...]
    is_code: bool = False
    language: str = ""


def make_visible(text: str) -> str:
    """Return ``text`` with control characters and direction overrides replaced by visible signs."""
    return text.translate(_VISIBLE) if _UNSEEN.search(text) else text


def mark_quotations(text: str, quotations: Iterable[tuple[LabelT, str]]) -> list[MarkedSpan[LabelT]]:
    """Return the marks of those quotations that ``text`` contains."""
    return [
        MarkedSpan(span[0], _end_word(text, span[1]) if len(quote) == LONGEST_QUOTE else span[1], label)
        for label, quote in quotations
        if (span := find_quotation(text, quote))
    ]


def _end_word(text: str, end: int) -> int:
    """Return the end of the word that a quotation was cut in; ``end`` if it has none soon, as in Chinese."""
    rest = _REST_OF_WORD.match(text, end) if text[end - 1 : end].isalnum() else None
    return rest.end() if rest else end


def split_blocks(
    text: str, marks: Sequence[MarkedSpan[LabelT]] = (), begin: int = 0, end: int | None = None
) -> Iterator[Block[LabelT]]:
    """Yield the paragraphs and the blocks of code of ``text[begin:end]``; the fences of code are left out."""
    at, end = begin, len(text) if end is None else end
    for fence in _FENCE.finditer(text[begin:end]):
        first = begin + fence.start()
        if make_visible(text[at:first]).strip():
            yield Block(tuple(_cut(text, at, first, marks)))
        pieces = _cut(text, begin + fence.start(3), begin + fence.end(3), marks)
        yield Block(tuple(pieces), is_code=True, language=fence[2])
        at = begin + fence.end()
    if make_visible(text[at:end]).strip():
        yield Block(tuple(_cut(text, at, end, marks)))


def _cut(text: str, begin: int, end: int, marks: Sequence[MarkedSpan[LabelT]]) -> Iterator[Piece[LabelT]]:
    """Cut ``text[begin:end]`` where a mark begins or ends."""
    while begin < end and text[begin] in "\n\r":
        begin += 1
    here = [mark for mark in marks if mark.begin < end and mark.end > begin]
    cuts = sorted({begin, end, *(min(max(at, begin), end) for mark in here for at in (mark.begin, mark.end))})
    for first, last in pairwise(cuts):
        labels = dict.fromkeys(mark.label for mark in here if mark.begin <= first and mark.end >= last)
        shown = make_visible(text[first:last])
        if last == end:
            shown = shown.rstrip()
        if shown:
            yield Piece(shown, tuple(labels))


# A text as Markdown.


_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#|!~$])|(?<=://)|(?<=\bwww)(?=\.)|(?<=\w)(?=@)")
_FENCE_LINE = re.compile(r" {0,3}(```|~~~)")


def to_markdown(text: str) -> str:
    """Return ``text`` on one line, escaped so that Markdown shows it literally: no markup, no HTML, no link."""
    escaped = _MARKDOWN.sub(lambda match: f"\\{match[1]}" if match[1] else "<!-- -->", to_line(text))
    return "<!-- -->".join(html.escape(part, quote=False) for part in escaped.split("<!-- -->"))


def keep_line_breaks(text: str, change: Callable[[str], str] = str) -> str:
    """Return ``text`` as Markdown that shows each line on its own; ``change`` alters the lines that are no code."""
    lines: list[str] = []
    in_code = False
    for line in text.split("\n"):
        fence = _FENCE_LINE.match(line) is not None
        in_code ^= fence
        lines.append(line if fence or in_code or not line.strip() else f"{change(line).rstrip()}  ")
    return "\n".join(lines)


def to_code_span(text: str) -> str:
    """Return ``text`` on one line as a Markdown code span; empty if nothing is printable."""
    text = to_line(text).replace("|", "\u2223")
    if not text:
        return ""
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}"
