"""The ending for repeat loops and the behaviour infinite loop are one detector."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.detect import loops
from bactrian.detect.detector import DetectedConversation, load_model
from bactrian.detect.features import REMEMBERED
from bactrian.detect.loops import can_be_loop, count_repeats, count_void_turns, is_loop
from bactrian.detect.turn_text import ReadTurn, read_turn, read_turns
from bactrian.protocol.markers import find_instruction, read_instruction
from bactrian.roleplay.endings import AssistantInstructs, RepeatLoop
from benchmarks.corpus import read_corpus
from benchmarks.labelled import conversation
from tests.helpers.runs import turn

COURTESIES = [
    "Thank you so much for your help!",
    "You're welcome! Have a great day!",
    "Goodbye!",
    "Solution: It was a pleasure working with you. Next request.",
    "Instruction: None\nInput: None",
    "Muchas gracias por su ayuda.",
    "どういたしまして。",
    "I will wait for your next instruction.",
    "No problem at all; feel free to reach out.",
    "ありがとうございます！",
]
WORK = [
    "Solution: Use a moving average of 20 days.\nNext request.",
    "Instruction: Write the loader.\nInput: None",
    "The answer is 42.",
]


def test_a_session_that_is_ended_for_its_loop_is_reported_for_it_too() -> None:
    draw = Random(11)
    ended = 0
    for _ in range(60):
        pool = draw.choice([COURTESIES, [*COURTESIES, *WORK], draw.sample(WORK, 2)])
        heard = conversation(*(draw.choice(pool) for _ in range(draw.choice((8, 14, 26)))))
        if RepeatLoop()(heard.turns) is None:
            continue
        ended += 1
        assert heard.turns[-1].number in {
            finding.turn for finding in find_behaviours(heard, ["infinite_loop"])
        }
    assert ended > 3


def test_the_ending_sees_the_same_whether_it_reads_all_turns_or_the_last_ones() -> None:
    model = load_model()
    head = model.get_head("infinite_loop")
    compared = 0
    window = REMEMBERED + 4
    conversations = (labelled.session.turns for labelled in read_corpus())
    for turns in islice((turns for turns in conversations if len(turns) > window), 8):
        whole = DetectedConversation(model, read_turns(turns))
        part = DetectedConversation(model, read_turns(turns[-window:]))
        for offset in (2, 1):
            assert part.score(head, window - offset) == whole.score(head, len(turns) - offset)
        compared += 1
    assert compared == 8


@pytest.mark.parametrize(
    ("said", "loops"),
    [
        (["Thank you!", "You're welcome!"], True),
        (["Muchas gracias.", "De nada."], True),
        (["It was lovely working with you.", "Likewise! Keep in touch."], True),
        (["Awesome, great job!", "Happy to help. Anything else?"], True),
        (["Instruction: None", "I am ready and waiting for your instruction."], True),
        (
            [
                "Write step {n} of the guide on {topic}.",
                "Solution: {topic} needs {n}{n} screws and a {topic} key.",
            ],
            False,
        ),
    ],
)
def test_four_rounds_that_bring_nothing_end_a_session(said: list[str], loops: bool) -> None:
    topics = ("shelves", "lamps", "doors", "chairs")
    heard = conversation(*(text.format(n=n, topic=topics[n]) for n in range(4) for text in said))
    assert (RepeatLoop()(heard.turns) is not None) == loops


def test_turns_of_work_are_not_even_read_by_the_ending() -> None:
    draw = Random(3)
    words = [f"word{number}" for number in range(5000)]
    heard = conversation(*(" ".join(draw.sample(words, 90)) for _ in range(40)))
    assert not any(can_be_loop(heard.turns[:count], 8) for count in range(1, 41))


def test_the_ending_reads_each_turn_once_though_it_is_asked_after_every_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []

    def read(text: str, *, by_user: bool) -> ReadTurn:
        seen.append(text)
        return read_turn(text, by_user=by_user)

    monkeypatch.setattr(loops, "read_turn", read)
    parts = ("lid", "pump", "valve", "motor", "handle", "spring")
    draw = Random(5)
    said: list[str] = []
    for _ in range(20):
        one, other, third = draw.sample(parts, 3)
        said += [
            f"Instruction: Say which parts of the machine the {one} and the {other} drive.\nInput: None",
            f"Solution: The {one} drives the {third}, and the {other} drives the {one}.\nNext request.",
        ]
    talk = conversation(*said)
    for length in range(8, 41, 2):
        RepeatLoop()(talk.turns[:length])
    assert len(seen) == len(set(seen))


def test_a_blank_turn_goes_on_a_loop_and_the_done_token_ends_it() -> None:
    thanks = ("Thank you!", "You're welcome!")
    model = load_model()
    counts = count_void_turns(
        DetectedConversation(model, read_turns(conversation(*thanks * 3, "", "Bye!").turns))
    )
    assert counts[6] == counts[5] + 1
    counts = count_void_turns(
        DetectedConversation(model, read_turns(conversation(*thanks * 3, "<CAMEL_TASK_DONE>").turns))
    )
    assert counts[-1] == 0


def test_four_rounds_of_the_same_words_are_a_loop_and_the_first_is_not_counted_as_repeated() -> None:
    round_of_work = (
        "Instruction: Name the capital of Chile.\nInput: None",
        "Solution: It is Santiago.\nNext request.",
    )
    heard = conversation(*round_of_work * 4)
    assert count_repeats(read_turns(heard.turns)) == [0, 0, 1, 2, 3, 4, 5, 6]
    assert is_loop(heard.turns, 8)
    assert not is_loop(heard.turns[:6], 8)
    assert {finding.turn for finding in find_behaviours(heard, ["infinite_loop"])} >= {6, 7, 8}


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


def test_a_talk_that_counts_its_parts_is_not_ended_as_a_loop() -> None:
    parts = [
        text
        for part in range(1, 21)
        for text in (
            f"Instruction: Do part {part}.\nInput: None",
            f"Solution: Part {part} is done.\nNext request.",
        )
    ]
    talk = conversation(*parts)
    assert not any(RepeatLoop()(talk.turns[:length]) for length in range(8, len(talk.turns) + 1))


def test_a_talk_that_says_the_same_part_again_is_ended_as_a_loop() -> None:
    rounds = ["Instruction: Do part 3.\nInput: None", "Solution: Part 3 is done.\nNext request."] * 6
    talk = conversation(*rounds)
    assert any(RepeatLoop()(talk.turns[:length]) for length in range(8, len(talk.turns) + 1))


def test_an_ending_takes_a_sure_score() -> None:
    model = load_model()
    doubtful = replace(
        model,
        heads=tuple(
            replace(head, threshold=-99.0, forest=replace(head.forest, base=-9.0)) for head in model.heads
        ),
    )
    texts = next(
        conversation.session.turns[:12]
        for conversation in read_corpus()
        if len(conversation.session.turns) >= 12 and is_loop(conversation.session.turns[:12], 8)
    )
    assert is_loop(texts, 8, model)
    assert not is_loop(texts, 8, doubtful)
