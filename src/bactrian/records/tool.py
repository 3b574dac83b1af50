"""Tools: what an agent may use, what it called, and what came back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from pydantic_core import from_json

from bactrian.records.message import Invocation, Message
from bactrian.records.text import Text
from bactrian.records.usage import Usage

Problem = Literal["unknown", "arguments", "timeout", "failed"]
"""Why a call gave nothing: there is no such tool, its arguments do not fit, it took too long, or it failed."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool, as a model is told of it."""

    name: str
    description: str
    parameters: Mapping[str, object]
    """JSON schema of the object that holds its arguments."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """What one agent may use, and how much of it."""

    tools: tuple[Tool, ...]
    rounds: int = 8
    """Most replies of a turn that may call tools; the next one has to do without."""
    seconds: float = 30.0
    """Longest time for one call."""
    characters: int = 4000
    """Longest result; a longer one is cut, and the model is told so."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call, as an agent asked for it in the course of its turn."""

    number: int
    """Of the turn, from 1."""
    round: int
    """From 1; the calls of one reply are a round."""
    place: int
    """Among the calls of its round, from 1."""
    speaker: str
    """Whose turn it is."""
    wanted: Invocation
    text: Text
    """What the agent wrote beside its calls; the first call of a round has it."""
    usage: Usage
    """Of the reply; the first call of a round has it all."""
    seconds: float
    """Of the reply, not of the tool; the first call of a round has them all."""
    model: str
    """The model as the endpoint named it."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call came to."""

    number: int
    """Of the turn, from 1."""
    round: int
    place: int
    speaker: str
    name: str
    """Of the tool."""
    text: Text
    """What the model is told: the result, or what went wrong."""
    problem: Problem | None
    """None if the tool gave a result."""
    seconds: float
    """That the tool took."""
    cut: bool = False
    """True if the result was longer than the model is told."""


@dataclass(frozen=True, slots=True)
class Use:
    """A call and its result."""

    call: ToolCall
    result: ToolResult | None = None
    """None as long as there is none: the program was stopped while the tool ran."""


def group_rounds(uses: Iterable[Use]) -> list[list[Use]]:
    """The uses of one turn, those of each reply together, in their order."""
    ordered = sorted(uses, key=lambda use: (use.call.round, use.call.place))
    return [list(group) for _, group in groupby(ordered, key=lambda use: use.call.round)]


def read_arguments(arguments: str) -> Any:
    """The arguments of a call as a JSON value; as they were written, if that is none."""
    try:
        return from_json(arguments)
    except ValueError:
        return arguments


def to_messages(uses: Iterable[Use]) -> list[Message]:
    """The uses of one turn as the agent sees them: its calls, and what came back."""
    messages: list[Message] = []
    for one in group_rounds(uses):
        calls = tuple(use.call.wanted for use in one)
        messages.append(Message("assistant", one[0].call.text, calls))
        messages += [
            Message("tool", use.result.text, answers=use.call.wanted.id) for use in one if use.result
        ]
    return messages
