"""Errors of the Python API name arguments and not options of the command line."""

from __future__ import annotations

import pytest

import bactrian as bt
from bactrian.language.argument_names import rename_options


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("limit the tokens with --max-tokens.", "limit the tokens with max_tokens."),
        ("Try another model, or --no-specify.", "Try another model, or specify=False."),
        ("Set it with --price PROMPT/COMPLETION (0/0)", "Set it with price=PROMPT/COMPLETION (0/0)"),
        ("--retry-failed asks again", "retry_failed asks again"),
        ("Recover it: bactrian recover a.db --out new.db", "Recover it: bactrian recover a.db --out new.db"),
        (
            "`bactrian generate --help` lists --set",
            "`bactrian generate --help` lists a setting of bactrian.recipe",
        ),
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
