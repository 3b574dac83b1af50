"""Turns that an endpoint is held to: the agents know of the fields, and the protocol's words are not doubled."""

from __future__ import annotations

import json

import pytest

from bactrian.protocol.markers import DONE
from bactrian.roleplay.response_formats import build_assistant_format, build_user_format
from tests.helpers.scenes import scene, script


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"instruction": "Go on.", "input": None}, "Instruction: Go on.\nInput: None"),
        ({"instruction": "Instruction: Go on.", "input": "Input: x"}, "Instruction: Go on.\nInput: x"),
        ({"instruction": "Instruction: Go on.\nInput: x", "input": None}, "Instruction: Go on.\nInput: x"),
        (
            {"instruction": "Instruction: Go on.\nInput: None", "input": "None"},
            "Instruction: Go on.\nInput: None",
        ),
        ({"instruction": DONE, "input": None}, DONE),
        ({"instruction": f"All is solved. {DONE}", "input": "None"}, DONE),
        ({"instruction": "", "input": None, "done": True}, DONE),
    ],
)
def test_an_instruction_in_fields_has_each_marker_once(fields: dict[str, object], text: str) -> None:
    assert build_user_format().read(json.dumps({"done": False} | fields)) == text


@pytest.mark.parametrize(
    "said", ["It is 4.", "Solution: It is 4.", "Solution: It is 4.\nNext request.", "It is 4. Next request."]
)
def test_a_solution_in_a_field_has_each_marker_once(said: str) -> None:
    assert (
        build_assistant_format().read(json.dumps({"solution": said})) == "Solution: It is 4.\nNext request."
    )


def test_agents_are_told_of_the_fields_that_they_are_held_to() -> None:
    free, held = scene(script("x")), scene(script("x"), protocol="enforced")
    for speaker, field in (("user", '"instruction"'), ("assistant", '"solution"')):
        assert field not in free.agents[speaker].system
        assert field in held.agents[speaker].system
        assert held.agents[speaker].system.startswith(free.agents[speaker].system)
