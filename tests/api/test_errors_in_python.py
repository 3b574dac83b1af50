"""Errors of the Python API name arguments and not options of the command line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.cli.help_form import spell_error
from bactrian.errors import InputError


@pytest.mark.parametrize(
    ("command", "error", "shown"),
    [
        ("generate", InputError("Bad.", option="max_tokens"), "--max-tokens: Bad."),
        ("generate", InputError("Bad.", option="timeout"), "--set endpoint.timeout: Bad."),
        ("play", InputError("Bad.", option="critic.rounds"), "--set critic.rounds: Bad."),
        (
            "play",
            InputError("Bad.", option="specify", next="Try specify=False."),
            "--specify: Bad.\nTry --no-specify.",
        ),
        (
            "generate",
            InputError("Bad.", next="retry_failed=True asks again."),
            "Bad.\n--retry-failed asks again.",
        ),
        ("resume", InputError("Bad.", next="Allow it: run_code=True."), "Bad.\nAllow it: --yes."),
        ("play", InputError("Bad.", next="Set price=P/C, too."), "Bad.\nSet --set endpoint.price=P/C, too."),
        (
            "generate",
            InputError("Bad.", next="Give role_play.preamble=TEXT."),
            "Bad.\nGive --set role_play.preamble=TEXT.",
        ),
        (
            "generate",
            InputError("Bad.", next="Begin another with origin=RUN."),
            "Bad.\nBegin another with --fork NEW.",
        ),
        (
            "export",
            InputError("'a=1' is bad.", next="`bactrian x a=1` and out=PATH."),
            "'a=1' is bad.\n`bactrian x a=1` and --out PATH.",
        ),
        ("evaluate humaneval", InputError("Bad.", option="plus"), "--plus: Bad."),
        ("help", InputError("Bad.", option="plus"), "plus: Bad."),
    ],
)
def test_the_command_line_spells_arguments_as_its_flags(command: str, error: InputError, shown: str) -> None:
    assert spell_error(error, ["--debug", *command.split(), "x"]) == shown
    assert "--" not in str(error)


def test_no_error_below_the_command_line_names_a_flag() -> None:
    package = Path(bt.__file__).parent
    flag = re.compile(r"(?:where|next|option|what)=f?[\"'](?!.*bactrian )[^\"']*(?<![\w-])--[a-z]")
    named = [
        f"{path}: {line.strip()}"
        for path in package.rglob("*.py")
        if not {"cli", "sandbox"} & {*path.relative_to(package).parts}
        for line in path.read_text("utf-8").splitlines()
        if flag.search(line) and "pip install" not in line
    ]
    # The explorer is a command, and has its own flags.
    assert [line for line in named if "/explore/" not in line] == []


OWN_MODEL = """import bactrian as bt

def look_up(messages):
    return {}["missing"]

def mine(messages):
    return look_up(messages)

bt.play("Tea", model=mine, specify=False)
"""


@pytest.mark.slow
def test_a_failing_model_of_the_user_shows_the_frames_of_the_user_only(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN_MODEL)
    words = [sys.executable, "own.py"]
    shown = subprocess.run(
        words, cwd=tmp_path, capture_output=True, text=True, check=False
    ).stderr.splitlines()
    assert len(shown) <= 12
    assert [line.split(", ")[1:] for line in shown if line.startswith("  File")] == [
        ["line 9", "in <module>"],
        ["line 7", "in mine"],
        ["line 4", "in look_up"],
    ]
    assert "The model failed at " in "".join(shown)
    environment = {**os.environ, "BACTRIAN_DEBUG": "1"}
    whole = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert len(whole.stderr.splitlines()) > 20


def test_an_ending_of_the_user_that_fails_shows_where() -> None:
    def fail(turns: object) -> None:
        raise KeyError("mine")

    with pytest.raises(Exception) as failed:
        bt.play(
            "Tea",
            model=bt.Scripted(["Instruction: Go.\nInput: None"]),
            specify=False,
            endings=[bt.ending("x")(fail)],
        )
    frames = [Path(str(entry.path)).name for entry in failed.traceback]
    assert not {"loop.py", "turns.py", "bridge.py"} & {*frames}


def test_no_error_of_a_call_from_python_names_an_option() -> None:
    with pytest.raises(bt.BactrianError) as failed:
        bt.play("Tea", model="openai:unheard-of", budget=1.0)
    assert "--" not in str(failed.value)
    assert failed.value.where == "budget"


def test_a_session_is_one_line_where_python_echoes_it() -> None:
    script = ["Instruction: Name one.\nInput: None", "Solution: Sencha.\nNext request.", "<CAMEL_TASK_DONE>"]
    session = bt.play("Choose a tea", assistant="Tea merchant", model=bt.Scripted(script), specify=False)
    assert repr(session).endswith(": Tea merchant × Beginner, 'Choose a tea', 3 turns, task_done>")


def test_an_address_that_no_model_takes_is_refused_in_the_words_of_python(tmp_path: Path) -> None:
    for call in (
        lambda: bt.play("Tea", model="groq:a", base_url="http://127.0.0.1:9/v1"),
        lambda: bt.generate(
            "ai-society", run=tmp_path / "a.db", model="groq:a", base_url="http://127.0.0.1:9/v1"
        ),
        lambda: bt.evaluate_humaneval("groq:a", run=tmp_path / "a.db", base_url="http://127.0.0.1:9/v1"),
    ):
        with pytest.raises(bt.BactrianError) as failed:
            call()
        assert failed.value.where == "base_url"
        assert "groq:a@http://127.0.0.1:9/v1" in str(failed.value)


def test_an_acknowledgement_is_asked_for_by_the_name_of_its_argument(tmp_path: Path) -> None:
    preamble = bt.recipe("misalignment", role_play={"preamble": "Speak."})
    with pytest.raises(bt.BactrianError, match="acknowledge_misuse=True") as failed:
        bt.generate(preamble, run=tmp_path / "a.db", model="openai:a")
    assert "--" not in str(failed.value)
