"""Solutions to score: those of a run, and those of a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bactrian.errors import InputError
from bactrian.evaluate.extraction import extract_module
from bactrian.evaluate.problems.own import read_rows
from bactrian.evaluate.problems.problem import Problem
from bactrian.store import open_store


@dataclass(frozen=True, slots=True)
class CodeSample:
    """A solution to score."""

    id: str
    """Of the session, or the line of the file."""
    problem: Problem
    code: str
    """A complete module; empty if there is no code."""
    temperature: str = ""
    """Empty if not known."""

    @property
    def key(self) -> str:
        """Identifies what is judged: the same code against the same checks."""
        checked = (self.problem.helpers, self.problem.checks, *self.problem.functions, self.code)
        return hashlib.sha256("\0".join(checked).encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class SolutionSet:
    """The existing solutions, and the number of missing ones."""

    solutions: Sequence[CodeSample]
    missing: int = 0
    """Samples that failed or have not been generated."""


async def read_run(run: Path, problems: Sequence[Problem], samples: int) -> SolutionSet:
    """Return the solutions of a run. ``samples`` is the number that it has when it is complete.

    Raises:
        StoreError: the run cannot be read.
    """
    by_prompt = {problem.prompt: problem for problem in problems}
    found: list[CodeSample] = []
    async with open_store(run, read_only=True) as store:
        async for session in store.sessions():
            problem = by_prompt.get(session.values.get("problem", ""))
            if problem is None or session.ending is None or session.ending.code == "failed":
                continue
            reply = (
                session.turns[-1].text if session.turns and session.turns[-1].speaker == "assistant" else ""
            )
            code = extract_module(problem, str(reply))
            found.append(CodeSample(session.id, problem, code, session.values.get("temperature", "")))
    return SolutionSet(found, max(0, samples - len(found)))


def read_solutions(path: Path, problems: Sequence[Problem]) -> SolutionSet:
    """Return the solutions of a file of JSON lines with ``task_id``, and ``completion`` or ``solution``.

    A ``completion`` continues the prompt; a ``solution`` is a complete module.

    Raises:
        InputError: a line has other fields, or names an unknown problem.
    """
    by_id: Mapping[str, Problem] = {problem.id: problem for problem in problems}
    found: list[CodeSample] = []
    for number, row in read_rows(path):
        where = f"{path}:{number}"
        problem = by_id.get(str(row.get("task_id")))
        if problem is None:
            raise InputError(
                f"There is no problem {row.get('task_id')!r}.",
                where=where,
                next=f"The problems are {problems[0].id} to {problems[-1].id}; see --problems.",
            )
        match row:
            case {"solution": str(code)}:
                pass
            case {"completion": str(completion)}:
                code = problem.build_module(completion)
            case _:
                raise InputError(
                    "This line has neither `completion` nor `solution`.",
                    where=where,
                    next="Write the rest of the function as `completion`, or a module as `solution`.",
                )
        found.append(CodeSample(str(number), problem, code))
    if not found:
        raise InputError(
            "The file contains no solutions.", where=str(path), next="Write one JSON object a line."
        )
    return SolutionSet(found)
