"""Red-team work is acknowledged, and marked."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Plan, Received, completion
from tests.helpers.generation import RECIPE, TASKS, generate, said, stored


async def test_red_team_work_needs_a_preamble_and_an_acknowledgement_and_is_marked(folder: Path) -> None:
    (folder / "small.toml").write_text(RECIPE.replace('name = "small"', 'name = "small"\nred_team = true'))
    preamble = ["--set", "role_play.preamble=Say nothing kind."]
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint)
        assert (code, "needs a preamble" in err) == (2, True)
        code, _, err = await generate(folder, endpoint, *preamble)
        assert (code, "--acknowledge-misuse" in err) == (2, True)
        assert endpoint.requests == []
        code, _, err = await generate(folder, endpoint, *preamble, "--acknowledge-misuse", "--limit", "1")
        assert code == 0, err
        systems = [request.json["messages"][0]["content"] for request in endpoint.requests]
    assert all(system.startswith("Say nothing kind.\n\n") for system in systems)
    assert [session.mark for session in await stored(folder)] == ["red-team"]
    (run,) = folder.glob("*.db")
    words = ("export", run.name, "--format", "messages", "--out")
    kept = await asyncio.to_thread(bactrian, *words, "kept.jsonl", "--mark", "red-team", cwd=folder)
    assert kept.returncode == 0, kept.stderr
    left = await asyncio.to_thread(bactrian, *words, "left.jsonl", "--drop", "mark=red-team", cwd=folder)
    assert (left.returncode, "No session is left to write" in left.stderr) == (2, True), left.stderr


async def test_the_preamble_stands_before_every_prompt_the_specifiers_included(folder: Path) -> None:
    recipe = RECIPE.replace('name = "small"', 'name = "small"\nred_team = true')
    recipe = recipe.replace("specify = false", "specify = true\nplan = true")
    (folder / "small.toml").write_text(f'{recipe}[critic]\nrole = "Judge"\nproposals = 2\n')

    def reply(request: Received) -> Plan:
        first = request.json["messages"][0]["content"]
        if "You play Judge" in first:
            return "Choice: 1"
        if "List 4 tasks" in first:
            return TASKS
        text = said(request)
        return completion(
            *[text, text.replace("part", "bit").replace("Part", "Bit")][: request.json.get("n", 1)]
        )

    async with Endpoint([reply]) as endpoint:
        preamble = ("--set", "role_play.preamble=Say nothing kind.", "--acknowledge-misuse")
        code, _, err = await generate(folder, endpoint, *preamble, "--limit", "1")
        assert code == 0, err
        asked = [
            [message["content"] for message in request.json["messages"]] for request in endpoint.requests
        ]
    # The specifier and the planner have a line of the program's own before their prompt.
    prompts = [
        texts[1] if texts[0].startswith(("You make a task", "You divide")) else texts[0] for texts in asked
    ]
    assert all(text.startswith("Say nothing kind.\n\n") for text in prompts)
    for words in (
        "List 4 tasks",
        "Rewrite it as one concrete task",
        "into subtasks",
        "you instruct",
        "you solve",
        "Judge",
    ):
        assert any(words in text for text in prompts), words


async def test_red_team_work_that_only_answers_needs_no_preamble(folder: Path) -> None:
    recipe = RECIPE.partition("[role_play]")[0].replace("specify = false", "")
    leaf = '[answer]\nrole = "Chef"\nsystem = "Answer."\nquestion = "{{ task }}"\n'
    (folder / "small.toml").write_text(
        recipe.replace('name = "small"', 'name = "small"\nred_team = true') + leaf
    )
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--acknowledge-misuse", "--limit", "1")
    assert code == 0, err
    assert [session.mark for session in await stored(folder)] == ["red-team"]
