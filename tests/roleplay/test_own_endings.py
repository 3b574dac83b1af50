"""Endings of the user's own."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bactrian.errors import InputError
from bactrian.protocol.pack import load_pack
from bactrian.records.session import Ending, Role
from bactrian.records.text import Text
from bactrian.records.turn import Turn, Usage
from bactrian.roleplay.chosen_endings import combine_endings, ending, find_code, read_endings
from bactrian.roleplay.endings import EndpointRefused, MaxMessages, RepeatLoop, Rule, default_endings
from bactrian.roleplay.setup import RolePlaySetup, new_session


def turn(text: str, number: int = 1) -> Turn:
    speaker = "user" if number % 2 else "assistant"
    return Turn(number, speaker, "Someone", Text(text), None, Usage(), 0.0, None, "m", "stop")


@ending
def too_polite(turns: Sequence[Turn]) -> bool:
    return "thank you" in turns[-1].text.lower()


class AfterTwo:
    def __call__(self, turns: Sequence[Turn]) -> str | None:
        return "two are enough" if len(turns) == 2 else None


def test_a_function_ends_a_session_under_its_own_name() -> None:
    assert too_polite([turn("Thank you!")]) == Ending("too_polite", 1, "user", "Thank you!")
    assert too_polite([turn("Go on.")]) is None


def test_a_text_is_the_evidence_and_a_class_gives_its_name() -> None:
    (rule,), paper = read_endings([AfterTwo()])
    assert not paper
    assert rule([turn("a"), turn("b", 2)]) == Ending("after_two", 2, "assistant", "two are enough")


def test_a_code_stands_for_an_ending_and_a_wrong_one_is_named() -> None:
    assert read_endings("paper") == ((), True)
    assert read_endings(["default", too_polite]) == ((too_polite,), False)
    (chosen,), paper = read_endings("repeat_loop=2")
    rules = combine_endings([chosen], paper=paper, limit=8)
    assert rules == (EndpointRefused(), RepeatLoop(2), MaxMessages(8))
    with pytest.raises(InputError, match="no ending 'task_dome'.*task_done"):
        read_endings("task_dome")


def test_own_endings_come_before_the_limit_and_take_the_place_of_their_kind() -> None:
    rules = combine_endings([RepeatLoop(rounds=2), too_polite], paper=False, limit=40)
    assert [find_code(rule) for rule in rules] == [
        *[find_code(rule) for rule in default_endings()][:-1],
        "too_polite",
        "max_messages",
    ]
    assert RepeatLoop(rounds=2) in rules
    assert RepeatLoop() not in rules
    given = combine_endings([*default_endings(6), too_polite], paper=False, limit=40)
    assert given[-1] == MaxMessages(6)


def test_a_function_that_fails_is_named_with_its_turn() -> None:
    @ending
    def broken(turns: Sequence[Turn]) -> bool:
        return turns[5].text == ""

    with pytest.raises(InputError, match="'broken' failed at turn 1: IndexError"):
        broken([turn("a")])


def test_a_code_has_to_fit_into_files_and_filters() -> None:
    with pytest.raises(InputError, match="'Too Polite' cannot be the code"):
        ending("Too Polite")(lambda turns: True)


def made(*endings: Rule) -> str:
    models: dict[str, str] = dict.fromkeys(
        ("user", "assistant", "task_specifier", "task_planner"), "scripted:x.json"
    )
    setup = RolePlaySetup("Choose a tea", Role("Merchant"), Role("Guest"), models, endings=endings)
    return new_session(setup, load_pack("ai-society")).id


def test_a_session_keeps_its_id_and_other_endings_make_another_session() -> None:
    assert made() == "8472895287d1"
    assert made(too_polite) not in (made(), made(RepeatLoop()))
