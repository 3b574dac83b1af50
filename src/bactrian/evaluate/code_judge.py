"""The split judge: the solution in one sandbox, the checks in another, plain values between them; its verdicts.

The solution sees the arguments of each call, and nothing of what is expected: it can forge answers, but must
guess them.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from bactrian.errors import BactrianError, InputError, SandboxError, explain_os_errors
from bactrian.evaluate.problems import CodeSample, Problem
from bactrian.files.json_text import parse_json
from bactrian.sandbox.inside.values import Unsupported
from bactrian.sandbox.programs import BlockOutcome, Encoded, SandboxSession, choose_tier
from bactrian.sandbox.sandbox_process import SandboxLost
from bactrian.sandbox.tiers import Limits, Tier

# What the judge says of a solution.


# The kinds of verdicts, and what they mean.
KINDS: dict[str, str] = {
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


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge says of a solution."""

    kind: str
    detail: str = ""  # The check that fails, or the exception
    calls: int = 0  # Calls of the solution's functions
    cpu: float = 0.0  # Seconds of CPU time in the sandbox, with the start of the interpreter
    tier: str = ""  # The sandbox that ran the solution; empty if nothing was run, or it was not recorded

    @property
    def passed(self) -> bool:
        """True if every check passes."""
        return self.kind == "passed"

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON content."""
        return asdict(self) | {"passed": self.passed}


_PATIENCE = 30.0
_CHECK_CPU = 3600.0  # Seconds of CPU time of one process of checks, for many solutions
_ATTEMPTS = 3  # Starts of a sandbox before the judge gives up
_STOPS: dict[str, str] = {"time": "timeout", "memory": "memory", "output": "output"}


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


class Judge(AbstractContextManager["Judge"]):
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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process of the checks."""
        if self._checks is not None:
            self._checks.close()
            self._checks = None

    def judge(self, problem: Problem, code: str) -> Verdict:
        """Return the verdict on ``code``, a complete Python module.

        A sandbox that does not start is started again; it says nothing about the solution. One that starts and is lost
        each time was ended by the solution, which must not end the judging of others.

        Raises:
            SandboxError: no sandbox starts.
        """
        if not code.strip():
            return Verdict("empty")
        for attempt in range(_ATTEMPTS):
            try:
                return self._judge(problem, code)
            except SandboxError as error:
                self.close()
                if attempt == _ATTEMPTS - 1:
                    if isinstance(error, SandboxLost):
                        return Verdict("crashed", "the sandbox was lost at each attempt")
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
                return replace(verdict, cpu=round(session.stop().cpu, 3), tier=session.tier)
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
        values = cast("dict[str, Any]", outcome.read_value())
        return Verdict(values["kind"], str(values["detail"]), int(values["calls"]))

    def _open_checks(self) -> SandboxSession:
        if self._checks is None or self._checks.ended:
            limits = replace(self._limits, cpu=_CHECK_CPU)
            self._checks = SandboxSession(limits, {"ask": self._ask}, tier=self._tier)
            # The judge of the checks runs as text: in its sandbox, the package is not there.
            checker = files("bactrian.evaluate").joinpath("checker.py").read_text("utf-8")
            self._checks.run(checker, "checker.py")
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


# Judges several solutions at once, and writes down each verdict before the next.


_FIRST_BYTES = b'{"task_id": '
_LONGEST_LINE = 64 * 1024 * 1024


