"""Token usage."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, or the sum of several.

    Example:
        >>> usage = session.turns[0].usage + session.turns[1].usage
        >>> usage.prompt > usage.completion, usage.estimated
        (True, True)
    """

    prompt: int = 0
    completion: int = 0
    cached: int = 0
    """Prompt tokens from the server's prefix cache; included in ``prompt``."""
    estimated: bool = False
    """True if the endpoint reported no usable numbers and these were estimated from the text."""

    @property
    def total(self) -> int:
        """Prompt and completion tokens together.

        Example:
            >>> usage.total == usage.prompt + usage.completion
            True
        """
        return self.prompt + self.completion

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.prompt + other.prompt,
            self.completion + other.completion,
            self.cached + other.cached,
            self.estimated or other.estimated,
        )
