"""How long a reply may be in what is left of a context window."""

from __future__ import annotations

from bactrian.errors import ContextFull

LEAST_REPLY = 256
"""Tokens that must be left for a reply that may be longer: in less, nothing whole can be said."""


def find_reply_length(longest: int, prompt: int, window: int, where: str | None = None) -> int:
    """Return how many tokens a reply of up to ``longest`` may have after ``prompt`` tokens in ``window``.

    Raises:
        ContextFull: less is left than ``LEAST_REPLY``, or than ``longest`` where that is less.
    """
    room = window - prompt
    if room < min(longest, LEAST_REPLY):
        raise ContextFull(
            f"The request needs {prompt + min(longest, LEAST_REPLY):,} tokens with room for its reply; "
            f"the window has {window:,}.",
            where=where,
            next="Use a model with a larger window, or shorter replies.",
        )
    return min(longest, room)
