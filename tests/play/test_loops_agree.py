"""The ending for repeat loops and the detector of infinite loops call the same turns courtesy."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.analyze.behaviours.infinite_loop import is_polite
from bactrian.analyze.behaviours.reading import read_session
from bactrian.language.protocol import find_instruction, read_instruction
from bactrian.play.endings.rules import AssistantInstructs, RepeatLoop
from bactrian.records.session import Session
from benchmarks.behaviours import LABELLED
from benchmarks.labelled import conversation, read_cases
from tests.helpers.runs import session, turn

COURTESIES = [
    "Thank you so much for your help!",
    "You're welcome! Have a great day!",
    "Goodbye!",
    "Solution: It was a pleasure working with you. Next request.",
    "Instruction: None\nInput: None",
    "Best regards,\nAnna Smith",
    "Muchas gracias por su ayuda.",
    "どういたしまして。",
    "I will wait for your next instruction.",
    "",
    "Good luck with the trading bot!",
    "No problem at all; feel free to reach out.",
    "ありがとうございます！",
    "Alright, let's get started!",
]
WORK = [
    "Solution: Use a moving average of 20 days.\nNext request.",
    "Instruction: Write the loader.\nInput: None",
    "The answer is 42.",
    "Paris",
    "Thanks! Now write a test for it.",
    "```python\nprint('thank you')\n```",
]


def agree(heard: Session) -> None:
    """Hold that the ending takes the last two turns for a polite round where the detector does."""
    ask, answer = heard.turns[-2:]
    rule = RepeatLoop(rounds=1).set_topic(heard)
    reading = read_session(replace(heard, turns=(ask, answer)))
    topic = rule.topic
    polite = all(is_polite(one, topic) for one in reading.heard)
    assert (rule((ask, answer)) is not None) == polite, (ask.text, answer.text)


@pytest.mark.parametrize("behaviour", LABELLED)
def test_both_agree_on_every_round_of_the_labelled_cases(behaviour: str) -> None:
    rounds = 0
    for case in read_cases(behaviour):  # type: ignore[arg-type]
        turns = case.session.turns
        for number in range(1, len(turns)):
            if turns[number].speaker == "assistant" and turns[number - 1].speaker == "user":
                agree(replace(case.session, turns=turns[number - 1 : number + 1]))
                rounds += 1
    assert rounds > 50


def test_both_agree_on_generated_turns() -> None:
    draw = Random(7)
    for _ in range(3000):
        said = [
            " ".join(draw.choices(COURTESIES + WORK * (draw.random() < 0.3), k=draw.randint(1, 3)))
            for _ in range(2)
        ]
        agree(conversation(*said))


def test_a_session_that_is_ended_for_its_loop_is_reported_for_it_too() -> None:
    draw = Random(11)
    ended = 0
    for _ in range(400):
        pool = draw.choice([COURTESIES, COURTESIES + WORK[:1], draw.sample(WORK, 2)])
        heard = conversation(*(draw.choice(pool) for _ in range(8)))
        if RepeatLoop().set_topic(heard)(heard.turns) is None:
            continue
        ended += 1
        found = {one.turn for one in find_behaviours(heard, ["infinite_loop"])}
        assert heard.turns[-1].number in found
    assert ended > 100


@pytest.mark.parametrize(
    ("said", "loops"),
    [
        (["Thank you!", "You're welcome!"], True),
        (["Muchas gracias.", "De nada."], True),
        (["It was lovely working with you.", "Likewise! Keep in touch."], True),
        (["Awesome, great job!", "Happy to help. Anything else?"], True),
        (["Good luck with the trading bot!", "All the best, Stock Trader!"], True),
        (["Instruction: None", "I am ready and waiting for your instruction."], True),
        (["Thanks! Now write step {n}.", "You're welcome!"], False),
    ],
)
def test_four_rounds_of_courtesy_end_a_session(said: list[str], loops: bool) -> None:
    heard = conversation(*(text.format(n=n) for n in range(4) for text in said))
    assert (RepeatLoop().set_topic(heard)(heard.turns) is not None) == loops


@pytest.mark.parametrize(
    "line",
    [
        "Instruction: Go.",
        "**Instruction**: Go.",
        "**Instruction:** Go.",
        "Instruction：Go.",
        "# Instruction: Go.",
    ],
)
def test_user_and_assistant_are_read_by_one_pattern(line: str) -> None:
    assert read_instruction(line) is not None
    assert find_instruction(f"Well.\n{line}") is not None
    assert AssistantInstructs()((turn(1, line), turn(2, line))) is not None


def test_the_rule_of_a_session_knows_its_topic() -> None:
    one = session(task="Grow saffron")
    assert "saffron" in RepeatLoop().set_topic(one).topic
