"""Programming problems: a prompt for the model, and checks for its solution."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """A programming problem."""

    id: str
    prompt: str
    """What the model is asked to complete or to solve."""
    functions: tuple[str, ...]
    """Functions of the solution that the checks call."""
    checks: str
    """Source that raises AssertionError if the solution is wrong."""
    helpers: str = ""
    """Source that the checks need besides the solution."""
    canonical: str = ""
    """A correct solution, as a completion of the prompt or as a module; empty if the file has none."""
    completes: bool = True
    """True if a solution continues the prompt, which begins a function."""

    def build_module(self, completion: str) -> str:
        """Return the module of a completion: the prompt continued, or the completion alone if it is one already."""
        return self.prompt + completion if self.completes else completion
