"""Tools of agents, tool calls and their results."""

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
"""Why a call failed: unknown tool, invalid arguments, timeout, or an error in the tool."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as it is described to a model."""

    name: str
    description: str
    parameters: Mapping[str, object]
    """JSON schema of its arguments, an object."""


@dataclass(frozen=True, slots=True)
class Toolkit:
    """The tools of one agent, with limits."""

    tools: tuple[Tool, ...]
    rounds: int = 8
    """Maximum number of replies per turn that may call tools; the next reply must be the answer."""
    seconds: float = 30.0
    """Timeout of one call."""
    characters: int = 4000
    """Maximum length of a result; a longer one is cut with a note to the model."""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that an agent requested during its turn."""

    number: int
    """Of the turn, from 1."""
    round: int
    """From 1; the calls of one reply form a round."""
    place: int
    """Position among the calls of its round, from 1."""
    speaker: str
    """The agent that takes the turn."""
    wanted: Invocation
    text: Text
    """The agent's text beside its calls; only on the first call of a round."""
    usage: Usage
    """Usage of the reply; only on the first call of a round."""
    seconds: float
    """Duration of the reply, not of the tool; only on the first call of a round."""
    model: str
    """The model as the endpoint named it."""
    thought: str = ""
    """Thoughts of a reasoning model before its reply; only on the first call of a round."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call."""

    number: int
    """Of the turn, from 1."""
    round: int
    place: int
    speaker: str
    name: str
    """Name of the tool."""
    text: Text
    """The text for the model: the result or the error."""
    problem: Problem | None
    """None if the call succeeded."""
    seconds: float
    """Duration of the tool."""
    cut: bool = False
    """True if the result was too long and was cut."""


@dataclass(frozen=True, slots=True)
class Use:
    """A tool call and its result."""

    call: ToolCall
    result: ToolResult | None = None
    """None if the program was stopped while the tool ran."""


def group_rounds(uses: Iterable[Use]) -> list[list[Use]]:
    """Group the uses of one turn by reply, in order."""
    ordered = sorted(uses, key=lambda use: (use.call.round, use.call.place))
    return [list(group) for _, group in groupby(ordered, key=lambda use: use.call.round)]


def read_arguments(arguments: str) -> Any:
    """Parse the arguments of a call as JSON; text that is not JSON is returned unchanged."""
    try:
        return from_json(arguments)
    except ValueError:
        return arguments


def to_messages(uses: Iterable[Use]) -> list[Message]:
    """Convert the uses of one turn to messages: the agent's calls and their results."""
    messages: list[Message] = []
    for one in group_rounds(uses):
        calls = tuple(use.call.wanted for use in one)
        messages.append(Message("assistant", one[0].call.text, calls))
        messages += [
            Message("tool", use.result.text, answers=use.call.wanted.id) for use in one if use.result
        ]
    return messages
