"""What the README says is true."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import bactrian
from bactrian.cli import main
from tests.helpers.command import bactrian as run_command

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_the_python_example_runs_on_the_built_in_model() -> None:
    (example,) = blocks("python")
    done = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Python Programmer × Stock Trader\nidea: Develop a trading bot\n")


def test_every_option_in_the_readme_exists() -> None:
    commands = [
        line for block in blocks("sh") for line in block.splitlines() if line.startswith("bactrian play")
    ]
    help_text = run_command("play", "--help", cwd=ROOT).stdout
    used = {option for command in commands for option in re.findall(r"--[a-z-]+", command)}
    assert used
    assert all(option in help_text for option in used)


@pytest.mark.parametrize(
    "document", ["README.md", *(f"docs/{file.name}" for file in (ROOT / "docs").glob("*.md"))]
)
def test_links_lead_somewhere(document: str) -> None:
    path = ROOT / document
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", path.read_text("utf-8")):
        assert (path.parent / target).exists(), f"{document} links to {target}"


def test_the_changelog_and_the_package_agree_on_verbs() -> None:
    verbs = main.COMMANDS
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert all(f"bactrian {verb}" in changelog for verb in verbs)
    assert bactrian.__version__
