"""Chats as training tools take them, from either side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bactrian.models.scripted import Scripted
from bactrian.protocol.markers import DONE
from bactrian.roleplay.agent import View
from bactrian.roleplay.endings import default_endings
from bactrian.roleplay.role_play import build_role_play
from tests.helpers.exports import exported, lines
from tests.helpers.runs import PACK, session, turn


def roles(row: dict[str, Any]) -> list[str]:
    return [message["role"] for message in row["messages"]]


@pytest.mark.parametrize("side", ["assistant", "user"])
async def test_a_chat_is_what_the_agent_of_that_side_saw(tmp_path: Path, side: Any) -> None:
    one = session(rounds=2)
    out, _ = await exported(tmp_path, [one], "messages", "tea.jsonl", side=side)
    (row,) = lines(out)
    scene = build_role_play(
        one, PACK, dict.fromkeys(("user", "assistant"), Scripted([])), rules=default_endings()
    )
    seen = View(scene.agents[side], one.turns).messages
    expected = [{"role": message.role, "content": message.text} for message in seen]
    # The assistant saw the done token, too, and has no answer to learn from it.
    assert row["messages"] == (expected if side == "user" else expected[:-1])
    assert row["system_prompt"] == "as said"


@pytest.mark.parametrize("side", ["assistant", "user"])
async def test_turns_alternate_after_the_system_prompt_and_the_side_that_learns_has_the_last_word(
    tmp_path: Path, side: Any
) -> None:
    sessions = [
        session("done", rounds=2),
        session("limit", rounds=2, code="max_messages"),
        session("alone", texts=["Instruction: Go.\nInput: None"], code="token_limit"),
        session("silent", texts=[], code="failed"),
    ]
    out, made = await exported(tmp_path, sessions, "messages", "tea.jsonl", side=side)
    rows = lines(out)
    for row in rows:
        first, *others = roles(row)
        assert first == "system"
        assert others == ["user", "assistant"] * (len(others) // 2)
    spoke = ["done", "limit"] if side == "assistant" else ["done", "limit", "alone"]
    assert [row["session"] for row in rows] == spoke
    assert made["counts"]["left_out"] == {"nothing for messages in it": 4 - len(spoke)}


async def test_the_users_side_ends_with_the_done_token_and_the_assistants_never_holds_it(
    tmp_path: Path,
) -> None:
    user, _ = await exported(tmp_path, [session()], "messages", "user.jsonl", side="user")
    other, _ = await exported(tmp_path, [session()], "messages", "assistant.jsonl")
    assert lines(user)[0]["messages"][-1] == {"role": "assistant", "content": DONE}
    assert DONE not in [message["content"] for message in lines(other)[0]["messages"]]


async def test_what_comes_after_a_gap_is_left_out(tmp_path: Path) -> None:
    turns = [turn(1, "one"), turn(2, "two"), turn(4, "four"), turn(5, "five")]
    out, _ = await exported(tmp_path, [replace(session(), turns=tuple(turns))], "messages", "tea.jsonl")
    assert [message["content"] for message in lines(out)[0]["messages"]][1:] == ["one", "two"]


async def test_a_pack_that_is_not_at_hand_is_replaced_by_a_stand_in_that_is_named_as_one(
    tmp_path: Path,
) -> None:
    origin = replace(session().provenance, prompts="mine", prompts_hash="00")
    out, _ = await exported(tmp_path, [replace(session(), provenance=origin)], "messages", "tea.jsonl")
    (row,) = lines(out)
    assert row["system_prompt"] == "stand-in"
    assert "Programmer" in row["messages"][0]["content"]
    assert "Build a tea timer for green tea." in row["messages"][0]["content"]


async def test_every_row_can_be_traced_back(tmp_path: Path) -> None:
    out, _ = await exported(tmp_path, [replace(session(), mark="red-team")], "messages", "tea.jsonl")
    (row,) = lines(out)
    assert row["run"] == "tea"
    assert row["session"] == "001_001_001"
    assert row["models"] == '{"assistant":"openai:two","user":"openai:one"}'
    assert row["prompts_hash"] == PACK.hash
    assert (
        row["sampling"]
        == '{"assistant":{"max_tokens":99,"temperature":0.2},"user":{"seed":3,"temperature":0.2}}'
    )
    assert row["ending"] == "task_done"
    assert row["mark"] == "red-team"


async def test_a_line_stays_a_line_for_readers_that_know_other_line_ends(tmp_path: Path) -> None:
    odd = "Solution: a\u2028b\u2029c\x85d\re"
    out, _ = await exported(
        tmp_path, [session(texts=["Instruction: Go.", odd], code="max_messages")], "messages", "tea.jsonl"
    )
    (row,) = lines(out)
    assert row["messages"][-1]["content"] == odd
