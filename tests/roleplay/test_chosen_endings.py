"""Endings chosen one by one, and CAMEL's own rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import InputError, RecipeError
from bactrian.protocol.markers import DONE
from bactrian.recipes.load import load_recipe
from bactrian.recipes.parameters import SETS, THRESHOLDS, parse_endings
from bactrian.recipes.schema import RolePlay
from bactrian.roleplay.chosen_endings import read_endings
from tests.helpers.scenes import ANSWER, ASK, played, rounds, scene, script, setup

CHAT = ["So what?", "Solution: Fine.\nNext request."]
THANKS = ["Instruction: Thank you, bye\nInput: None", "Solution: Welcome.\nNext request."]
FLIP = ["Instruction: Go on.\nInput: None", "Solution: the Instruction: I gave.\nNext request."]


async def ended(lines: list[str], endings: str, **more: Any) -> tuple[str, int]:
    rules, paper = read_endings(endings)
    stage = scene(script(*lines), endings=rules, paper_endings=paper, **more)
    turns, ending = await played(stage)
    return ending.code, len(turns)


async def test_only_the_endings_of_the_list_end_a_session() -> None:
    lines = [*CHAT * 4, *(str(line) for line in rounds(4))]
    assert await ended(lines, "paper") == ("user_no_instruct", 5)
    assert await ended(lines, "task_done,max_messages=12") == ("max_messages", 12)
    assert await ended(lines, "paper,-user_no_instruct,max_messages=10") == ("max_messages", 10)


async def test_a_threshold_is_how_often_in_a_row_an_ending_shows() -> None:
    assert await ended(CHAT * 6, "user_no_instruct=5") == ("user_no_instruct", 9)
    flips = [ASK.format(1), "Instruction: you do it"] * 4
    assert await ended(flips, "paper") == ("assistant_instruct", 2)
    assert await ended(flips, "assistant_instruct=3") == ("assistant_instruct", 6)
    assert await ended([ASK.format(1), ANSWER.format(1)] * 6, "repeat_loop=2") == ("repeat_loop", 4)


@pytest.mark.parametrize(
    ("lines", "ours", "camels"),
    [
        (FLIP, ("max_messages", 12), ("assistant_instruct", 2)),
        ([f"Instruction: Say {DONE} soon.\nInput: None", CHAT[1]], ("max_messages", 12), ("task_done", 1)),
        (["**Anything**", CHAT[1]], ("user_no_instruct", 5), ("user_no_instruct", 5)),
        ([f"```\n{DONE}\n```\nno", CHAT[1]], ("user_no_instruct", 5), ("task_done", 1)),
        (THANKS, ("max_messages", 12), ("repeat_loop", 8)),
    ],
)
async def test_camels_rules_look_for_substrings(
    lines: list[str], ours: tuple[str, int], camels: tuple[str, int]
) -> None:
    assert await ended(lines * 6, "paper", max_messages=12) == ours
    assert await ended(lines * 6, "camel", max_messages=12) == camels


async def test_camel_asks_for_three_turns_without_instruction_before_it_asks_for_the_token() -> None:
    lines = [*CHAT * 2, DONE]
    assert await ended(lines, "camel") == ("user_no_instruct", 5)
    assert await ended(lines, "paper") == ("task_done", 5)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("task_dome", "no ending 'task_dome'.*task_done"),
        ("task_done=3", "threshold does not fit"),
        ("max_messages=0", "threshold does not fit"),
        ("paper,-repeat_loop", "not in the list"),
        ("", "empty"),
        ("paper;camel", "is not an ending"),
    ],
)
def test_a_list_that_cannot_be_meant_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        parse_endings(text)


def test_a_recipe_may_list_endings_and_keeps_the_limit_in_one_place(tmp_path: Path) -> None:
    role_play = load_recipe("ai-society", ["endings=task_done,user_no_instruct=2,max_messages=6"]).job
    assert isinstance(role_play, RolePlay)
    assert role_play.longest == 6
    listed = load_recipe("ai-society", ['endings=["paper", "repeat_loop=3"]']).job
    assert isinstance(listed, RolePlay)
    assert listed.endings == "paper,repeat_loop=3"
    with pytest.raises(RecipeError, match="another limit of messages"):
        load_recipe("ai-society", ["endings=max_messages=6", "max_messages=8"])
    with pytest.raises(RecipeError, match="no ending 'papper'"):
        load_recipe("ai-society", ["endings=papper"])


def test_with_other_endings_it_is_another_session() -> None:
    from bactrian.protocol.pack import load_pack
    from bactrian.roleplay.setup import new_session

    def made(endings: str) -> str:
        rules, paper = read_endings(endings)
        return new_session(setup(endings=rules, paper_endings=paper), load_pack("ai-society")).id

    assert len({made(text) for text in ("default", "paper", "camel", "paper,user_no_instruct=2")}) == 4
    assert made("task_done, user_no_instruct=3") == made("task_done user_no_instruct=3")


def test_the_page_on_endings_says_what_the_program_does() -> None:
    page = (Path(__file__).parents[2] / "docs" / "endings.md").read_text("utf-8")
    for name, codes in SETS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` |"))
        assert re.findall(r"`(\w+)`", row)[1:] == list(codes)
    for code, threshold in THRESHOLDS.items():
        if code != "refused":
            row = [line for line in page.splitlines() if line.startswith(f"| `{code}` |")][-1]
            assert re.findall(r"\d+", row.split("|")[3])[:1] == ([str(threshold)] if threshold else [])
