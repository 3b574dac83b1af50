"""Scores solutions: judges them side by side, and writes down each verdict before the next."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

from bactrian.errors import BactrianError, InputError
from bactrian.evaluate.code_checks.judge import Judge
from bactrian.evaluate.code_checks.verdict import KINDS, Verdict
from bactrian.evaluate.pass_at_k import PassAtK, summarize_pass
from bactrian.evaluate.solutions import CodeSample, SolutionSet
from bactrian.files.json_text import parse_json
from bactrian.sandbox.limits import Limits


@dataclass(frozen=True, slots=True)
class Score:
    """The verdicts on a set of solutions, and their statistics."""

    problems: int
    samples: int
    missing: int
    kinds: dict[str, int]
    passes: tuple[PassAtK, ...]
    by_temperature: dict[str, tuple[PassAtK, ...]]
    left_out: tuple[int, ...]
    """Values of k that need more samples of each problem than there are."""

    def to_json(self) -> dict[str, Any]:
        """Return the score as JSON content."""

        def write(passes: Sequence[PassAtK]) -> dict[str, Any]:
            return {
                str(one.k): {key: value for key, value in asdict(one).items() if key != "k"} for one in passes
            }

        return {
            "problems": self.problems,
            "samples": self.samples,
            "missing": self.missing,
            "kinds": self.kinds,
            "pass_at": write(self.passes),
            "by_temperature": {name: write(passes) for name, passes in self.by_temperature.items()},
            "left_out": list(self.left_out),
        }


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
        try:
            row = parse_json(line)
            verdict = Verdict(row["kind"], row["detail"], row["calls"], row["cpu"])
            key, solution = row["key"], row["id"]
        except (ValueError, KeyError, TypeError):
            # The last line of a process that was killed while it wrote; its verdict is made again.
            return
        if verdict.kind in KINDS:
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
        body = (json.dumps(row) + "\n").encode()
        with self._lock:
            try:
                self._append(body)
            except OSError as error:
                raise BactrianError(
                    f"The verdict cannot be written: {error.strerror}.",
                    where=str(self._path),
                    next="Free some space, and run the same command: the verdicts before are kept.",
                ) from error
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
        for one in judges:
            one.close()


def compute_score(found: SolutionSet, verdicts: Sequence[Verdict], ks: Sequence[int]) -> Score:
    """Return the score of ``found``, whose verdicts are given in the same order."""
    kinds = Counter(verdict.kind for verdict in verdicts)
    groups: defaultdict[str, dict[str, list[bool]]] = defaultdict(dict)
    for solution, verdict in zip(found.solutions, verdicts, strict=True):
        for name in dict.fromkeys(("", solution.temperature)):
            groups[name].setdefault(solution.problem.id, []).append(verdict.passed)

    def summarize(name: str) -> tuple[PassAtK, ...]:
        counts = [(len(passed), sum(passed)) for passed in groups[name].values()]
        return tuple(found for k in ks if (found := summarize_pass(counts, k)) is not None)

    temperatures = sorted((name for name in groups if name), key=float)
    passes = summarize("")
    return Score(
        problems=len(groups[""]),
        samples=len(verdicts),
        missing=found.missing,
        kinds={kind: kinds[kind] for kind in KINDS if kinds[kind]},
        passes=passes,
        by_temperature={name: summarize(name) for name in temperatures} if len(temperatures) > 1 else {},
        left_out=tuple(k for k in ks if k not in {one.k for one in passes}),
    )
