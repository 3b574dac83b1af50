"""A turn laid out for reading: the protocol's fields, blocks of code, evidence and search hits. Text, never HTML."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, cast

from bactrian.explore.index.words import Term, find_hits
from bactrian.language.quotation import find_quotation
from bactrian.records.turn import Instruction, Solution, Turn

LONGEST = 20_000
"""Characters of a turn that are shown at first."""
_LONGEST_CODE = 20_000
"""Characters of a block of code that are coloured."""
_FENCE = re.compile(r"^[ \t]*(```|~~~)[ \t]*([\w+#.-]*)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$\n?|\Z)", re.M | re.S)
_CONTROL = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\r\t"} | {0x7F: 0x2421}
_BIDI = {code: f"⟨U+{code:04X}⟩" for code in (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F)}
_VISIBLE = {**_CONTROL, **_BIDI}
"""Characters that could mislead a reader, or stay unseen, and what is shown in their place."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of text of one kind."""

    text: str
    hit: bool = False
    """True for words of the search."""
    findings: tuple[int, ...] = ()
    """Numbers of the findings whose evidence it is, from 1."""
    token: str = ""
    """The class of a piece of code (``k`` for a keyword …), as Pygments names it."""


@dataclass(frozen=True, slots=True)
class TextBlock:
    """A paragraph or a block of code."""

    pieces: tuple[Piece, ...]
    code: bool = False
    language: str = ""


@dataclass(frozen=True, slots=True)
class FieldBlock:
    """A field of the protocol, or what stands outside of all fields."""

    name: str
    """``Instruction``, ``Input`` or ``Solution``; empty outside of fields."""
    blocks: tuple[TextBlock, ...]


@dataclass(frozen=True, slots=True)
class _Mark:
    begin: int
    end: int
    finding: int = 0
    """0 for a hit of the search."""


def make_visible(text: str) -> str:
    """Return ``text`` with control characters and direction overrides replaced by visible signs."""
    return text if text.isascii() and text.isprintable() else text.translate(_VISIBLE)


def arrange_turn(
    turn: Turn, evidence: Sequence[tuple[int, str]], terms: tuple[Term, ...], *, whole: bool = False
) -> tuple[FieldBlock, ...]:
    """Return the fields of a turn.

    Args:
        turn: The turn.
        evidence: Number and quotation of the findings in this turn.
        terms: The search.
        whole: True to show all of a long text.
    """
    text = turn.text if whole else turn.text[:LONGEST]
    marks = [_Mark(*place, number) for number, quote in evidence if (place := find_quotation(text, quote))]
    marks += [_Mark(begin, end) for begin, end in find_hits(text, terms)]
    return tuple(
        FieldBlock(name, tuple(_split_code(text, begin, end, marks)))
        for name, begin, end in _find_fields(turn, text)
    )


def arrange_text(text: str) -> tuple[FieldBlock, ...]:
    """Return a text without fields, such as a solution, as paragraphs and blocks of code."""
    return (FieldBlock("", tuple(_split_code(text, 0, len(text), ()))),)


def _find_fields(turn: Turn, text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, begin and end of each field. The markers themselves become the names."""
    said = turn.said
    parts: list[tuple[str, str]] = []
    if isinstance(said, Instruction):
        parts = [("", said.preface), ("Instruction", said.instruction), ("Input", said.input or "")]
    elif isinstance(said, Solution):
        parts = [("", said.preface), ("Solution", said.solution)]
    at = 0
    found: list[tuple[str, int, int]] = []
    for name, part in parts:
        if not part:
            continue
        begin = (
            text.find(part[: max(len(text) - at, 0)], at)
            if len(text) < len(turn.text)
            else text.find(part, at)
        )
        if begin < 0:
            found = []
            break
        at = begin + len(part)
        found.append((name, begin, min(at, len(text))))
    if not found:
        found = [("", 0, len(text))] if make_visible(text).strip() else []
    yield from found


def _split_code(text: str, begin: int, end: int, marks: Sequence[_Mark]) -> Iterator[TextBlock]:
    """Yield the paragraphs and the blocks of code of ``text[begin:end]``."""
    at = begin
    for fence in _FENCE.finditer(text[begin:end]):
        first = begin + fence.start()
        if make_visible(text[at:first]).strip():
            yield TextBlock(tuple(_cut(text, at, first, marks)))
        inner, last = begin + fence.start(3), begin + fence.end(3)
        pieces = tuple(_cut(text, inner, last, marks))
        if len(pieces) == 1 and not pieces[0].hit and not pieces[0].findings:
            pieces = tokenize_code(pieces[0].text, fence[2].lower())
        yield TextBlock(pieces, code=True, language=fence[2])
        at = begin + fence.end()
    if make_visible(text[at:end]).strip():
        yield TextBlock(tuple(_cut(text, at, end, marks)))


def _cut(text: str, begin: int, end: int, marks: Sequence[_Mark]) -> Iterator[Piece]:
    """Cut ``text[begin:end]`` where a mark begins or ends."""
    while begin < end and text[begin] in "\n\r":
        begin += 1
    here = [mark for mark in marks if mark.begin < end and mark.end > begin]
    cuts = sorted({begin, end, *(min(max(at, begin), end) for mark in here for at in (mark.begin, mark.end))})
    for first, last in pairwise(cuts):
        over = [mark for mark in here if mark.begin <= first and mark.end >= last]
        findings = dict.fromkeys(mark.finding for mark in over if mark.finding)
        shown = make_visible(text[first:last])
        if last == end:
            shown = shown.rstrip()
        if shown:
            yield Piece(shown, any(not mark.finding for mark in over), tuple(findings))


@lru_cache(maxsize=256)
def tokenize_code(code: str, language: str) -> tuple[Piece, ...]:
    """Return code as pieces with the classes of a highlighter; as one piece if its language is unknown."""
    plain = (Piece(code),)
    if not language or len(code) > _LONGEST_CODE:
        return plain
    from pygments import lexers
    from pygments.token import STANDARD_TYPES
    from pygments.util import ClassNotFound

    try:
        lexer: Any = cast("Any", lexers).get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return plain
    return tuple(
        Piece(text, token=STANDARD_TYPES.get(kind, "")[:1]) for kind, text in lexer.get_tokens(code) if text
    )


def write_plain(blocks: Iterable[FieldBlock]) -> str:
    """Return the shown text without marks."""
    return "\n".join("".join(piece.text for piece in one.pieces) for field in blocks for one in field.blocks)
