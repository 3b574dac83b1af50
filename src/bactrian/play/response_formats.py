"""The inception protocol as response formats, for models with constrained decoding.

With ``protocol = "enforced"`` a turn cannot break the protocol. The stored text is in the format of a free turn.
Endpoints receive the JSON schema, models in this process the grammar. The built-in model has grammars of its own,
which also bound the length of sentences.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources

from pydantic import BaseModel

from bactrian.language.protocol import (
    DONE,
    read_instruction,
    read_solution,
    write_instruction,
    write_solution,
)
from bactrian.models.model import ResponseFormat
from bactrian.prompts.engine import render_prompt
from bactrian.records.turn import Instruction


class _UserFields(BaseModel):
    done: bool
    instruction: str
    input: str | None


class _AssistantFields(BaseModel):
    solution: str


class _TaskFields(BaseModel):
    task: str


def build_user_format(
    *, small: bool = False, plain: bool = False, used: Sequence[str] = ()
) -> ResponseFormat:
    """Return the format of an instruction with its input, or the done token.

    ``small``: for the built-in model; ``plain``: with openings that fit any subject, but for those of the turns
    ``used``, as long as others are left.
    """
    grammar = _grammar(f"{_choose_style(small=small, plain=plain)}instruction")
    return ResponseFormat(
        name="instruction",
        schema=_object(
            done={"type": "boolean", "description": render_prompt("schema_done")},
            instruction={"type": "string", "description": render_prompt("schema_instruction")},
            input={"type": ["string", "null"], "description": render_prompt("schema_input")},
        ),
        grammar=_drop_openings(grammar, used) if used else grammar,
        read=_read_user,
    )


def build_assistant_format(*, small: bool = False, plain: bool = False) -> ResponseFormat:
    """Return the format of a solution that ends with "Next request."

    ``small``: for the built-in model; ``plain``: shorter, with openings that fit any subject.
    """
    return ResponseFormat(
        name="solution",
        schema=_object(solution={"type": "string", "description": render_prompt("schema_solution")}),
        grammar=_grammar(f"{_choose_style(small=small, plain=plain)}solution"),
        read=_read_assistant,
    )


def build_small_task_format() -> ResponseFormat:
    """Return the format of a specified task, for the built-in model: one sentence."""
    return ResponseFormat(
        name="task",
        schema=_object(task={"type": "string", "description": render_prompt("schema_task")}),
        grammar=_grammar("small-task"),
        read=lambda text: _TaskFields.model_validate_json(text).task,
    )


def _object(**properties: dict[str, object]) -> dict[str, object]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _choose_style(*, small: bool, plain: bool) -> str:
    return ("plain-" if plain else "small-") if small else ""


def _grammar(name: str) -> str:
    folder = resources.files("bactrian.play") / "grammars"
    return (folder / f"{name}.gbnf").read_text("utf-8")


def _drop_openings(grammar: str, used: Sequence[str]) -> str:
    """Return ``grammar`` without the openings of the instructions ``used``; as it is if none would be left."""
    rule = _OPENINGS.search(grammar)
    if rule is None:
        return grammar
    openings = rule[1].split(" | ")
    left = [one for one in openings if not any(f"Instruction: {one[1:-1]}" in text for text in used)]
    return grammar.replace(rule[1], " | ".join(left or openings))


def _read_user(text: str) -> str:
    fields = _UserFields.model_validate_json(text)
    said = fields.instruction.strip()
    if fields.done or said.startswith(DONE) or said.endswith(DONE):
        return DONE
    # A model that knows the protocol writes its markers into the fields, too.
    inside = read_instruction(said)
    if inside is None or inside.preface:
        inside = Instruction(said)
    given = _AT_INPUT.sub("", fields.input.strip()) if fields.input else ""
    return write_instruction(inside.instruction, inside.input if _NO_INPUT.fullmatch(given) else given)


def _read_assistant(text: str) -> str:
    said = _AssistantFields.model_validate_json(text).solution.strip()
    inside = read_solution(said)
    if inside is not None and not inside.preface:
        return write_solution(inside.solution)
    return write_solution(_NEXT_REQUEST.sub("", said))


_OPENINGS = re.compile(r"^opening ::= (.*)$", re.MULTILINE)
_AT_INPUT = re.compile(r"\AInput[:\uff1a]\s*")
_NO_INPUT = re.compile(r"(?:none|n/a)?\.?", re.IGNORECASE)
_NEXT_REQUEST = re.compile(r"\s*Next request\.?\s*\Z")


def describe_fields(speaker: str) -> str:
    """Tell an agent whose replies are held to fields what goes into each, to be put behind its system prompt."""
    return render_prompt("fields_user" if speaker == "user" else "fields_assistant")