class VerdictFile:
    """Verdicts as JSON lines. A verdict on the same code and checks is not made again.

    Raises:
        InputError: the file exists and contains something else, to which no verdict is added.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, Verdict] = {}
        self._written: set[tuple[str, str]] = set()
        self._lock = threading.Lock()
        check_verdicts(path)
        if path.exists():
            for line in path.read_bytes().splitlines(keepends=True):
                self._take(line)

    def _take(self, line: bytes) -> None:
        if read := _read_line(line):
            solution, key, verdict = read
            self._known[key] = verdict
            self._written.add((solution, key))

    def find(self, solution: CodeSample) -> Verdict | None:
        """Return the verdict on this code, or None if not found."""
        return self._known.get(solution.key)

    def add(self, solution: CodeSample, verdict: Verdict) -> None:
        """Write a verdict down, unless it is there already.

        Raises:
            BactrianError: the file cannot be written.
        """
        if (solution.id, solution.key) in self._written:
            return
        row = {
            "task_id": solution.problem.id,
            "id": solution.id,
            "temperature": solution.temperature,
            **verdict.to_json(),
            "code": solution.code,
            "key": solution.key,
        }
        with self._lock:
            again = "Free some space, and run the same command: the verdicts before are kept."
            with explain_os_errors("The verdict cannot be written", self._path, again, BactrianError):
                self._append((json.dumps(row) + "\n").encode())
            self._known[solution.key] = verdict
            self._written.add((solution.id, solution.key))

    def _append(self, body: bytes) -> None:
        with self._path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.seek(0)
                    content = file.read()
                    start = content.rfind(b"\n") + 1
                    if _is_json(content[start:]):
                        body = b"\n" + body
                    else:  # A kill cut it; as the first line, it would not be known as a verdict's.
                        file.truncate(start)
            file.write(body)


def _read_line(line: bytes) -> tuple[str, str, Verdict] | None:
    """Return the solution, the key of what was judged, and the verdict; None for a line that a kill cut short."""
    try:
        row = parse_json(line)
        verdict = Verdict(row["kind"], row["detail"], row["calls"], row["cpu"], row.get("tier", ""))
        key, solution = row["key"], row["id"]
    except (ValueError, KeyError, TypeError):
        return None
    return (solution, key, verdict) if verdict.kind in KINDS else None


def read_verdicts(path: Path) -> dict[str, str]:
    """Return the kind of the last verdict on each solution, by the id of its session; none if the file is missing."""
    if not path.is_file():
        return {}
    with path.open("rb") as file:
        return {read[0]: read[2].kind for line in file if (read := _read_line(line))}


def _is_json(line: bytes) -> bool:
    try:
        parse_json(line)
    except ValueError:
        return False
    return True


def check_verdicts(path: Path) -> None:
    """Check that a file is missing or empty, or begins with a verdict, which a kill may have cut short.

    Raises:
        InputError: it contains something else.
    """
    if not path.exists():
        return
    is_ours = False
    if path.is_file():
        with path.open("rb") as file:
            first = file.readline(_LONGEST_LINE)
        try:
            row: object = parse_json(first or b'{"key": "", "kind": ""}')
            is_ours = isinstance(row, dict) and {"key", "kind"} <= set(cast("dict[str, object]", row))
        except ValueError:
            is_ours = first.startswith(_FIRST_BYTES) and not first.endswith(b"\n")
    if not is_ours:
        raise InputError(
            "This file contains something other than verdicts.", where=str(path), next="Name another file."
        )


def judge_solutions(
    solutions: Sequence[CodeSample],
    verdicts: VerdictFile,
    limits: Limits,
    *,
    workers: int,
    on_verdict: Callable[[Verdict], object],
) -> list[Verdict]:
    """Judge the solutions that have no verdict yet, ``workers`` at once, and return all verdicts in order.

    Raises:
        SandboxError: no sandbox starts. The verdicts so far are written down.
        BactrianError: the file of verdicts cannot be written.
    """
    local = threading.local()
    judges: list[Judge] = []

    def judge(solution: CodeSample) -> Verdict:
        verdict = verdicts.find(solution)
        if verdict is None:
            if not hasattr(local, "judge"):
                local.judge = Judge(limits)
                judges.append(local.judge)
            verdict = local.judge.judge(solution.problem, solution.code)
        verdicts.add(solution, verdict)
        on_verdict(verdict)
        return verdict

    pool = ThreadPoolExecutor(workers)
    try:
        return list(pool.map(judge, solutions))
    finally:
        pool.shutdown(cancel_futures=True)
        for opened in judges:
            opened.close()
