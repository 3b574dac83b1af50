"""Asking a model which roles a task needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bactrian.errors import BadReply
from bactrian.models.scripted import Scripted
from bactrian.roleplay.role_assignment import RoleSuggestions, find_roles, read_roles
from tests.helpers.command import LINES, bactrian, events
from tests.helpers.scenes import Counting


def block(*numbers: int) -> str:
    return "\n".join(
        f"Role: Expert {n}\nDescription: Knows part {n}.\nCompetencies: law {n}, art {n}\n" for n in numbers
    )


async def found(model: Counting, count: int, task: str = "Make {tea} {count}") -> RoleSuggestions:
    *_, last = [suggestions async for suggestions in find_roles(task, count, model)]
    return last


def asking(*answers: str) -> Counting:
    return Counting(Scripted({"role_assigner": answers}))


async def test_any_number_of_roles_is_asked_for_until_all_are_there() -> None:
    model = asking(block(*range(1, 9)), block(8, 9, 10), block(11))
    got = await found(model, 11)
    assert [expert.name for expert in got.experts] == [f"Expert {n}" for n in range(1, 12)]
    assert got.experts[10].role().description == "Knows part 11.\nCompetencies: law 11, art 11"
    questions = [request.messages[0].text for request in model.requests]
    assert "Name 11 different roles" in questions[0]
    assert "Make {tea} {count}" in questions[0]
    assert "Name 1 different roles" in questions[2]
    assert "- Expert 10" in questions[2]
    assert got.calls == 3
    assert got.usage.total > 0


async def test_more_roles_than_wanted_are_cut() -> None:
    assert len((await found(asking(block(1, 2, 3)), 2)).experts) == 2


async def test_a_model_that_gives_fewer_is_a_clear_error() -> None:
    with pytest.raises(BadReply, match="2 of 3 roles") as caught:
        await found(asking(block(1, 2), block(1), "I do not know.", ""), 3)
    assert "count=N" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "1. **Role:** Cook\n**Description:** Cooks\ntea.\n**Competencies:** fire, water",
        "Role 1: Cook\nDescription: Cooks tea.\nCompetencies: fire, water",
        "Here they are:\n\n- Role: Cook.\n- Description: Cooks tea.\n- Competencies: fire, water",
        "### Role: Cook\nDescription: Cooks tea.\nCompetencies: fire, water\n\n### Role: Nobody",
    ],
)
def test_roles_are_read_however_they_are_decorated(text: str) -> None:
    (cook,) = read_roles(text)
    assert (cook.name, cook.description, cook.competencies) == ("Cook", "Cooks tea.", "fire, water")


def test_the_roles_of_a_task_feed_a_conversation_and_a_recipe(tmp_path: Path) -> None:
    (tmp_path / "roles.json").write_text(json.dumps({"role_assigner": [block(1, 2)]}))
    (tmp_path / "play.json").write_text(json.dumps(LINES))
    asked = ("roles", "Make tea", "--model", "scripted:roles.json")
    made = bactrian(*asked, "--json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert [line["name"] for line in events(made.stdout)] == ["Expert 1", "Expert 2"]
    assert bactrian(*asked, "--names", cwd=tmp_path).stdout == "Expert 1\nExpert 2\n"
    assert "Competencies: law 2, art 2" in bactrian(*asked, cwd=tmp_path).stdout
    (tmp_path / "roles.jsonl").write_text(made.stdout)
    playing = ("play", "Make tea", "--model", "scripted:play.json", "--json", "--run", "run.db")
    started = events(bactrian(*playing, "--roles", "roles.jsonl", cwd=tmp_path).stdout)[0]
    assert (started["assistant_role"], started["user_role"]) == ("Expert 1", "Expert 2")
    assert started["assistant_description"].startswith("Knows part 1.")
    started = events(
        bactrian(
            *playing,
            "--roles",
            "roles.jsonl",
            "--user",
            "Expert 1",
            "--set",
            "role_play.user_description=Me",
            cwd=tmp_path,
        ).stdout
    )[0]
    assert (started["assistant_role"], started["user_role"]) == ("Expert 2", "Expert 1")
    assert started["user_description"] == "Me"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]\n", "not contain roles"),
        ("", "two are needed"),
        ("x", "not contain roles"),
        (None, "cannot be read"),
    ],
)
def test_a_file_without_roles_gives_one_clear_error(tmp_path: Path, content: str | None, says: str) -> None:
    if content is not None:
        (tmp_path / "roles.jsonl").write_text(content)
    done = bactrian("play", "tea", "--roles", "roles.jsonl", cwd=tmp_path)
    assert (done.returncode, says in done.stderr, "Traceback" in done.stderr) == (2, True, False), done.stderr


def test_too_few_roles_end_the_command_with_the_ones_that_came(tmp_path: Path) -> None:
    (tmp_path / "roles.json").write_text(json.dumps({"role_assigner": [block(1), "", "", ""]}))
    done = bactrian("roles", "tea", "--count", "2", "--model", "scripted:roles.json", "--names", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "Expert 1\n")
    assert "1 of 2 roles" in done.stderr
