"""What a person sees of a society: the stages' names, and how proposals differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from bactrian.cli.view.conversation_view import mark_differences
from bactrian.recipes.society_file import load_society
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.society import name_models
from tests.helpers.command import bactrian

FILE = """
name = "two"
description = "Two stages."
task = "Choose a tea"
[[agents]]
name = "guest"
role = "Guest"
prompt = "You are a guest: {{{{ task }}}}"
[[agents]]
name = "host"
role = "{role}"
prompt = "You are a host: {{{{ task }}}}"
[[stages]]
name = "draft"
agents = ["guest", "host"]
max_messages = 2
[[stages]]
name = "final"
agents = ["guest", "host"]
max_messages = 2
"""


def test_the_name_of_each_stage_is_on_the_screen(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(FILE.format(role="Host"))
    (tmp_path / "script.json").write_text('{"guest": ["Green?", "Now?"], "host": ["Sencha.", "Yes."]}')
    done = bactrian(
        *("play", "--society", "two.toml", "--model", "scripted:script.json", "--no-keep"), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("Stage 1 of 2: draft") < done.stdout.index("Stage 2 of 2: final")


def test_the_role_human_is_a_person(tmp_path: Path) -> None:
    (tmp_path / "two.toml").write_text(FILE.format(role="human"))
    society, _ = load_society(str(tmp_path / "two.toml"))
    names = name_models(society, "local", task_model="local", critic_model="local")
    assert names == {"guest": "local", "host": HUMAN}


@pytest.mark.parametrize(
    ("text", "bright"),
    [
        ("Boil the fresh water for two minutes.", ["fresh", "two"]),
        ("Boil the water for three minutes.", []),
        ("Everything is different here, nothing stays.", []),
    ],
)
def test_proposals_are_shown_by_their_differences(text: str, bright: list[str]) -> None:
    shown = mark_differences(text, "Boil the water for three minutes.")
    assert shown.plain == text
    marked = " ".join(text[span.start : span.end] for span in shown.spans if span.style == "bold")
    assert marked.split() == bright
