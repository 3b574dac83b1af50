"""A run that an earlier version of the program began goes on, although the recipe's texts have changed."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from bactrian.recipes.load import list_earlier_recipes, load_recipe
from tests.helpers.command import Command, clean_environment
from tests.helpers.endpoint import Endpoint, Received
from tests.helpers.generation import asks, said, stored

SETTINGS = (
    "programming_language.count=1",
    "domain.count=1",
    "task.count=2",
    "specify=false",
    "max_messages=2",
)


async def test_a_run_of_an_earlier_recipe_goes_on_with_its_own_texts_and_says_so(tmp_path: Path) -> None:
    async with Endpoint([said]) as endpoint:

        async def generate(*more: str) -> tuple[int, str]:
            words = [
                "generate",
                "code",
                "--run",
                "run.db",
                "--model",
                "openai:any",
                "--base-url",
                endpoint.url,
            ]
            words += [word for setting in SETTINGS for word in ("--set", setting)]
            process = Command((*words, *more), tmp_path, clean_environment())
            _, err = await process.communicate()
            return process.wait(), err.decode()

        assert (await generate("--limit", "1"))[0] == 0
        (earlier,) = list_earlier_recipes(load_recipe("code", SETTINGS))
        with closing(sqlite3.connect(tmp_path / "run.db")) as database, database:
            (frozen,) = database.execute("SELECT recipe FROM run").fetchone()
            content = json.loads(frozen) | {"recipe": earlier.content()}
            database.execute("UPDATE run SET recipe = ?", (json.dumps(content),))
        code, err = await generate()
        assert code == 0, err
        assert "begun with an earlier version of the recipe 'code'" in " ".join(err.split())
    sessions = await stored(tmp_path)
    assert [session.assistant.description[:40] for session in sessions] == [
        "A computer programmer who helps people i",
        "A computer programmer who helps people i",
    ]
    assert "You program in Java" in sessions[1].assistant.description
    assert sessions[1].task.original == "Fly a kite"


APART = """
name = "riddles"
[[axes]]
name = "riddle"
count = 3
each = true
ask = "Write {{ count }} riddle."
[role_play]
assistant = "Sphinx"
user = "Student"
idea = "{{ riddle }}"
specify = false
max_messages = 2
"""


async def test_a_list_of_single_questions_goes_on_by_the_rule_that_its_run_began_with(tmp_path: Path) -> None:
    (tmp_path / "riddles.toml").write_text(APART)
    asked: list[tuple[str, int]] = []

    def reply(request: Received) -> str:
        if asks(request) != "lister":
            return said(request)
        asked.append((request.json["messages"][0]["content"], request.json["seed"]))
        return f"Riddle number {len(asked)}?"

    async with Endpoint([reply]) as endpoint:

        async def generate(run: str, *more: str) -> tuple[int, str]:
            words = ["generate", "riddles.toml", "--run", run, "--seed", "7", "--model", "openai:any"]
            process = Command((*words, "--base-url", endpoint.url, *more), tmp_path, clean_environment())
            _, err = await process.communicate()
            return process.wait(), err.decode()

        assert (await generate("old.db", "--limit", "1"))[0] == 0
        with closing(sqlite3.connect(tmp_path / "old.db")) as database, database:
            (frozen,) = database.execute("SELECT recipe FROM run").fetchone()
            content = json.loads(frozen)
            assert content["recipe"]["axes"][0].pop("earlier") == 0
            del content["seeds"]  # as an earlier version froze it
            database.execute("UPDATE run SET recipe = ?", (json.dumps(content),))
        asked[1:] = []
        code, err = await generate("old.db")
        assert code == 0, err
        old = asked[1:]
        asked.clear()
        code, err = await generate("new.db")
        assert code == 0, err
        new = list(asked)
    assert [seed for _, seed in old] == [8, 9]
    assert [text.count("- Riddle number") for text, _ in old] == [1, 2]
    assert [text for text, _ in new] == ["Write 1 riddle."] * 3
