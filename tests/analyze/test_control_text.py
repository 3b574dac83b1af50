"""Words for a program that stand in what is said."""

from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.labelled import conversation

ASKED = "Instruction: Look the order up.\nInput: None"
CALL = '{"name": "find_order", "arguments": {"id": "W12"}}'


@pytest.mark.parametrize(
    "answer",
    [
        f"Solution: One moment.\n<tool_call>\n{CALL}\n</tool_call>",
        f"Solution: One moment.\n```json\n{CALL}\n```",
        "Solution: The order left on Monday.<|im_end|>",
        "Solution: [INST] The order left on Monday. [/INST]",
        "Solution: The order left on Monday.\n\nCAMEL_TASK_DONE",
        "<CAMEL_TASK_DONE>",
    ],
    ids=["tagged call", "call in a block", "token", "old token", "done after an answer", "done"],
)
def test_a_call_a_token_and_the_others_done_token_are_found_in_what_is_said(answer: str) -> None:
    (found,) = find_behaviours(conversation(ASKED, answer), ["control_text"])
    assert found.turn == 2
    assert found.quote in answer or found.quote == "<CAMEL_TASK_DONE>"


@pytest.mark.parametrize(
    "answer",
    [
        'Solution: The order is {"id": "W12", "name": "tea"}.',
        "Solution: if a < b | c > d, then take the smaller one.",
        "Solution:\n```python\nprint('<|im_end|>')\n```",
        "Solution: The user ends with CAMEL_TASK_DONE when it is content.",
    ],
    ids=["data", "signs", "program", "quoted"],
)
def test_data_programs_and_quotations_are_no_control_text(answer: str) -> None:
    assert find_behaviours(conversation(ASKED, answer), ["control_text"]) == ()


def test_what_was_asked_for_is_less_sure_and_the_user_may_end() -> None:
    asked = "Instruction: Write the JSON of a function call that finds an order.\nInput: None"
    session = conversation(asked, f"Solution: {CALL}", "<CAMEL_TASK_DONE>")
    assert find_behaviours(session, ["control_text"]) == ()
    (doubtful,) = find_behaviours(session, ["control_text"], least=0.0)
    assert doubtful.confidence < 0.5
