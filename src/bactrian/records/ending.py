"""Why a session stopped."""

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
"""The endings that this program gives."""


@dataclass(frozen=True, slots=True)
class Ending:
    """A reason to stop, with its evidence."""

    code: EndingCode
    turn: int
    """Number of the turn that shows it; 0 if nothing was said yet. Where a turn could not be had
    (``token_limit``, ``refused`` by the endpoint, ``failed``, ``stopped``) the last one before it."""
    speaker: Speaker
    """Who said it, or whose turn could not be had."""
    evidence: str
    """The text that shows it, or the error."""

    @property
    def final(self) -> bool:
        """False if a later run may take the session up again: the model failed or a person stopped it, the
        conversation itself did not end."""
        return self.code not in ("failed", "stopped")
