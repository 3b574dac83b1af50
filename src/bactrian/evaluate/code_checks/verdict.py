"""What the judge says of a solution."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

VerdictKind = Literal[
    "passed",
    "wrong",
    "error",
    "syntax",
    "missing",
    "empty",
    "timeout",
    "memory",
    "output",
    "crashed",
    "unsupported",
    "judge_error",
]
KINDS: dict[VerdictKind, str] = {
    "passed": "every check passes",
    "wrong": "a check fails",
    "error": "the solution raised an exception",
    "syntax": "the solution is not Python",
    "missing": "the solution does not define the function",
    "empty": "the reply contains no code",
    "timeout": "the limit of CPU time, or of waiting, was reached",
    "memory": "the limit of memory was reached",
    "output": "too much output, or an answer that is too large",
    "crashed": "the process ended in the middle of a check",
    "unsupported": "a value that cannot leave the sandbox: neither right nor wrong",
    "judge_error": "the check itself failed or hung: neither right nor wrong",
}
"""The kinds of verdicts, and what they mean."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge says of a solution."""

    kind: VerdictKind
    detail: str = ""
    """The check that fails, or the exception."""
    calls: int = 0
    """Calls of the solution's functions."""
    cpu: float = 0.0
    """Seconds of CPU time in the sandbox, with the start of the interpreter."""

    @property
    def passed(self) -> bool:
        """True if every check passes."""
        return self.kind == "passed"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON content."""
        return asdict(self) | {"passed": self.passed}
