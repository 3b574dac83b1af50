"""One message as a model sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bactrian.records.text import Text


@dataclass(frozen=True, slots=True)
class Invocation:
    """A tool that a model wants to be called."""

    id: str
    """The model's name for this call, which its result repeats; empty if the model gives none."""
    name: str
    arguments: str
    """As the model wrote them: a JSON object, if it did it right."""


@dataclass(frozen=True, slots=True)
class Message:
    """A message in a chat with a model. ``role`` is the wire format's word, not the part an agent plays."""

    role: Literal["system", "user", "assistant", "tool"]
    text: Text
    calls: tuple[Invocation, ...] = ()
    """The tools that an ``assistant`` message calls."""
    answers: str = ""
    """Id of the call whose result a ``tool`` message is."""
