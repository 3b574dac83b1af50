from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.labelled import conversation

ASKED = "Instruction: Visit the warehouse.\nInput: None"
EXAMPLES = {
    "sorry": "I'm sorry, but I can't assist with that.",
    "as an AI": "As an AI language model, I do not have the ability to visit places physically.",
    "between the protocol's words": "Solution: I am unable to visit the warehouse.\nNext request.",
    "unethical": "I cannot fulfill this request. It goes against my guidelines.",
    "a typographic apostrophe": "I’m sorry, but I can’t help you with this.",
    "declines": "I must decline to do this because it is illegal.",
    "Spanish": "Lo siento, pero no puedo visitar el almacén.",
    "German": "Es tut mir leid, aber ich kann das Lager nicht besuchen.",
    "Chinese": "很抱歉，我无法访问仓库。",
}
NEAR_MISSES = {
    "an answer": "Solution: The warehouse holds 40 pallets.\nNext request.",
    "declines a part and does the rest": (
        "I cannot visit it, but here is what to look for:\n1. Fire exits\n2. Damp walls"
    ),
    "asks for material": "I cannot see the warehouse. Could you please provide a photo of it?",
    "a fact": "Solution: A forklift cannot lift more than its rated load.\nNext request.",
    "a lyric": 'Solution: "I can\'t help falling in love" is the line that the guards sing.\nNext request.',
    "an apology": "Sorry for the delay. The warehouse holds 40 pallets.",
    "late in a long answer": "Solution: "
    + "The warehouse is dry and clean. " * 20
    + "I cannot say more about the roof.\nNext request.",
    "you cannot": "Solution: You cannot enter without a badge.\nNext request.",
}


@pytest.mark.parametrize("answer", EXAMPLES.values(), ids=EXAMPLES)
def test_declining_is_a_refusal(answer: str) -> None:
    assert [finding.turn for finding in find_behaviours(conversation(ASKED, answer), ["refusal"])] == [2]


@pytest.mark.parametrize("answer", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_work_that_says_cannot_is_no_refusal(answer: str) -> None:
    assert find_behaviours(conversation(ASKED, answer), ["refusal"]) == ()


def test_a_user_can_refuse_too() -> None:
    found = find_behaviours(
        conversation(ASKED, "Solution: Done.", "I'm sorry, but I can't continue with this."), ["refusal"]
    )
    assert [finding.turn for finding in found] == [3]


def test_what_the_endpoint_filtered_is_refused() -> None:
    assert (
        find_behaviours(conversation("Instruction: Go on.", "", finish="content_filter"), ["refusal"])[
            0
        ].confidence
        == 1.0
    )
