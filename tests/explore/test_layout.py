"""A turn is laid out without losing, adding or interpreting any of its text."""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import example, given
from hypothesis import strategies as st

from bactrian.blocks import make_visible, mark_quotations
from bactrian.explore.layout import HIT, FieldBlock, arrange_turn
from bactrian.explore.search_words import read_search
from tests.helpers.runs import turn
from tests.helpers.texts import CHARACTERS


def write_plain(fields: Iterable[FieldBlock]) -> str:
    """The shown text without marks."""
    return "\n".join(
        "".join(piece.text for piece in block.pieces) for field in fields for block in field.blocks
    )


CODE = "```python\ndef add(a, b):\n    return a + b\n```"


def test_the_fields_of_the_protocol_are_told_apart() -> None:
    fields = arrange_turn(turn(1, "Well: \nInstruction: Add them.\nInput: 1 and 2"), [], ())
    assert [(field.name, write_plain([field])) for field in fields] == [
        ("", "Well:"),
        ("Instruction", "Add them."),
        ("Input", "1 and 2"),
    ]


def test_code_is_a_block_with_its_language_and_coloured() -> None:
    (field,) = arrange_turn(turn(2, f"Solution: Here:\n{CODE}\nNext request."), [], ())
    text, code = field.blocks
    assert (text.is_code, code.is_code, code.language) == (False, True, "python")
    assert "".join(piece.text for piece in code.pieces) == "def add(a, b):\n    return a + b"
    assert {"k"} <= {piece.token for piece in code.pieces}


def test_evidence_is_marked_with_its_number_where_it_stands() -> None:
    said = turn(2, "Solution: I will do it now. Wait.\nNext request.")
    (field,) = arrange_turn(said, [(3, "I will do it now."), (4, "do it  now. Wait")], ())
    assert [(piece.text, piece.labels) for piece in field.blocks[0].pieces] == [
        ("I will ", (3,)),
        ("do it now.", (3, 4)),
        (" Wait", (4,)),
        (".", ()),
    ]


def test_evidence_that_is_not_in_the_text_marks_nothing() -> None:
    (field,) = arrange_turn(turn(2, "Solution: Yes."), [(1, "No.")], ())
    assert all(not piece.labels for piece in field.blocks[0].pieces)


def test_hits_of_the_search_are_marked() -> None:
    (field,) = arrange_turn(turn(2, "Solution: Water the garden."), [], read_search("garden"))
    assert [piece.text for piece in field.blocks[0].pieces if piece.labels == (HIT,)] == ["garden"]


@example("\x1f", "", "")  # A separator is space to Python, and shown as a sign.
@given(
    st.text(CHARACTERS, min_size=1, max_size=300),
    st.text(CHARACTERS, max_size=20),
    st.text(CHARACTERS, max_size=20),
)
def test_no_text_is_lost_whatever_it_holds(text: str, quote: str, searched: str) -> None:
    shown = write_plain(arrange_turn(turn(2, text), [(1, quote)], read_search(searched)))
    lost = set(make_visible(text).split()) - set(shown.split())
    assert not any(not ("`" in word or "~" in word or "Solution" in word or "Next" in word) for word in lost)


def test_a_quotation_that_was_cut_is_marked_to_the_end_of_its_word() -> None:
    for text, end in (("word " * 39 + "wonderful end", 204), ("字" * 400, 200), ("word " * 40, 199)):
        (mark,) = mark_quotations(text, [(1, text[:200])])
        assert mark.end == end
