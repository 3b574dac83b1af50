"""What a reasoning model thinks is told from what it says."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from bactrian.protocol.thoughts import ThoughtFilter, split_thought

PIECES = st.lists(
    st.sampled_from(
        ["<think>", "</think>", "<thi", "nk>", "</th", "ink>", " ", "\n", "so", "Solution: x", "<", ">"]
    ),
    max_size=12,
)


def heard(pieces: list[str]) -> str:
    """What a listener has heard in the end, of what was not taken back."""
    speech, text, taken_back = ThoughtFilter(), "", False
    for piece in pieces:
        said = speech.feed(piece)
        if speech.has_taken_back and not taken_back:
            text, taken_back = "", True
        text += said
    return text + speech.end()


def test_a_thought_is_kept_beside_the_text() -> None:
    assert split_thought("<think>\nFirst, water.\n</think>\n\nSolution: rain.") == (
        "First, water.",
        "Solution: rain.",
    )


def test_two_thoughts_before_the_text_are_both_kept() -> None:
    assert split_thought("<think>a</think>\n<think>b</think>c") == ("a\n\nb", "c")


def test_a_thought_that_was_cut_off_is_all_there_is() -> None:
    assert split_thought("<think>I wonder whether") == ("I wonder whether", "")


def test_a_template_may_have_written_the_opening_tag() -> None:
    assert split_thought("I wonder.\n</think>\nSolution: rain.") == ("I wonder.", "Solution: rain.")


def test_tags_inside_what_is_said_are_text() -> None:
    said = "Solution: write <think> before and </think> after it."
    assert split_thought(said) == ("", said)


def test_text_without_a_tag_keeps_its_spaces() -> None:
    assert split_thought("  Hello \n") == ("", "  Hello \n")


def test_a_million_tags_take_no_longer_than_their_length() -> None:
    assert split_thought("<think></think>" * 100_000 + "x") == ("", "x")
    assert split_thought("</think>" * 200_000)[1].startswith("</think>")
    assert split_thought(" " * 1_000_000 + "<") == ("", " " * 1_000_000 + "<")


@given(PIECES)
@example(["I won", "der</th", "ink>\n", "\nSo"])
@example(["<th", "ink>a</think", "> ", "b"])
def test_a_listener_hears_what_is_said_however_it_is_cut(pieces: list[str]) -> None:
    _, said = split_thought("".join(pieces))
    assert heard(pieces) == said
