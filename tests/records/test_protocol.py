"""Reading and writing the inception protocol."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bactrian.language.protocol import (
    DONE,
    has_instruction,
    is_done,
    read_instruction,
    read_solution,
    write_instruction,
    write_solution,
)
from bactrian.records.turn import Instruction, Solution

MARKERS = ("Instruction:", "Input:", "Solution:", "Next request", "```", "~~~", DONE)


def says_something(text: str) -> bool:
    return any(character.isalnum() for character in text) and text == text.strip()


plain = st.text(min_size=1).filter(says_something).filter(lambda text: not any(m in text for m in MARKERS))


@given(plain, plain.filter(lambda text: text.lower().strip(". ") not in ("none", "n/a")))
def test_an_instruction_is_read_as_it_was_written(instruction: str, given_input: str) -> None:
    assert read_instruction(write_instruction(instruction, given_input)) == Instruction(
        instruction, given_input
    )
    assert read_instruction(write_instruction(instruction)) == Instruction(instruction)


@given(plain)
def test_a_solution_is_read_as_it_was_written(solution: str) -> None:
    assert read_solution(write_solution(solution)) == Solution(solution, asks_next=True)


@given(
    st.text(alphabet=st.characters(codec="utf-8"))
    | st.lists(st.sampled_from([*MARKERS, "\n", " ", "x"])).map("".join)
)
def test_any_text_can_be_read(text: str) -> None:
    for read in (read_instruction, read_solution, is_done, has_instruction):
        assert read(text) is not ...
    assert not (is_done(text) and read_instruction(text))


@given(st.text(alphabet=" \t\n"), st.text(alphabet=" \t\n"))
def test_the_done_token_alone_is_done_in_any_white_space(before: str, after: str) -> None:
    assert is_done(before + DONE + after)


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("Great work, we are through. <CAMEL_TASK_DONE>", True),
        ("**<CAMEL_TASK_DONE>**", True),
        ("I will say <CAMEL_TASK_DONE> when we are through.", False),
        ("Instruction: Say <CAMEL_TASK_DONE>\nInput: None", False),
        ("Instruction: One more thing.\nInput: None\n<CAMEL_TASK_DONE>", False),
        ("CAMEL_TASK_DONE", False),
        ("", False),
    ],
)
def test_the_done_token_counts_only_at_the_end_of_a_turn_without_instruction(text: str, done: bool) -> None:
    assert is_done(text) is done


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("Instruction: Add a test. Input: None", Instruction("Add a test.")),
        ("**Instruction:** Add a test.\n**Input:** n/a", Instruction("Add a test.")),
        ("Good.\nInstruction: Add a test.", Instruction("Add a test.", None, "Good.")),
        ("Good. Instruction: Add it.\nInput: x = 1", Instruction("Add it.", "x = 1", "Good.")),
        ("Instruction: Run\n```\nInput: 3\n```\nInput: 4", Instruction("Run\n```\nInput: 3\n```", "4")),
        ("Follow my instruction now.", None),
        ("Instruction: <CAMEL_TASK_DONE>", None),
        ("Instruction:\nInput: None", None),
        ("```\nInstruction: quoted\n```", None),
    ],
)
def test_an_instruction_is_found_however_a_model_dresses_it(text: str, read: Instruction | None) -> None:
    assert read_instruction(text) == read


@pytest.mark.parametrize(
    ("text", "flips"),
    [
        ("Solution: done.\nInstruction: now you", True),
        ("  **Instruction:** now you", True),
        ("Solution: as your Instruction: said, done.", False),
        ("Solution: quoted\n```\nInstruction: x\n```\nNext request.", False),
        ("Solution: ```\nInstruction: x\n```\nNext request.", False),
        ("Solution: ```\nx\n```\nInstruction: now you", True),
    ],
)
def test_a_role_flip_is_a_line_that_begins_with_an_instruction(text: str, flips: bool) -> None:
    assert (has_instruction(text) is not None) is flips
