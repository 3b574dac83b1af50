"""Turns that the protocol holds: response formats for constrained decoding, and the turns of the built-in model.

With ``protocol = "enforced"`` a turn cannot break the protocol. The stored text is in the format of a free turn.
Endpoints receive the JSON schema, models in this process the grammar. The built-in model has grammars of its own, which
also bound the length of sentences.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from importlib import resources
from time import perf_counter

from pydantic import BaseModel

from bactrian.detect.loops import is_repetition
from bactrian.models.model import ResponseFormat
from bactrian.protocol import markers
from bactrian.protocol.pack import render_prompt
from bactrian.records.events import Spoke
from bactrian.records.text import Text
from bactrian.records.turn import Instruction, Message, Turn, Usage
from bactrian.roleplay.agent import View, ask_agent, make_turn
from bactrian.roleplay.turns import SessionState

_OPENINGS = re.compile(r"^opening ::= (.*)$", re.MULTILINE)
_AT_INPUT = re.compile(r"\AInput[:\uff1a]\s*")
_NO_INPUT = re.compile(r"(?:none|n/a)?\.?", re.IGNORECASE)
_NEXT_REQUEST = re.compile(r"\s*Next request\.?\s*\Z")


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
    grammar = _read_grammar("instruction", small=small, plain=plain)
    if used and (rule := _OPENINGS.search(grammar)) is not None:
        openings = rule[1].split(" | ")
        left = [text for text in openings if not any(f"Instruction: {text[1:-1]}" in turn for turn in used)]
        grammar = grammar.replace(rule[1], " | ".join(left or openings))
    return ResponseFormat(
        name="instruction",
        schema=make_object_schema(
            done={"type": "boolean", "description": render_prompt("schema_done")},
            instruction={"type": "string", "description": render_prompt("schema_instruction")},
            input={"type": ["string", "null"], "description": render_prompt("schema_input")},
        ),
        grammar=grammar,
        read=_read_user,
    )


def build_assistant_format(*, small: bool = False, plain: bool = False) -> ResponseFormat:
    """Return the format of a solution that ends with "Next request."

    ``small``: for the built-in model; ``plain``: shorter, with openings that fit any subject.
    """
    return ResponseFormat(
        name="solution",
        schema=make_object_schema(
            solution={"type": "string", "description": render_prompt("schema_solution")}
        ),
        grammar=_read_grammar("solution", small=small, plain=plain),
        read=_read_assistant,
    )


def build_small_task_format() -> ResponseFormat:
    """Return the format of a specified task, for the built-in model: one sentence."""
    return ResponseFormat(
        name="task",
        schema=make_object_schema(task={"type": "string", "description": render_prompt("schema_task")}),
        grammar=_read_grammar("task", small=True),
        read=lambda text: _TaskFields.model_validate_json(text).task,
    )


def make_object_schema(**properties: object) -> dict[str, object]:
    """Return the JSON schema of an object that has all of ``properties`` and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _read_grammar(name: str, *, small: bool, plain: bool = False) -> str:
    style = ("plain-" if plain else "small-") if small else ""
    return (resources.files("bactrian.roleplay") / "grammars" / f"{style}{name}.gbnf").read_text("utf-8")


def _read_user(text: str) -> str:
    fields = _UserFields.model_validate_json(text)
    written = fields.instruction.strip()
    if fields.done or written.startswith(markers.DONE) or written.endswith(markers.DONE):
        return markers.DONE
    # A model that knows the protocol writes its markers into the fields, too.
    inside = markers.read_instruction(written)
    if inside is None or inside.preface:
        inside = Instruction(written)
    more = _AT_INPUT.sub("", fields.input.strip()) if fields.input else ""
    return markers.write_instruction(inside.instruction, inside.input if _NO_INPUT.fullmatch(more) else more)


def _read_assistant(text: str) -> str:
    written = _AssistantFields.model_validate_json(text).solution.strip()
    inside = markers.read_solution(written)
    if inside is not None and not inside.preface:
        return markers.write_solution(inside.solution)
    return markers.write_solution(_NEXT_REQUEST.sub("", written))


# Turns of a model that repeats whatever it sees: the built-in one, on ideas other than the paper's example.
#
# Such a model continues its own earlier turns as a list. So it sees nothing but what was said to it last, it
# opens each instruction in another way, and a useless reply is requested again. Measured in
# docs/performance.md.


_ATTEMPTS = 3  # Requests for a turn; the last reply is spoken whatever it says.


class Fresh:
    """The agent speaks its model's first reply that says something new."""

    async def take_turn(self, state: SessionState) -> AsyncGenerator[Spoke]:
        """Yield the turn."""
        scene, agent, begun = state.scene, state.view.agent, perf_counter()
        view, used = _shorten(state.view, state.turns), Usage()
        turn: Turn | None = None
        for attempt in range(_ATTEMPTS):
            if turn is not None and scene.listener is not None:
                scene.listener.restart(agent.speaker, "says nothing new")
            reply, usage = await ask_agent(
                view,
                state.number,
                session=scene.session.id,
                call_index=state.call_index,
                attempt=attempt,
                listener=scene.listener,
            )
            used += usage
            turn = make_turn(agent, state.number, reply, usage=used, seconds=perf_counter() - begun)
            # Useless is a repetition, and an assistant that gives instructions, which would end the session.
            instructs = turn.speaker == "assistant" and markers.find_instruction(turn.text)
            if not instructs and not is_repetition([*state.turns, turn]):
                break
        assert turn is not None
        yield Spoke(turn)


def _shorten(view: View, turns: list[Turn]) -> View:
    """Return the view with the last message only; the AI user also keeps the question that opened the conversation."""
    agent, (system, *messages) = view.agent, view.messages
    last = messages[-1].text
    if agent.opening is not None and len(messages) > 1:
        last = Text(f"{last}\n{agent.opening}")
    if agent.speaker == "user" and agent.form is not None:
        earlier = [turn.text for turn in turns if turn.speaker == "user"]
        agent = replace(agent, form=build_user_format(small=True, plain=True, used=earlier))
    short = View(agent)
    short.messages = [system, Message("user", last)]
    return short
