"""A pack may use the axes of a recipe, and only those that it declares."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bactrian.errors import PromptError
from bactrian.export.session_filters import Filters
from bactrian.protocol.pack import load_pack
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Plan, Received
from tests.helpers.exports import handed
from tests.helpers.generation import RECIPE, asks, generate, said, stored

TEMPLATES = "\n".join(
    f"{name} = '{{{{ role }}}} at {{{{ task }}}}: {name}'"
    for name in ("task_specifier", "task_planner", "assistant_system", "opening_request", "critic")
)
PACK = f"""
name = "mine"
axes = ["role"]
[templates]
user_system = '{{{{ role }}}}, you instruct: {{{{ task }}}}'
{TEMPLATES}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    recipe = RECIPE.replace("specify = false", "specify = true\nplan = true")
    (tmp_path / "small.toml").write_text(recipe)
    (tmp_path / "mine.toml").write_text(PACK)
    return tmp_path


async def test_the_items_of_a_job_stand_in_every_prompt(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        return "A task." if "task_" in str(request.json["messages"][:2]) else said(request)

    async with Endpoint([reply]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--set", "prompts=mine.toml", "--limit", "1")
        assert code == 0, err
        first = [request.json["messages"][0]["content"] for request in endpoint.requests]
        second = [request.json["messages"][1:2] for request in endpoint.requests]
    assert [{"role": "user", "content": "Chef at Bake bread: task_specifier"}] in second
    assert [{"role": "user", "content": "Chef at A task.: task_planner"}] in second
    assert any(text.startswith("Chef, you instruct: A task.") for text in first)
    assert any(text.startswith("Chef at A task.") and "assistant_system" in text for text in first)
    (session,) = await stored(folder)
    assert session.provenance.prompts_hash == load_pack(folder / "mine.toml").hash


async def test_an_axis_that_the_recipe_lacks_is_an_error_before_any_request(folder: Path) -> None:
    (folder / "mine.toml").write_text(PACK.replace("role", "cook").replace("user_cook", "user_role"))
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--set", "prompts=mine.toml")
        assert code == 2
        assert "'cook', and the recipe has role, task" in " ".join(err.split())
        code, _, err = await generate(folder, endpoint, "--set", "prompts=code")
        assert code == 2
        assert "'programming_language', 'domain'" in " ".join(err.split())
        where = ("--model", "openai:any", "--base-url", endpoint.url)
        played = bactrian("play", "tea", "--prompts", "code", *where, cwd=folder)
        assert played.returncode == 2
        assert "not made by a recipe" in " ".join(played.stderr.split())
        assert endpoint.requests == []


@pytest.mark.parametrize("axes", ['"role"', '["task"]', '["Role"]', '["role", "role"]', "[1]"])
def test_axes_that_cannot_be_names_are_refused_with_their_place(tmp_path: Path, axes: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PACK.replace('["role"]', axes))
    with pytest.raises(PromptError, match="axis|axes") as caught:
        load_pack(path)
    assert (caught.value.where or "").startswith(f"{path}:3")


def test_an_axis_that_is_not_declared_is_no_placeholder(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(PACK.replace('axes = ["role"]', ""))
    with pytest.raises(PromptError, match="uses the placeholder 'role'"):
        load_pack(path)


async def test_the_code_society_is_told_of_language_and_domain(tmp_path: Path) -> None:
    def reply(request: Received) -> Plan:
        if asks(request) == "lister":
            first = request.json["messages"][0]["content"]
            return "1. Sort herds\n2. Count hay" if first.startswith("List") else "Sort the herd."
        return said(request)

    async with Endpoint([reply]) as endpoint:
        command = ("generate", "code", "--run", "code.db", "--limit", "1")
        more = ("--set", "task.count=2", "--set", "max_messages=2", "--model", "openai:any")
        done = await _run(tmp_path, *command, *more, "--base-url", endpoint.url)
        assert done[0] == 0, done[1]
        first = [request.json["messages"][0]["content"] for request in endpoint.requests]
    assert any(
        "help me finish it using Java." in text and "Each solution must contain Java code." in text
        for text in first
    )
    assert any("a person who works in Accounting, and you instruct" in text for text in first)
    await handed(tmp_path / "code.db", "camel-chat", tmp_path / "chats", filters=Filters(unfinished=True))
    chats = [json.loads(file.read_text()) for file in (tmp_path / "chats").glob("*.json")]
    assert [chat["original_task"] for chat in chats] == ["Sort herds"]


async def _run(folder: Path, *command: str) -> tuple[int, str]:
    from tests.helpers.command import Command, clean_environment

    process = Command(command, folder, clean_environment())
    _, err = await process.communicate()
    return process.wait(), err.decode()
