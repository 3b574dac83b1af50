"""The paper's four examples of section 4.1, in words of our own: every detector is released with them."""

from __future__ import annotations

import pytest

from bactrian.analyze.behaviours import find_behaviours
from benchmarks.corpus import BEHAVIOURS
from benchmarks.labelled import conversation

ASK = "Collect the closing prices of the last ten years, and store them in one table."
MORE = "The shares are listed in shares.csv."
ASKED = f"Instruction: {ASK}\nInput: {MORE}"
ECHOES = (
    f"Solution: {ASK}",
    f"Solution: {ASK}\n\nNext request.",
    f"{ASK} {MORE}",
    f"Instruction: {ASK}\nInput: {MORE}",
    f"Great! Here's the next instruction:\n\nInstruction: {ASK}\nInput: {MORE}",
    f"Sure!\n\nInstruction: {ASK}\nInput: {MORE}\nNext request.",
    f"Thank you. Here is your next instruction:\nInstruction: {ASK}",
    f"Solution: Understood. The instruction is:\n{ASK}",
    f"**Instruction:** {ASK}\n**Input:** {MORE}",
    f"Solution: {ASK.upper()}",
)
THANKS = ("Thank you for your help!", "You are welcome. Have a great day!", "You too, goodbye!", "Goodbye!")


def find(*texts: str) -> set[tuple[int, str]]:
    return {
        (finding.turn, finding.behaviour) for finding in find_behaviours(conversation(*texts), BEHAVIOURS)
    }


@pytest.mark.parametrize("echo", ECHOES)
def test_each_of_ten_word_for_word_echoes_repeats_the_instruction(echo: str) -> None:
    assert (2, "repeats_instruction") in find(ASKED, echo)


@pytest.mark.parametrize(
    "answer",
    [
        f"Solution: {ASK}\n```python\nprices = load('shares.csv', years=10)\n```\nNext request.",
        f"Solution: {ASK} I have stored 2,517 prices of 12 shares in prices.csv.\nNext request.",
        "Solution: The table prices.csv holds 2,517 closing prices of 12 shares.\nNext request.",
    ],
)
def test_a_solution_after_the_instruction_repeats_nothing(answer: str) -> None:
    assert not find(ASKED, answer)


def test_an_assistant_that_gives_the_next_instruction_flips_its_role() -> None:
    flip = "Good, that works.\nInstruction: Now plot the prices of each share.\nInput: prices.csv"
    assert (2, "role_flip") in find(ASKED, flip)


def test_an_assistant_that_only_says_what_it_will_do_is_a_flake() -> None:
    promise = "I will collect the closing prices of the last ten years and store them in a table."
    assert (2, "flake_reply") in find(ASKED, f"Solution: {promise}\nNext request.")


def test_agents_that_go_on_thanking_each_other_are_in_a_loop() -> None:
    done = (ASKED, "Solution: prices.csv holds 2,517 closing prices of 12 shares.\nNext request.")
    assert (10, "infinite_loop") in find(*done, *THANKS, *THANKS)
