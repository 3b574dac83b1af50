"""The lists of a run go out as CAMEL publishes its own, and come in again."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import bactrian as bt
from bactrian.errors import InputError
from tests.helpers.command import bactrian
from tests.helpers.runs import make_run, session

LISTS = {
    "Cook helps": "1. Bake bread\n2. Fly a kite",
    "Critic helps": "1. Rate a film\n2. Write a column",
    "Optics": "1. Mirrors",
    "Heat": "1. Steam",
    "Mirrors": "What is a mirror?\nExplain.",
    "Steam": "Why does steam rise?",
    "Java": "1. Count words",
}


def make_list(messages: list[dict[str, str]]) -> str:
    """A list for the last of the known words in the question."""
    question = messages[-1]["content"]
    return next(text for word, text in reversed(LISTS.items()) if word in question)


def generate(folder: Path, recipe: Any, name: str) -> bt.Run:
    script = bt.Scripted(
        {"task_specifier": ["Do it."], "user": ["<CAMEL_TASK_DONE>"], "assistant": ["Solution: 1."]}
    )
    return bt.generate(recipe, run=folder / name, model=script, models={"lister": make_list})


def read(folder: Path) -> dict[str, str]:
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*.txt")}


def test_roles_and_tasks_lie_as_camel_publishes_them_and_are_read_again(tmp_path: Path) -> None:
    small = bt.recipe("ai-society", assistant_role=["Cook", "TV/Film Critic"], user_role=["Pilot"], task=2)
    run = generate(tmp_path, small, "run.db")
    run.export("camel-lists", tmp_path / "lists")
    assert read(tmp_path / "lists") == {
        "assistant_roles.txt": "1. Cook\n2. TV/Film Critic\n",
        "user_roles.txt": "1. Pilot\n",
        "tasks/Cook_Pilot.txt": "1. Bake bread\n2. Fly a kite\n",
        "tasks/TV%2FFilm%20Critic_Pilot.txt": "1. Rate a film\n2. Write a column\n",
    }
    again = bt.recipe(
        "ai-society",
        assistant_role={"file": str(tmp_path / "lists" / "assistant_roles.txt"), "count": 2},
        user_role={"file": str(tmp_path / "lists" / "user_roles.txt"), "count": 1},
        task={"file": f"{tmp_path}/lists/tasks/{{{{ assistant_role }}}}_{{{{ user_role }}}}.txt", "count": 2},
    )
    second = generate(tmp_path, again, "again.db")
    assert {session.id: dict(session.values) for session in second} == {
        session.id: dict(session.values) for session in run
    }


def test_topics_of_a_science_lie_below_each_other(tmp_path: Path) -> None:
    small = bt.recipe("physics", topic=["Optics", "Heat"], sub_topic=1, problem=1)
    run = generate(tmp_path, small, "run.db")
    run.export("camel-lists", tmp_path / "lists")
    assert read(tmp_path / "lists") == {
        "topics.txt": "1. Optics\n2. Heat\n",
        "sub_topics/Optics.txt": "1. Mirrors\n",
        "sub_topics/Heat.txt": "1. Steam\n",
        "problems/Optics_Mirrors.txt": "1. What is a mirror? Explain.\n",
        "problems/Heat_Steam.txt": "1. Why does steam rise?\n",
    }


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    small = bt.recipe("code", programming_language=["Java"], domain=["Law"], task=1)
    generate(tmp_path, small, "run.db")
    done = bactrian("export", "run.db", "--format", "camel-lists", "--out", "lists", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "lists: camel-lists, 3 items in 3 files\n"
    assert set(read(tmp_path / "lists")) == {"languages.txt", "domains.txt", "tasks/Java_Law.txt"}
    manifest = json.loads((tmp_path / "lists.manifest.json").read_text())
    assert len(manifest["files"]) == 3
    done = bactrian("export", "run.db", "--format", "camel-lists", "--out", "lists", cwd=tmp_path)
    assert done.returncode == 2
    done = bactrian(*("export", "run.db", "--format", "camel-lists", "--out", "x", "--dedup"), cwd=tmp_path)
    assert "dedup does not apply" in done.stderr


def test_a_run_without_a_recipe_has_no_lists(tmp_path: Path) -> None:
    asyncio.run(make_run(tmp_path / "tea.db", [session()]))
    with pytest.raises(InputError, match="no lists"):
        bt.open_run(tmp_path / "tea.db").export("camel-lists", tmp_path / "lists")
    assert not (tmp_path / "lists").exists()


def test_two_lists_that_would_be_one_file_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    names = {
        "assistant_role": ["Cook helps_Critic helps", "Cook helps"],
        "user_role": ["A", "Critic helps_A"],
    }
    run = generate(tmp_path, bt.recipe("ai-society", **names, task=1), "run.db")
    with pytest.raises(InputError, match="would be the file 'Cook helps_Critic helps_A.txt'"):
        run.export("camel-lists", tmp_path / "lists")
    assert not (tmp_path / "lists").exists()
