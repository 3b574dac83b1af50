from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.labelled import conversation

ASKED = "Instruction: Name a river.\nInput: None"
EXAMPLES = (
    "",
    " \n\t",
    "...",
    "Solution:\nNext request.",
    "**Solution:**",
    "```python\n```",
    "Next request.",
    "—",
)
NEAR_MISSES = (
    "4",
    "O",
    "Solution: 4\nNext request.",
    "👍",
    "Solution: None\nNext request.",
    "```\nx\n```",
    "是",
)


@pytest.mark.parametrize("answer", EXAMPLES)
def test_a_turn_that_says_nothing_is_empty(answer: str) -> None:
    assert [finding.turn for finding in find_behaviours(conversation(ASKED, answer), ["empty_turn"])] == [2]


@pytest.mark.parametrize("answer", NEAR_MISSES)
def test_one_sign_is_enough_to_say_something(answer: str) -> None:
    assert find_behaviours(conversation(ASKED, answer), ["empty_turn"]) == ()


def test_an_instruction_of_none_is_empty() -> None:
    assert [
        finding.turn
        for finding in find_behaviours(conversation("Instruction: None\nInput: None"), ["empty_turn"])
    ] == [1]


def test_the_done_token_is_not_empty() -> None:
    assert find_behaviours(conversation("<CAMEL_TASK_DONE>"), ["empty_turn"]) == ()
