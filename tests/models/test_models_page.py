"""What docs/models.md shows works: rows, tables of a recipe, and a package with a wire format of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

from bactrian.models.providers import load_providers
from bactrian.recipes.parameters import AGENT_NAMES, SamplingSpec
from tests.helpers.command import bactrian, events

PAGE = Path(__file__).parents[2] / "docs" / "models.md"


def block(language: str, after: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text("utf-8").split(after, 1)[1], re.DOTALL)
    assert found is not None
    return found[1]


def install_package(site: Path, folder: Path) -> None:
    """Install the page's package, as pip installs any wheel."""
    project = tomllib.loads(block("toml", "`pyproject.toml`:"))["project"]
    module = block("python", "`bactrian_acme.py`:")
    stem = f"{project['name'].replace('-', '_')}-{project['version']}"
    points = project["entry-points"]["bactrian.models"]
    wheel = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("bactrian_acme.py", module)
        info = f"{stem}.dist-info"
        archive.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 1.0\n"
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        lines = "\n".join(f"{name} = {value}" for name, value in points.items())
        archive.writestr(f"{info}/entry_points.txt", f"[bactrian.models]\n{lines}\n")
        archive.writestr(f"{info}/RECORD", "")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-index",
        "--target",
        str(site),
    ]
    subprocess.run([*command, str(wheel)], check=True)


def test_a_package_brings_a_wire_format_of_its_own(tmp_path: Path) -> None:
    site = tmp_path / "site"
    install_package(site, tmp_path)
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


def test_a_key_is_not_shown(tmp_path: Path) -> None:
    for options in ([], ["--json"]):
        done = bactrian("models", *options, cwd=tmp_path, GROQ_API_KEY="gsk-very-secret")
        assert done.returncode == 0
        assert "secret" not in done.stdout + done.stderr
    assert '"key_variable": "GROQ_API_KEY", "key_set": true' in done.stdout
