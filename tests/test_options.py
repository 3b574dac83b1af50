"""An option stands in one place: a line in a copy of the source adds one, and every surface has it."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bactrian
from tests.helpers.command import clean_environment
from tests.helpers.endpoint import Endpoint

LINE = """    presence_penalty: Annotated[float | None, Option("--presence-penalty", "Penalty of repeats.")] = None
"""
BEFORE = "    body: Annotated[\n"
"""What stands after the new line, in the class of sampling parameters."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with a sampling parameter that it lacks."""
    folder = tmp_path_factory.mktemp("copy")
    source = Path(bactrian.__file__).parent
    shutil.copytree(source, folder / "bactrian", ignore=shutil.ignore_patterns("__pycache__"))
    options = folder / "bactrian" / "options.py"
    text = options.read_text("utf-8")
    assert text.count(BEFORE) == 1
    options.write_text(text.replace(BEFORE, LINE + BEFORE), "utf-8")
    return folder


def run_copy(copy: Path, *words: str, **variables: str) -> str:
    environment = clean_environment(PYTHONPATH=str(copy), OPENAI_API_KEY="sk-test", **variables)
    done = subprocess.run(
        [sys.executable, "-m", "bactrian", *words],
        env=environment,
        cwd=copy,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.system
def test_the_help_of_each_command_with_sampling_shows_it(copy: Path) -> None:
    for command in ("play", "generate", "roles"):
        assert "--presence-penalty" in run_copy(copy, command, "--help")


@pytest.mark.system
async def test_an_endpoint_receives_it_for_the_agents_that_have_it(copy: Path) -> None:
    async with Endpoint(
        ["Instruction: Name a tea.\nInput: None", "Solution: Sencha.\nNext request."]
    ) as endpoint:
        flags = ("--no-specify", "--max-messages", "2", "--no-keep", "--assistant-presence-penalty", "0.5")
        words = ("play", "tea", "--model", "openai:any", "--base-url", endpoint.url, *flags)
        await asyncio.to_thread(run_copy, copy, *words)
        penalties = [json.loads(request.body).get("presence_penalty") for request in endpoint.requests]
    assert penalties == [None, 0.5]


def test_the_name_of_an_option_is_declared_in_one_file() -> None:
    files: dict[str, set[str]] = {}
    for path in Path(bactrian.__file__).parent.rglob("*.py"):
        for name in re.findall(r"\bOption\(\s*\"(--[a-z-]+)", path.read_text("utf-8")):
            files.setdefault(name, set()).add(path.name)
    assert len(files) > 100
    assert {name: where for name, where in files.items() if len(where) > 1} == {}
