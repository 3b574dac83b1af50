"""A turn laid out for reading: the fields of the protocol, their blocks, evidence and hits of the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from bactrian.blocks import Block, MarkedSpan, Piece, make_visible, mark_quotations, split_blocks
from bactrian.explore.search_words import Term, find_hits
from bactrian.records.turn import Instruction, Solution, Turn

LONGEST = 20_000
"""Characters of a turn that are shown at first."""
HIT = 0
"""The label of words of the search. Those of evidence are the numbers of the findings, from 1."""
_LONGEST_CODE = 20_000
"""Characters of a block of code that are coloured."""


@dataclass(frozen=True, slots=True)
class FieldBlock:
    """A field of the protocol, or what stands outside of all fields."""

    name: str
    """``Instruction``, ``Input`` or ``Solution``; empty outside of fields."""
    blocks: tuple[Block[int], ...]


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
    marks = [
        *mark_quotations(text, evidence),
        *(MarkedSpan(begin, end, HIT) for begin, end in find_hits(text, terms)),
    ]
    return tuple(
        FieldBlock(name, tuple(_colour(split_blocks(text, marks, begin, end))))
        for name, begin, end in _find_fields(turn, text)
    )


def arrange_text(text: str) -> tuple[FieldBlock, ...]:
    """Return a text without fields, such as a solution, as paragraphs and blocks of code."""
    return (FieldBlock("", tuple(_colour(split_blocks(text)))),)


def _find_fields(turn: Turn, text: str) -> Iterator[tuple[str, int, int]]:
    """Yield name, begin and end of each field. The markers themselves become the names."""
    match turn.said:
        case Instruction() as parsed:
            parts = [("", parsed.preface), ("Instruction", parsed.instruction), ("Input", parsed.input or "")]
        case Solution() as parsed:
            parts = [("", parsed.preface), ("Solution", parsed.solution)]
        case _:
            parts = []
    last = 0
    fields: list[tuple[str, int, int]] = []
    for name, part in parts:
        if not part:
            continue
        # A text that is cut may contain only the beginning of its last field.
        is_cut = len(text) < len(turn.text)
        begin = text.find(part[: max(len(text) - last, 0)] if is_cut else part, last)
        if begin < 0:
            fields = []
            break
        last = begin + len(part)
        fields.append((name, begin, min(last, len(text))))
    if fields or not make_visible(text).strip():
        yield from fields
    else:
        yield "", 0, len(text)


def _colour(blocks: Iterator[Block[int]]) -> Iterator[Block[int]]:
    """Yield blocks, those of code without a mark with the classes of a highlighter."""
    for block in blocks:
        if block.is_code and len(block.pieces) == 1 and not block.pieces[0].labels:
            yield replace(block, pieces=tokenize_code(block.pieces[0].text, block.language.lower()))
        else:
            yield block


@lru_cache(maxsize=256)
def tokenize_code(code: str, language: str) -> tuple[Piece[int], ...]:
    """Return code as pieces with the classes of a highlighter; as one piece if its language is unknown."""
    plain: tuple[Piece[int], ...] = (Piece(code),)
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
