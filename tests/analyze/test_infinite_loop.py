from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.labelled import conversation

EXAMPLES = {
    "thanks and goodbyes": ("Thank you!", "You're welcome!", "Goodbye!", "Bye, take care!"),
    "between the protocol's words": (
        "Instruction: Thank you for your assistance.\nInput: None",
        "Solution: You're welcome! I'm glad I could help.\nNext request.",
        "Instruction: Have a great day!\nInput: None",
        "Solution: Thank you, you too!\nNext request.",
    ),
    "in lower case, without markers": ("thanks so much", "no worries, anytime", "cheers, bye", "see ya, bye"),
    "waiting for each other": (
        "I am ready when you are.",
        "I am waiting for your next instruction.",
        "I am ready when you are.",
        "Next request.",
    ),
    "the same round again": (
        "Instruction: Check the totals.\nInput: None",
        "Solution: The totals of April and May match the ledger.\nNext request.",
    )
    * 3,
    "compliments": (
        "Great job! I really appreciate your hard work on this project.",
        "Thank you for your kind words! It was a pleasure working with you.",
        "The pleasure was all mine. I look forward to working with you again.",
        "Likewise! Have a wonderful day.",
    ),
}
NEAR_MISSES = {
    "thanks, next": ("Thanks! Next: name a river.", "The Oder.", "Thanks, next: a lake.", "Lake Bled."),
    "one polite round at the end": (
        "Instruction: Name a river.\nInput: None",
        "Solution: The Oder.\nNext request.",
        "Thank you!",
        "You're welcome!",
    ),
    "greetings, then work": (
        "Hello!",
        "Hello! How are you?",
        "Instruction: Name a river.\nInput: None",
        "Solution: The Oder.\nNext request.",
    ),
    "thanks inside instructions": (
        "Instruction: Thank you. Now write a thank-you letter to the host.\nInput: Dinner on Friday",
        "Solution: Dear Olga, thank you for the dinner on Friday. The dumplings were a feast.\nNext request.",
        "Instruction: Great. Now write one to the cook.\nInput: Pavel",
        "Solution: Dear Pavel, thank you for cooking. I still dream of the beetroot soup.\nNext request.",
    ),
    "similar rounds on different things": (
        "Instruction: Translate 'bread'.\nInput: None",
        "Solution: pain\nNext request.",
        "Instruction: Translate 'salt'.\nInput: None",
        "Solution: sel\nNext request.",
    ),
    "the task is done": ("Thank you!", "You're welcome!", "<CAMEL_TASK_DONE>"),
}


@pytest.mark.parametrize("texts", EXAMPLES.values(), ids=EXAMPLES)
def test_rounds_without_anything_new_are_a_loop(texts: tuple[str, ...]) -> None:
    found = find_behaviours(conversation(*texts), ["infinite_loop"])
    assert found
    assert found[-1].turn == len(texts)


@pytest.mark.parametrize("texts", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_politeness_beside_work_is_no_loop(texts: tuple[str, ...]) -> None:
    assert find_behaviours(conversation(*texts), ["infinite_loop"]) == ()
