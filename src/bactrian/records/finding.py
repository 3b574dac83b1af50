"""Observed behaviours, and a judge's answers about them."""

from __future__ import annotations

from dataclasses import dataclass

from bactrian.records.usage import Usage

Behaviour = str
"""Name of a behaviour: one of :data:`BEHAVIOURS`, or one of the user's own."""
BEHAVIOURS: tuple[Behaviour, ...] = (
    "role_flip",
    "repeats_instruction",
    "flake_reply",
    "infinite_loop",
    "missing_marker",
    "empty_turn",
    "truncated_turn",
    "wrong_language",
    "refusal",
    "near_duplicate",
    "early_done",
    "self_answer",
    "no_code",
)
"""The built-in behaviours."""

LONGEST_QUOTE = 200
"""Maximum number of characters of a turn that a finding quotes."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A behaviour that one turn of a session shows."""

    session: str
    turn: int
    """1-based number of the turn."""
    behaviour: Behaviour
    confidence: float
    """Confidence of the detector, from 0 to 1. From 0.5 on, the turn more likely shows the behaviour than not."""
    quote: str
    """The words that show it; empty if no words do, as in an empty turn."""
    reason: str = ""
    """Why the detector found it, in words; empty if its definition says all."""


@dataclass(frozen=True, slots=True)
class Confirmation:
    """A judge's answer to whether a turn shows a behaviour."""

    session: str
    turn: int
    behaviour: Behaviour
    judge: str
    """The judge's model, as the user named it."""
    holds: bool | None
    """None if the answer cannot be parsed."""
    text: str
    """The unparsed answer."""
    usage: Usage
    seconds: float
    model: str
    """The model as the endpoint named it."""
