"""The head of a report: the command makes the run that it stands over, and the verdict names runs by what they show."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from bactrian.analyze.report import COOPERATION
from bactrian.analyze.report_page import write_verdict
from bactrian.api.run_report import list_settings
from bactrian.recipes.load import load_recipe
from tests.helpers.command import bactrian


@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["language=German"],
        ["task.count=3", "max_messages=12"],
        ["assistant_role.count=4", "language=German"],
    ],
)
def test_the_settings_of_a_recipe_are_found_again(settings: list[str]) -> None:
    made = load_recipe("ai-society", settings)
    found = list_settings(made.content())
    assert set(settings) <= set(found)
    assert load_recipe("ai-society", found).content() == made.content()


def test_the_command_of_a_report_makes_the_run_again(tmp_path: Path) -> None:
    said = {
        "lister": ["1. Bake bread\n2. Fly a kite"],
        "task_specifier": ["Bake."],
        "user": ["<CAMEL_TASK_DONE>"],
    }
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(json.dumps(said))
    small = [
        f"{axis}.count={count}" for axis, count in (("assistant_role", 1), ("user_role", 1), ("task", 2))
    ]
    settings = [part for setting in (*small, "endpoint.max_wait=30") for part in ("--set", setting)]
    models = (
        "--model",
        "scripted:a.json",
        "--user-model",
        "scripted:b.json",
        "--no-session-ids",
        "--limit",
        "1",
    )
    made = bactrian("generate", "ai-society", "--run", "r.db", *settings, *models, cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    report = json.loads(bactrian("analyze", "r.db", "--json", cwd=tmp_path).stdout)
    program, *again = shlex.split(report["provenance"]["command"])
    done = bactrian(*again, "--json", cwd=tmp_path)
    assert (program, done.returncode) == ("bactrian", 0), done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["calls"] == 0


def test_a_recipe_of_a_persons_own_has_no_settings() -> None:
    content = load_recipe("ai-society", ["language=German"]).content() | {"name": "mine"}
    assert list_settings(content) == []


@pytest.mark.parametrize(
    ("sure", "told"),
    [
        ((), "From one, no run differs by"),
        (("two",), "From one, only two differs by"),
        (("two", "three"), "From one, two and three differ by"),
    ],
)
def test_the_verdict_on_three_runs_names_those_that_differ(sure: tuple[str, ...], told: str) -> None:
    names = ("one", "two", "three")
    reports = [{"run": name, "behaviours": {}, COOPERATION: {"rate": 0.1}} for name in names]
    changes = [
        {"paired": None, COOPERATION: {"low": 0.1 if name in sure else -0.1, "high": 0.3}}
        for name in names[1:]
    ]
    assert told in write_verdict(reports, changes)
