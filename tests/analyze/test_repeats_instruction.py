from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.detect.detector import POSSIBLE
from bactrian.records.session import IMPORTED, Provenance
from benchmarks.labelled import conversation

EXAMPLES = {
    "word for word": ("List three uses of copper in a workshop.", "List three uses of copper in a workshop."),
    "behind the marker": (
        "List three uses of copper in a workshop.",
        "Solution: List three uses of copper in a workshop.\nNext request.",
    ),
    "with the user's marker": (
        "List three uses of copper in a workshop.",
        "Instruction: List three uses of copper in a workshop.\nInput: None",
    ),
    "as the task": (
        "Develop a website for the choir.",
        "Solution: The task is to develop a website for the choir.\nNext request.",
    ),
    "as a wish": ("Design a logo for the bakery.", "You would like me to design a logo for the bakery."),
    "in lower case and bold": ("Design a logo for the bakery.", "**solution:** design a logo for the bakery"),
    "with a word changed": (
        "Create a marketing plan for the new bakery in Porto.",
        "Solution: Create a marketing plan for our new bakery in Porto.\nNext request.",
    ),
    "in other order": (
        "Write unit tests for the parser of dates.",
        "Solution: For the parser of dates, unit tests need to be written.\nNext request.",
    ),
}
NEAR_MISSES = {
    "restated and solved": (
        "Name the capital of Chad.",
        "Solution: The capital of Chad is N'Djamena.\nNext request.",
    ),
    "restated as a heading": (
        "List three uses of copper.",
        "Solution: Three uses of copper:\n1. Pipes\n2. Wires\n3. Roofs\nNext request.",
    ),
    "chosen from what was offered": (
        "Choose tea or coffee for the meeting.",
        "Solution: Coffee.\nNext request.",
    ),
    "another instruction": (
        "Name the capital of Chad.",
        "Instruction: Name the longest river of Chad.\nInput: None",
    ),
    "put in order": ("Sort the names: Zoe, Ann, Mia.", "Solution: Ann, Mia, Zoe.\nNext request."),
    "a promise": ("Write the scraper.", "I will write the scraper tomorrow with requests."),
    "code that uses the instruction's words": (
        "Write a function that adds two numbers.",
        "Solution:\n```python\ndef add(two, numbers):\n    return two + numbers\n```\nNext request.",
    ),
}


@pytest.mark.parametrize(("asked", "answer"), EXAMPLES.values(), ids=EXAMPLES)
def test_an_answer_that_only_says_the_instruction_again_is_found(asked: str, answer: str) -> None:
    said = conversation(f"Instruction: {asked}\nInput: None", answer)
    found = find_behaviours(said, ["repeats_instruction"], least=POSSIBLE)
    assert [finding.turn for finding in found] == [2]


@pytest.mark.parametrize(("asked", "answer"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_an_answer_that_adds_something_is_no_repetition(asked: str, answer: str) -> None:
    assert (
        find_behaviours(conversation(f"Instruction: {asked}\nInput: None", answer), ["repeats_instruction"])
        == ()
    )


def test_a_released_conversation_without_line_breaks_is_read_the_same() -> None:
    asked = "Instruction: Develop a website for the choir. Input: None"
    answer = "Solution: Develop a website for the choir. Next request."
    assert len(find_behaviours(conversation(asked, answer), ["repeats_instruction"])) == 1


def test_an_imported_assistant_that_only_echoes_the_question_is_found() -> None:
    asked = "I have the details of the speaker. Could you tell me the number of the item to exchange?"
    provenance = Provenance(prompts=f"{IMPORTED}messages", prompts_hash="", protocol="free")
    for answer, found in (
        (f"Sure! {asked}", [2]),
        (f'{asked}\n{{"name": "think", "arguments": {{"thought": "wait"}}}}', [2]),
        ("I have the details of the speaker. It is item 7.", []),
    ):
        said = conversation(asked, answer, "Yes.", user="Customer", assistant="Agent", provenance=provenance)
        assert [finding.turn for finding in find_behaviours(said, ["repeats_instruction"])] == found, answer


def test_a_long_answer_that_goes_round_in_the_words_of_the_instruction_is_found() -> None:
    asked = "Instruction: Add a new task to the list of tasks.\nInput: None"
    opening = "Solution: The task you are asked to add is a new task of the list of tasks."
    again = [
        f"{number}. Add a new task to the list of the tasks that you are asked to add." for number in range(6)
    ]
    work = [
        "1. Weed the beds.",
        "2. Fix the tap.",
        "3. Buy seeds.",
        "4. Mow the lawn.",
        "5. Paint the fence.",
    ]
    for items, found in ((again, [2]), (work * 2, [])):
        said = conversation(asked, "\n".join((opening, *items)))
        assert [finding.turn for finding in find_behaviours(said, ["repeats_instruction"])] == found
