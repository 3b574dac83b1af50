"""Endings: the reasons why sessions stop."""

from __future__ import annotations

from dataclasses import dataclass

from bactrian.records.turn import Speaker

EndingCode = str
"""Name of an ending: one of :data:`ENDING_CODES`, or one of the user's own."""
ENDING_CODES: tuple[EndingCode, ...] = (
    "task_done",
    "user_no_instruct",
    "assistant_instruct",
    "token_limit",
    "max_messages",
    "repeat_loop",
    "refused",
    "failed",
    "stopped",
    "answered",
    "translated",
    "imported",
)
"""The built-in endings."""


@dataclass(frozen=True, slots=True)
class Ending:
    """The reason why a session stopped, with its evidence."""

    code: EndingCode
    turn: int
    """Number of the turn that shows it; 0 before the first turn. If a turn could not be obtained (``token_limit``,
    ``refused`` by the endpoint, ``failed``, ``stopped``), the number of the last turn before it."""
    speaker: Speaker
    """The agent of that turn, or of the turn that could not be obtained."""
    evidence: str
    """The text that shows the reason, or the error."""

    @property
    def final(self) -> bool:
        """False if a later run may resume the session: the model failed or a person stopped the session."""
        return self.code not in ("failed", "stopped")
