"""What was chosen over what."""

from __future__ import annotations

from dataclasses import dataclass

from bactrian.records.turn import Speaker


@dataclass(frozen=True, slots=True)
class Preference:
    """Several candidates for one turn, and the one that a critic, a person or a judge preferred."""

    number: int
    """Of the turn, from 1."""
    speaker: Speaker
    """Whose turn it is."""
    texts: tuple[str, ...]
    index: int
    """0-based position of the chosen one in ``texts``."""
    chooser: str
    """Who chose: the role of a critic, ``human`` or ``judge``, or a model's name."""
    reason: str = ""
