"""Maximum reply lengths in the remaining context window."""

from __future__ import annotations

from bactrian.errors import ContextFull

LEAST_REPLY = 256
"""Minimum tokens that must be left for a reply, because shorter replies are rarely complete."""


def find_reply_length(longest: int, prompt: int, window: int, where: str | None = None) -> int:
    """Return the maximum tokens of a reply, at most ``longest``, after ``prompt`` tokens in ``window``.

    Raises:
        ContextFull: fewer tokens are left than ``LEAST_REPLY`` and than ``longest``.
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
