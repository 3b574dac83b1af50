from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.records.session import Provenance
from benchmarks.labelled import conversation

ASKED = "Instruction: Write a function that sums a list.\nInput: None"
ORIGIN = Provenance(prompts="code", prompts_hash="", protocol="free", needs_code=True)
EXAMPLES = {
    "prose": "Solution: Go through the list and add each number to a total.\nNext request.",
    "an empty block": "Solution: Here it is:\n```python\n```\nNext request.",
    "a promise": "I will write the function.",
    "a name in code marks": "Solution: The function `sum` does that.\nNext request.",
    "a list": "Solution:\n1. Open the list\n2. Add the numbers\n3. Print the total\nNext request.",
}
NEAR_MISSES = {
    "a block": "Solution:\n```python\ndef total(x):\n    return sum(x)\n```\nNext request.",
    "lines without a block": "Solution:\ndef total(x):\n    return sum(x)\nNext request.",
    "SQL": "Solution:\nSELECT SUM(amount) FROM orders;\nNext request.",
    "a shell command": "Solution: Run this:\n$ awk '{s += $1} END {print s}' file\nNext request.",
    "assembly": "Solution:\nmov eax, 0\nadd eax, [esi]\nNext request.",
    "an expression in the line": "Solution: Use `sum(x)`.\nNext request.",
    "R": "Solution:\ntotal <- sum(x)\nNext request.",
    "HTML": "Solution:\n<p>Total</p>\nNext request.",
    "an empty turn": "",
}


@pytest.mark.parametrize("answer", EXAMPLES.values(), ids=EXAMPLES)
def test_a_solution_without_code_is_found(answer: str) -> None:
    found = find_behaviours(conversation(ASKED, answer, provenance=ORIGIN), ["no_code"])
    assert [finding.turn for finding in found] == [2]


@pytest.mark.parametrize("answer", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_code_in_any_form_is_code(answer: str) -> None:
    assert find_behaviours(conversation(ASKED, answer, provenance=ORIGIN), ["no_code"]) == ()


def test_where_no_code_is_needed_prose_is_enough() -> None:
    assert find_behaviours(conversation(ASKED, EXAMPLES["prose"]), ["no_code"]) == ()


def test_an_explanation_without_code_is_a_less_sure_finding() -> None:
    answer = EXAMPLES["prose"]
    explained = find_behaviours(
        conversation("Instruction: Explain addition.", answer, provenance=ORIGIN), ["no_code"]
    )
    written = find_behaviours(conversation(ASKED, answer, provenance=ORIGIN), ["no_code"])
    assert explained[0].confidence < written[0].confidence
