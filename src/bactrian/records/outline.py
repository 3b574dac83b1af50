"""Outlines: what a list of sessions shows, without the messages themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from bactrian.records.session import Kind


@dataclass(frozen=True, slots=True)
class Outline:
    """A session without its turns."""

    row: int
    """Its position in the run, from 1; later sessions have higher ones."""
    id: str
    assistant: str
    """Names of the roles."""
    user: str
    original_task: str
    specified_task: str | None
    language: str | None
    models: Mapping[str, str]
    """Model names by agent."""
    kind: Kind
    ending: str | None
    """Code; None while the session is unfinished."""
    turns: int
    """Number of stored turns."""
    created: float
    """Seconds since 1970 when the session began."""
    mark: str | None
    """``red-team`` for a session made to study misuse."""

    @property
    def final(self) -> bool:
        """False if turns may still be added."""
        return self.ending is not None and self.ending not in ("failed", "stopped")


class SpokenText(NamedTuple):
    """The text of a turn, with its cost."""

    session: str
    """The session's id."""
    number: int
    speaker: str
    text: str
    prompt: int
    """Tokens of the turn, as in :class:`~bactrian.records.usage.Usage`."""
    completion: int
    cached: int
