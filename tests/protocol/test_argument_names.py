"""Errors of the Python API name arguments and not options of the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import bactrian as bt
from bactrian.protocol.argument_names import rename_options


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("limit the tokens with --max-tokens.", "limit the tokens with max_tokens."),
        ("Try another model, or --no-specify.", "Try another model, or specify=False."),
        ("Set it with --price PROMPT/COMPLETION (0/0)", "Set it with price=PROMPT/COMPLETION (0/0)"),
        ("--retry-failed asks again", "retry_failed=True asks again"),
        ("Recover it: bactrian recover a.db --out new.db", "Recover it: bactrian recover a.db --out new.db"),
        (
            "`bactrian generate --help` lists --set",
            "`bactrian generate --help` lists a setting of bactrian.recipe",
        ),
        (
            "Give your own: --set role_play.preamble=TEXT",
            'Give your own: bactrian.recipe(NAME, role_play={"preamble": TEXT})',
        ),
        ("Name it: --set source=RUN.", "Name it: bactrian.recipe(NAME, source=RUN)."),
        (
            "Say so with --acknowledge-misuse; all is marked.",
            "Say so with acknowledge_misuse=True; all is marked.",
        ),
        ("or --fork NEW to begin another run", "or run=NEW and origin=RUN to begin another run"),
        ("raise --reply-length.", "raise max_tokens of `parameters`."),
        ("lower --reasoning-effort.", "lower reasoning_effort of `parameters`."),
        ("a well-known -- dash", "a well-known -- dash"),
    ],
)
def test_options_become_arguments_and_commands_stay(said: str, meant: str) -> None:
    assert rename_options(said) == meant


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
