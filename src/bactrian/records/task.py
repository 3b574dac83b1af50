"""Who takes part, and what they work on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """A part to play: a name such as ``Stock Trader`` and, optionally, who that is and what they can do."""

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class Task:
    """An idea on its way to a concrete task (paper, section 3.1)."""

    original: str
    """The idea as the person typed it, or as the recipe gave it."""
    specified: str | None = None
    """What the task specifier made of it; None if the idea was used as it is."""
    planned: str | None = None
    """The planner's subtasks; None if there was no planner."""

    @property
    def text(self) -> str:
        """The task as both agents see it."""
        task = self.specified if self.specified is not None else self.original
        return f"{task}\n{self.planned}" if self.planned else task
