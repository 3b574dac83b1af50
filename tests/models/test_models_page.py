"""What docs/models.md shows works: rows, tables of a recipe, and a package with a wire format of its own."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from bactrian.evaluate.comparison_jobs import JUDGE, TITLES
from bactrian.models.providers import load_providers
from bactrian.options import SamplingSpec
from bactrian.recipes.parameters import AGENT_NAMES
from bactrian.runs.jobs import AGENTS
from tests.helpers.command import bactrian, events
from tests.helpers.packages import install

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def block(language: str, after: str) -> str:
    match = re.search(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8").split(after, 1)[1], re.DOTALL)
    assert match is not None
    return match[1]


def test_a_package_brings_a_wire_format_of_its_own(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    project = tomllib.loads(block("toml", "`pyproject.toml`:"))["project"]
    ((name, target),) = project["entry-points"]["bactrian.models"].items()
    install(
        site, "bactrian_acme", block("python", "`bactrian_acme.py`:"), "bactrian.models", f"{name} = {target}"
    )
    here = {"cwd": tmp_path, "PYTHONPATH": str(site)}
    (tmp_path / "user.json").write_text(
        '{"user": ["Instruction: Go on.\\nInput: None", "<CAMEL_TASK_DONE>"]}'
    )
    done = bactrian(
        *(
            "play",
            "Count",
            "--no-specify",
            "--json",
            "--model",
            "acme:x",
            "--user-model",
            "scripted:user.json",
        ),
        **here,  # type: ignore[arg-type]
    )
    assert done.returncode == 0, done.stderr
    spoke = [event for event in events(done.stdout) if event["event"] == "spoke"]
    assert [(event["speaker"], event["model"]) for event in spoke] == [
        ("user", "scripted:user.json"),
        ("assistant", "acme:x"),
        ("user", "scripted:user.json"),
    ]
    listed = bactrian("models", "--json", **here)  # type: ignore[arg-type]
    assert '"acme"' in listed.stdout
    refused = bactrian("play", "--model", "acme:x", "--protocol", "enforced", **here)  # type: ignore[arg-type]
    assert refused.returncode == 2
    assert "cannot be enforced on 'acme:x'" in refused.stderr


def test_the_page_s_row_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "providers.toml").write_text(block("toml", "## Rows of your own"))
    done = bactrian("models", "--json", cwd=tmp_path, BACTRIAN_CONFIG=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert '"name": "ours"' in done.stdout


def test_the_page_s_tables_are_those_of_a_recipe(tmp_path: Path) -> None:
    recipe = f"""
name = "mine"
[[axes]]
name = "task"
count = 1
given = ["Bake bread"]
[role_play]
assistant = "Baker"
user = "Guest"
idea = "{{{{ task }}}}"
{block("toml", "## Parameters")}
"""
    (tmp_path / "mine.toml").write_text(recipe)
    done = bactrian("generate", "mine.toml", "--run", "run.db", "--forecast", cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_the_page_names_every_provider_parameter_and_agent() -> None:
    text = PAGE.read_text("utf-8")
    assert all(f"`{name}`" in text for name in (*SamplingSpec.model_fields, *AGENT_NAMES))
    assert all(row.title.split()[0] in text for row in load_providers().values())


def test_the_page_s_script_plays_and_its_table_names_every_agent(tmp_path: Path) -> None:
    (tmp_path / "tea.json").write_text(block("json", "## Scripted replies"))
    done = bactrian("play", "Tea", "--model", "scripted:tea.json", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    part = PAGE.read_text("utf-8").split("## Scripted replies")[1]
    named = {*AGENTS, *TITLES, "critic", "lister", "translator", "role_assigner", JUDGE}
    assert {name for name in named if f"`{name}`" not in part} == set()
    assert "`bactrian help models.md`" in bactrian("help", "scripted", cwd=tmp_path).stderr
    shown = bactrian("models", "scripted", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in shown if line] == ["scripted:FILE", "More:"]
    groq = bactrian("models", "groq", cwd=tmp_path).stdout
    assert ("GROQ_API_KEY" in groq, "MISTRAL_API_KEY" in groq) == (True, False)
    assert bactrian("models", "nothing", cwd=tmp_path).returncode == 2


def test_a_key_is_not_shown(tmp_path: Path) -> None:
    for options in ([], ["--json"]):
        done = bactrian("models", *options, cwd=tmp_path, GROQ_API_KEY="gsk-very-secret")
        assert done.returncode == 0
        assert "secret" not in done.stdout + done.stderr
    assert '"key_variable": "GROQ_API_KEY", "key_set": true' in done.stdout
