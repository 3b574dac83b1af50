"""Every error of wrong usage says what to do next."""

from __future__ import annotations

import ast
import asyncio
from pathlib import Path

import pytest

import bactrian
from tests.helpers.command import bactrian as run_command
from tests.helpers.command import start_python
from tests.helpers.runs import make_run, session

KINDS = {"InputError", "RecipeError", "PromptError", "StoreError", "SandboxError"}
PACKAGES = ("cli/commands", "recipes", "ingest")


def test_an_error_that_is_raised_names_its_next_action() -> None:
    without: list[str] = []
    package = Path(bactrian.__file__).parent
    for path in (path for name in PACKAGES for path in (package / name).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                words = [keyword.arg for keyword in node.exc.keywords]
                if getattr(node.exc.func, "id", "") in KINDS and not {"next", None} & {*words}:
                    without.append(f"{path}:{node.lineno}")
    assert without == []


@pytest.mark.parametrize(
    ("words", "next_action"),
    [
        ("chat", "`bactrian --help` lists the commands, and `bactrian runs` the runs."),
        ("import run.db --run other.db", "`bactrian merge` adds a run to another."),
        ("import hf://nothing --run other.db", "Write it as hf://OWNER/NAME."),
        ("train run.db", "For example: bactrian train small --run run.db"),
        ("evaluate humaneval openai:m", "Name a model by --model openai:m."),
        ("explore run.db --edit --model scripted:no.json", "Check the path."),
        ("behaviours queue run.db q", "Name each with its meaning: CODE=MEANING."),
    ],
)
def test_what_was_meant_otherwise_is_led_to_it(tmp_path: Path, words: str, next_action: str) -> None:
    asyncio.run(make_run(tmp_path / "run.db", [session()]))
    done = run_command(*words.split(), cwd=tmp_path)
    assert (done.returncode, done.stderr.splitlines()[1]) == (2, next_action)


def test_roles_that_are_missing_are_said_to_be_made(tmp_path: Path) -> None:
    done = run_command("play", "tea", "--roles", "nope.json", cwd=tmp_path)
    assert done.stderr.splitlines()[1] == "Make the file: bactrian roles TASK --json > nope.json"


LIMITED = """
import resource, signal, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
sys.argv = ["bactrian", "play", "Tea", "--run", sys.argv[1], "--model", "local"]
from bactrian.cli.main import main
main()
"""


def test_a_limit_of_the_file_size_is_named(tmp_path: Path) -> None:
    process = start_python(LIMITED, tmp_path / "a.db")
    _, errors = process.finish()
    assert process.wait() == 1
    assert b"ulimit -f" in errors
