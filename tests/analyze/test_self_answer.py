from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.labelled import conversation

EXAMPLES = {
    "both halves": "Instruction: Name a river.\nInput: None\nSolution: The Oder.\nNext request.",
    "in bold": "**Instruction:** Name a river.\n**Input:** None\n\n**Solution:** The Oder.",
    "in one line": "Instruction: Name a river. Input: None Solution: The Oder.",
    "an answer": "Instruction: Name a river.\nInput: None\nAnswer: The Oder.",
    "the assistant's name": "Instruction: Name a river.\nInput: None\n\nPython Programmer: The Oder.",
    "the assistant": "Instruction: Name a river.\nInput: None\n\nAssistant: The Oder.",
    "the next request": "Instruction: Name a river. The Oder is one.\nInput: None\nNext request.",
    "without an input": "Instruction: Name a river.\nSolution: The Oder.",
}
NEAR_MISSES = {
    "an instruction": "Instruction: Name a river.\nInput: None",
    "a solution as the input": "Instruction: Check this.\nInput: Solution: x = 4",
    "a solution in the input's lines": "Instruction: Check the following.\nInput: My homework\nSolution: x = 4",
    "a form to fill in": "Instruction: Use this form.\nInput: None\nSolution:\n",
    "in code": "Instruction: Fill the template.\nInput:\n```\nSolution: {text}\n```",
    "the word in prose": "Instruction: Improve the solution: make it shorter.\nInput: None",
}


@pytest.mark.parametrize("text", EXAMPLES.values(), ids=EXAMPLES)
def test_a_user_that_answers_its_own_instruction_is_found(text: str) -> None:
    assert [finding.turn for finding in find_behaviours(conversation(text), ["self_answer"])] == [1]


@pytest.mark.parametrize("text", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_a_user_that_hands_over_a_solution_is_not(text: str) -> None:
    assert find_behaviours(conversation(text), ["self_answer"]) == ()


def test_an_assistant_that_solves_answers_nobody_but_the_user() -> None:
    assert (
        find_behaviours(
            conversation("Instruction: Name a river.", "Solution: The Oder.\nNext request."), ["self_answer"]
        )
        == ()
    )
