from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.labelled import conversation

LONG = "Solution: The garden needs water twice a week, compost in early spring and a hard pruning in late winter."
EXAMPLES = {
    "the same": ("Go on.", LONG, "And?", LONG),
    "a word changed": ("Go on.", LONG, "And?", LONG.replace("early spring", "the spring")),
    "other markers": (
        "Go on.",
        LONG,
        "And?",
        LONG.replace("Solution: ", "**Solution:** ") + "\nNext request.",
    ),
    "not the turn before": ("Go on.", LONG, "And?", "Solution: Mulch keeps the soil moist.", "And?", LONG),
}
NEAR_MISSES = {
    "other numbers": (
        "Go on.",
        "Solution: The temperature of the oven is 20.1 degrees right now.",
        "And?",
        "Solution: The temperature of the oven is 20.4 degrees right now.",
    ),
    "a short answer": ("Go on.", "Solution: Jupiter.", "And?", "Solution: Jupiter."),
    "the other agent's words": (f"Instruction: {LONG[10:]}", LONG),
    "the same words in other order": (
        "Go on.",
        "Solution: First the red team plays the blue team on the north field.",
        "And?",
        "Solution: On the north field the blue team plays first the red team.",
    ),
    "something else": (
        "Go on.",
        LONG,
        "And?",
        "Solution: The hedge needs a trim in June and again in late August.",
    ),
}


@pytest.mark.parametrize("texts", EXAMPLES.values(), ids=EXAMPLES)
def test_saying_almost_the_same_again_is_found(texts: tuple[str, ...]) -> None:
    assert [finding.turn for finding in find_behaviours(conversation(*texts), ["near_duplicate"])] == [
        len(texts)
    ]


@pytest.mark.parametrize("texts", NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_saying_something_new_is_not(texts: tuple[str, ...]) -> None:
    assert find_behaviours(conversation(*texts), ["near_duplicate"]) == ()
