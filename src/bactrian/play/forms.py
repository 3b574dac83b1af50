"""The inception protocol as a shape for models that can be constrained while they decode.

With ``protocol = "enforced"`` a turn cannot leave the protocol. What is stored is the same text as a free turn's.
"""

from __future__ import annotations

from pydantic import BaseModel

from bactrian.models.model import Form
from bactrian.play.protocol import DONE, write_instruction, write_solution


class _UserFields(BaseModel):
    done: bool
    instruction: str
    input: str | None


class _AssistantFields(BaseModel):
    solution: str


def user_form() -> Form:
    """An instruction with its input, or the done token."""
    return Form(
        name="instruction",
        schema={
            "type": "object",
            "properties": {
                "done": {"type": "boolean", "description": "true only when the whole task is solved"},
                "instruction": {"type": "string", "description": "the next instruction; empty when done"},
                "input": {"type": ["string", "null"], "description": "what the instruction needs, or null"},
            },
            "required": ["done", "instruction", "input"],
            "additionalProperties": False,
        },
        grammar=_USER_GRAMMAR,
        read=_read_user,
    )


def assistant_form() -> Form:
    """A solution that ends by asking for the next instruction."""
    return Form(
        name="solution",
        schema={
            "type": "object",
            "properties": {"solution": {"type": "string", "description": "the solution, in full"}},
            "required": ["solution"],
            "additionalProperties": False,
        },
        grammar=_ASSISTANT_GRAMMAR,
        read=_read_assistant,
    )


def _read_user(text: str) -> str:
    fields = _UserFields.model_validate_json(text)
    return DONE if fields.done else write_instruction(fields.instruction, fields.input)


def _read_assistant(text: str) -> str:
    return write_solution(_AssistantFields.model_validate_json(text).solution)
