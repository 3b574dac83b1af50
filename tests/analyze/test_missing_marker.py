from __future__ import annotations

from dataclasses import replace

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.records.session import Task
from benchmarks.labelled import conversation

ASKED = "Instruction: Name a river.\nInput: None"
EXAMPLES = {
    "a user that only talks": (("Could you name a river?",), 1),
    "an assistant that only talks": ((ASKED, "The Oder is a river."), 2),
    "a marker inside code": ((ASKED, "```\nSolution: The Oder\n```"), 2),
    "another word": ((ASKED, "Answer: The Oder."), 2),
    "thanks": ((ASKED, "Solution: The Oder.\nNext request.", "Thank you!"), 3),
}
NEAR_MISSES = {
    "both markers": (ASKED, "Solution: The Oder.\nNext request."),
    "in bold": ("**Instruction:** Name a river.", "**Solution**: The Oder."),
    "after a courtesy": (f"Great! {ASKED}", "Sure! Solution: The Oder."),
    "in small letters": ("instruction: name a river", "solution: the Oder"),
    "translated": ("Instrucción: Nombra un río.", "Solución: El Ebro."),
    "the task is done": (ASKED, "Solution: The Oder.\nNext request.", "<CAMEL_TASK_DONE>"),
    "an empty turn": (ASKED, "  \n"),
}


@pytest.mark.parametrize(("texts", "turn"), EXAMPLES.values(), ids=EXAMPLES)
def test_a_turn_without_the_protocols_word_is_found(texts: tuple[str, ...], turn: int) -> None:
    assert [finding.turn for finding in find_behaviours(conversation(*texts), ["missing_marker"])] == [turn]


@pytest.mark.parametrize("texts", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_a_turn_with_the_word_in_any_form_is_not(texts: tuple[str, ...]) -> None:
    assert find_behaviours(conversation(*texts), ["missing_marker"]) == ()


def test_a_question_and_its_answer_need_no_marker() -> None:
    problem = "Why is the sky blue?"
    answered = replace(conversation(problem, "Because of scattering."), task=Task(problem))
    assert find_behaviours(answered, ["missing_marker", "role_flip"]) == ()
