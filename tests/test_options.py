"""An option stands in one place: a line in a copy of the source adds one, and every surface has it."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
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


@pytest.mark.slow
def test_the_help_of_each_command_with_sampling_shows_it(copy: Path) -> None:
    shown = {"play": "parameters.presence_penalty", "roles": "--presence-penalty"}
    for command, name in shown.items():
        assert name in run_copy(copy, command, "--help")


@pytest.mark.slow
async def test_an_endpoint_receives_it_from_a_flag_a_variable_and_a_stored_command(copy: Path) -> None:
    flag = ("--set", "parameters.assistant.presence_penalty=0.5")
    variables = {"BACTRIAN_ASSISTANT_PRESENCE_PENALTY": "0.5"}
    async with Endpoint(
        ["Instruction: Name a tea.\nInput: None", "Solution: Sencha.\nNext request."]
    ) as endpoint:
        limits = ("--no-specify", "--max-messages", "2", "--run", "kept.db")
        words = ("play", "tea", "--model", "openai:any", "--base-url", endpoint.url, *limits)
        await asyncio.to_thread(run_copy, copy, *words, *flag)
        resume = ("resume", "kept.db", "--max-messages", "4")
        with closing(sqlite3.connect(copy / "kept.db")) as run:
            ((session,),) = run.execute("SELECT id FROM sessions").fetchall()
        await asyncio.to_thread(run_copy, copy, *resume[:2], session, *resume[2:])
        words = (*words[:-2], "--no-keep")
        await asyncio.to_thread(run_copy, copy, *words, **variables)
        penalties = [json.loads(request.body).get("presence_penalty") for request in endpoint.requests]
    assert penalties == [None, 0.5] * 3


PYTHON = """
import json
import bactrian as bt
from tools.reference.commands import write_commands
from tools.reference.schema import write_schema

def play(penalty):
    script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha."]
    parameters = {"assistant": {"presence_penalty": penalty}}
    session = bt.play("tea", model=bt.Scripted(script), specify=False, max_messages=2, parameters=parameters)
    return dict(session.provenance.sampling["assistant"].extra)

try:
    refused = play("much")
except bt.BactrianError as error:
    refused = error.what
recipe = bt.recipe("ai-society", parameters={"critic": {"presence_penalty": 0.5}})
print(json.dumps({
    "python": play(0.5),
    "refused": refused,
    "recipe": recipe.parameters.critic.presence_penalty,
    "schema": "presence_penalty" in write_schema(),
    "commands": write_commands().count("--presence-penalty"),
}))
"""


@pytest.mark.slow
def test_python_recipes_and_the_reference_have_it(copy: Path) -> None:
    root = str(Path(__file__).parents[1])
    environment = clean_environment(PYTHONPATH=f"{copy}:{root}")
    done = subprocess.run(
        [sys.executable, "-c", PYTHON], env=environment, cwd=copy, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown.pop("commands") >= 2
    assert shown == {
        "python": {"presence_penalty": 0.5},
        "refused": "'much' is not a value for presence_penalty.",
        "recipe": 0.5,
        "schema": True,
    }


def test_the_name_of_an_option_is_declared_in_one_file() -> None:
    files: dict[str, set[str]] = {}
    for path in Path(bactrian.__file__).parent.rglob("*.py"):
        for name in re.findall(r"\bOption\(\s*\"(--[a-z-]+)", path.read_text("utf-8")):
            files.setdefault(name, set()).add(path.name)
    assert len(files) > 100
    assert {name: where for name, where in files.items() if len(where) > 1} == {}
