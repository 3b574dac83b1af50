"""CAMEL's own tools could read what is written.

Both readers are written anew from their rules: the data explorer's loader, and the converter that makes training data.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bactrian.export.formats import DistinctTasks
from bactrian.records.session import Ending, Task
from tests.helpers.exports import convert, exported, members
from tests.helpers.runs import session

KEYS = ["role_1", "role_2", "id", "original_task", "specified_task"]
AFTER = ["termination_reason", "num_messages"]


def explore(chats: dict[str, bytes]) -> dict[tuple[str, str], dict[str, Any]]:
    """What the data explorer shows: by pair, then by original task."""
    matrix: dict[tuple[str, str], dict[str, Any]] = {}
    for name, content in chats.items():
        if not name.endswith(".json"):
            continue
        chat = json.loads(content)
        if "role_1" not in chat:
            continue
        assistant = chat["role_1"].split("_RoleType.ASSISTANT")
        user = chat["role_2"].split("_RoleType.USER")
        if len(assistant) != 2 or len(user) != 2 or not assistant[0] or not user[0]:
            continue
        if not chat["original_task"] or not chat["specified_task"]:
            continue
        found = {int(match[1]): chat[key] for key in chat if (match := re.fullmatch(r"message_(\d+)", key))}
        shown = [
            (message["role_type"], message["content"])
            for _, message in sorted(found.items())
            if message["role_type"] in ("USER", "ASSISTANT")
        ]
        matrix.setdefault((assistant[0], user[0]), {})[chat["original_task"]] = shown
    return matrix


@pytest.mark.parametrize("name", ["tea", "tea.zip", "tea.tar.gz"])
async def test_a_folder_and_both_archives_hold_one_file_for_each_session_and_nothing_else(
    tmp_path: Path, name: str
) -> None:
    sessions = [session("001_001_001"), session("001_002_001", user="Guest", rounds=3)]
    out, _ = await exported(tmp_path, sessions, "camel-chat", name)
    chats = members(out)
    assert sorted(chats) == ["001_001_001.json", "001_002_001.json"]
    matrix = explore(chats)
    assert sorted(matrix) == [("Programmer", "Cook"), ("Programmer", "Guest")]
    (shown,) = matrix["Programmer", "Guest"].values()
    assert shown == [(turn.speaker.upper(), turn.text) for turn in sessions[1].turns]


async def test_the_keys_are_camels_in_camels_order(tmp_path: Path) -> None:
    out, _ = await exported(tmp_path, [session(rounds=2)], "camel-chat", "tea.zip")
    (content,) = members(out).values()
    chat = json.loads(content)
    assert list(chat) == KEYS + [f"message_{number}" for number in range(1, 6)] + AFTER
    assert chat["role_1"] == "Programmer_RoleType.ASSISTANT"
    assert chat["role_2"] == "Cook_RoleType.USER"
    assert chat["id"] == "001_001_001"
    assert list(chat["message_2"]) == ["role_type", "role_name", "role", "content"]
    assert chat["num_messages"] == 5
    assert content.isascii()
    assert b"\n" not in content


async def test_a_chat_of_forty_messages_ends_with_its_number_of_messages_too(tmp_path: Path) -> None:
    out, _ = await exported(tmp_path, [session(rounds=20, code="max_messages")], "camel-chat", "tea.zip")
    (content,) = members(out).values()
    assert list(json.loads(content))[-2:] == AFTER


async def test_the_converter_gets_the_conversation_without_the_done_token(tmp_path: Path) -> None:
    out, _ = await exported(tmp_path, [session(rounds=1)], "camel-chat", "tea.zip")
    (content,) = members(out).values()
    assert convert(content) == [("human", "Name part 1 of the timer."), ("gpt", "Part 1 is the dial “1”.")]


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        (Ending("task_done", 5, "user", ""), "<CAMEL_TASK_DONE>"),
        (Ending("user_no_instruct", 5, "user", ""), "user_no_instruct_threshold"),
        (Ending("assistant_instruct", 5, "assistant", ""), "assistant_instruct_threshold"),
        (Ending("token_limit", 5, "user", ""), "RoleType.USER: max_tokens_exceeded"),
        (Ending("token_limit", 5, "assistant", ""), "RoleType.ASSISTANT: max_tokens_exceeded"),
        (Ending("max_messages", 5, "user", ""), "max_num_messages"),
        (Ending("repeat_loop", 5, "user", ""), "repeat_word_threshold"),
        (Ending("refused", 5, "user", ""), "refused"),
        (Ending("failed", 5, "user", ""), "failed"),
    ],
)
async def test_endings_have_camels_names(tmp_path: Path, ending: Ending, reason: str) -> None:
    out, _ = await exported(tmp_path, [replace(session(), ending=ending)], "camel-chat", "tea")
    (content,) = members(out).values()
    assert json.loads(content)["termination_reason"] == reason


async def test_tasks_that_a_pair_has_twice_are_told_apart_and_the_manifest_says_so(tmp_path: Path) -> None:
    tasks = ["Tea", "Tea", "Tea (2)", "Tea"]
    sessions = [session(f"00{number}", task=task) for number, task in enumerate(tasks, start=1)]
    other = session("005", task="Tea", user="Guest")
    out, made = await exported(tmp_path, [*sessions, other], "camel-chat", "tea.zip")
    matrix = explore(members(out))
    assert list(matrix["Programmer", "Cook"]) == ["Tea", "Tea (2)", "Tea (2) (2)", "Tea (3)"]
    assert list(matrix["Programmer", "Guest"]) == ["Tea"]
    assert list(made["notes"].values()) == [3]


def test_one_task_of_a_whole_run_is_numbered_in_a_moment() -> None:
    """Each name is found at once: to try all numbers from 2 on would take minutes."""
    distinct, same = DistinctTasks(), session(task="Tea")
    tasks = [distinct(same) for _ in range(30_000)]
    assert (tasks[0], tasks[1], tasks[-1]) == ("Tea", "Tea (2)", "Tea (30000)")
    assert len(set(tasks)) == 30_000


async def test_a_task_that_was_not_specified_is_given_for_both(tmp_path: Path) -> None:
    out, _ = await exported(tmp_path, [replace(session(), task=Task("Tea"))], "camel-chat", "tea.zip")
    assert list(explore(members(out))["Programmer", "Cook"]) == ["Tea"]


async def test_a_marked_session_says_so_and_others_have_no_such_key(tmp_path: Path) -> None:
    out, made = await exported(
        tmp_path,
        [session("001"), replace(session("002", user="Guest"), mark="red-team")],
        "camel-chat",
        "tea",
    )
    chats = {name: json.loads(content) for name, content in members(out).items()}
    assert "mark" not in chats["001.json"]
    assert chats["002.json"]["mark"] == "red-team"
    assert made["marks"] == ["red-team"]


@pytest.mark.parametrize("name", ["../../evil", "a/b", ".hidden", "", "C:\\x"])
async def test_an_id_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    out, _ = await exported(tmp_path, [session(name)], "camel-chat", "tea")
    (file,) = out.iterdir()
    assert file.suffix == ".json"
    assert json.loads(file.read_bytes())["id"] == name


async def test_the_manifest_lies_beside_and_names_every_file_with_its_hash(tmp_path: Path) -> None:
    out, made = await exported(tmp_path, [session()], "camel-chat", "tea")
    assert json.loads((tmp_path / "tea.manifest.json").read_bytes()) == made
    assert [file["path"] for file in made["files"]] == ["tea/001_001_001.json"]
    assert made["counts"]["sessions"] == 1
    assert made["counts"]["messages"] == 5
    assert out.is_dir()
