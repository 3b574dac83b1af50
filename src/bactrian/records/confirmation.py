"""What a judge says of a finding."""

from __future__ import annotations

from dataclasses import dataclass

from bactrian.records.finding import Behaviour
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A judge's answer to whether a turn shows a behaviour."""

    session: str
    turn: int
    behaviour: Behaviour
    judge: str
    """The judge's model, as the user named it."""
    holds: bool | None
    """None if the answer cannot be read."""
    text: str
    """The answer as it came."""
    usage: Usage
    seconds: float
    model: str
    """The model as the endpoint named it."""
