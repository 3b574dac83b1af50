"""Messages as a model receives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bactrian.records.text import Text


@dataclass(frozen=True, slots=True)
class Invocation:
    """A model's request to call a tool."""

    id: str
    """The model's id for this call, which the result repeats; empty if the model gives no id."""
    name: str
    arguments: str
    """The arguments as the model wrote them; a JSON object if valid."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message in a chat with a model. ``role`` is the role of the wire format, not the role an agent plays."""

    role: Literal["system", "user", "assistant", "tool"]
    text: Text
    calls: tuple[Invocation, ...] = ()
    """The tools that an ``assistant`` message calls."""
    answers: str = ""
    """Id of the call that a ``tool`` message answers."""
