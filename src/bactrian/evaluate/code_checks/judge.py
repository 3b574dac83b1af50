"""The split judge: the solution in one sandbox, the checks in another, and only plain values between them.

The solution sees the arguments of each call, and nothing of what is expected: it can forge answers, but must
guess them.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

from bactrian.errors import SandboxError
from bactrian.evaluate.code_checks.verdict import Verdict, VerdictKind
from bactrian.evaluate.problems.problem import Problem
from bactrian.sandbox.inside.values import Unsupported
from bactrian.sandbox.limits import Limits
from bactrian.sandbox.run import choose_tier
from bactrian.sandbox.session import BlockOutcome, Encoded, SandboxSession
from bactrian.sandbox.tiers import Tier

_PATIENCE = 30.0
_CHECK_CPU = 3600.0
"""Seconds of CPU time of one process of checks, for many solutions."""
_ATTEMPTS = 3
"""Starts of a sandbox before the judge gives up."""
_STOPS: dict[str, VerdictKind] = {"time": "timeout", "memory": "memory", "output": "output"}


@dataclass(slots=True)
class _Solution:
    """A solution in its sandbox."""

    session: SandboxSession
    deadline: float

    def ask(self, name: str, arguments: tuple[object, ...], keywords: Mapping[str, object]) -> object:
        """Call a function, for the checks. Its value is passed on unread."""
        left = self.deadline - time.monotonic()
        if self.session.ended or left <= 0:
            return {"stop": "timeout" if left <= 0 else "crashed", "text": ""}
        try:
            outcome = self.session.call(name, arguments, keywords, wall=left)
        except Unsupported as error:
            return {"stop": "unsupported", "text": f"argument of type {error}"}
        if outcome.unsupported:
            return {"stop": "unsupported", "text": f"value of type {outcome.unsupported}"}
        if outcome.ending == "ok":
            return Encoded(["d", ["value", outcome.encoded]])
        if outcome.missing:
            return {"stop": "missing", "text": outcome.text}
        if outcome.ending == "error" and outcome.error != "SystemExit":
            return {"error": outcome.error, "text": outcome.text}
        return {"stop": _STOPS.get(outcome.ending, "crashed"), "text": outcome.text}


class Judge:
    """Judges one solution after another. A thread needs a judge of its own."""

    def __init__(
        self, limits: Limits | None = None, tier: Tier | None = None, *, patience: float = _PATIENCE
    ) -> None:
        """Make a judge; ``patience`` is the number of seconds for a check beyond those of the solution."""
        self._limits = limits or Limits()
        self._tier = tier
        self._patience = patience
        self._checks: SandboxSession | None = None
        self._solution: _Solution | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process of the checks."""
        if self._checks is not None:
            self._checks.close()
            self._checks = None

    def judge(self, problem: Problem, code: str) -> Verdict:
        """Return the verdict on ``code``, a complete Python module.

        A sandbox that does not start is started again; it says nothing about the solution.

        Raises:
            SandboxError: no sandbox starts.
        """
        if not code.strip():
            return Verdict("empty")
        for attempt in range(_ATTEMPTS):
            try:
                return self._judge(problem, code)
            except SandboxError:
                self.close()
                if attempt == _ATTEMPTS - 1:
                    raise
        raise AssertionError

    def _judge(self, problem: Problem, code: str) -> Verdict:
        started = time.monotonic()
        with SandboxSession(self._limits, tier=self._tier or choose_tier()) as session:
            self._solution = _Solution(session, started + self._limits.wall)
            try:
                verdict = _explain_definition(session.run(code, "solution.py"))
                if verdict is None:
                    verdict = self._check(problem)
                return replace(verdict, cpu=round(session.stop().cpu, 3))
            finally:
                self._solution = None

    def _check(self, problem: Problem) -> Verdict:
        order = (problem.helpers, list(problem.functions), problem.checks)
        checks = self._open_checks()
        outcome = checks.call("judge", order, wall=self._limits.wall + self._patience)
        if checks.ended or outcome.ending != "ok":
            self.close()
            return Verdict("judge_error", outcome.text or outcome.error)
        # The checks are trusted: their values do not come from the solution, except for text that a check passes on.
        found = cast("dict[str, Any]", outcome.read_value())
        return Verdict(found["kind"], str(found["detail"]), int(found["calls"]))

    def _open_checks(self) -> SandboxSession:
        if self._checks is None or self._checks.ended:
            limits = replace(self._limits, cpu=_CHECK_CPU)
            self._checks = SandboxSession(limits, {"ask": self._ask}, tier=self._tier)
            self._checks.run(_read_checker(), "checker.py")
        return self._checks

    def _ask(self, name: str, arguments: tuple[object, ...], keywords: dict[str, object]) -> object:
        assert self._solution is not None
        return self._solution.ask(name, arguments, keywords)


def _explain_definition(outcome: BlockOutcome) -> Verdict | None:
    """Return the verdict on a module that cannot be run; None if it can."""
    detail = f"{outcome.error}: {outcome.text}".strip(": ")
    if outcome.ending == "ok":
        return None
    if outcome.ending != "error" or outcome.error == "SystemExit":
        return Verdict(_STOPS.get(outcome.ending, "crashed"), detail)
    syntax = outcome.error in ("SyntaxError", "IndentationError", "TabError")
    return Verdict("syntax" if syntax else "error", detail)


def _read_checker() -> str:
    spec = importlib.util.find_spec("bactrian.evaluate.code_checks.checker")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).read_text("utf-8")
