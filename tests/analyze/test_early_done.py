from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.labelled import conversation

DONE = "<CAMEL_TASK_DONE>"
ASKED = "Instruction: Write the scraper.\nInput: None"
EXAMPLES = {
    "at once": (DONE,),
    "after a promise": (ASKED, "Solution: I will write the scraper.\nNext request.", DONE),
    "after a refusal": (ASKED, "I'm sorry, but I can't help with that.", DONE),
    "after nothing": (ASKED, "Solution:\nNext request.", DONE),
    "after the instruction again": (
        ASKED,
        "Solution: Write the scraper.\nNext request.",
        f"Thank you. {DONE}",
    ),
    "after thanks": ("Thank you!", "You're welcome!", DONE),
    "after an instruction by the assistant": (ASKED, "Instruction: Write it yourself.\nInput: None", DONE),
    "beside an instruction": (
        ASKED,
        "Solution: Use requests and save each page to a file.\nNext request.",
        f"Instruction: Now run it.\nInput: None\n\n{DONE}",
    ),
}
NEAR_MISSES = {
    "after a solution": (ASKED, "Solution: Use requests and save each page to a file.\nNext request.", DONE),
    "after a solution without a marker": (ASKED, "Use requests and save each page to a file.", DONE),
    "after a solution and a promise": (
        ASKED,
        "Solution: pip install scrapy",
        ASKED,
        "I will write it.",
        DONE,
    ),
    "mentioned in an instruction": (
        f"Instruction: Explain what {DONE} means.\nInput: None",
        "It ends the talk.",
    ),
    "not done": (ASKED, "I will write it."),
}


@pytest.mark.parametrize("texts", EXAMPLES.values(), ids=EXAMPLES)
def test_done_before_anything_is_solved_is_too_early(texts: tuple[str, ...]) -> None:
    assert [finding.turn for finding in find_behaviours(conversation(*texts), ["early_done"])] == [len(texts)]


@pytest.mark.parametrize("texts", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_done_after_a_solution_is_not(texts: tuple[str, ...]) -> None:
    assert find_behaviours(conversation(*texts), ["early_done"]) == ()
