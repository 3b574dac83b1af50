"""Problems from a file: JSON lines in HumanEval's or MBPP's format."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from bactrian.errors import InputError
from bactrian.evaluate.problems.human_eval import make_problem
from bactrian.evaluate.problems.plus import is_plus, make_plus_problem
from bactrian.evaluate.problems.problem import Problem
from bactrian.files.json_text import parse_json, read_lines

_FIELDS = "task_id, prompt, entry_point and test (HumanEval), or task_id, text and test_list (MBPP)"


def read_problems(path: Path) -> list[Problem]:
    """Return the problems of a file.

    Raises:
        InputError: a line is not a problem, or two have the same id or prompt.
    """
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    for number, row in read_rows(path):
        where = f"{path}:{number}"
        try:
            problem = _make(row)
        except (KeyError, TypeError, ValueError, SyntaxError) as error:
            what = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(
                f"This is not a problem: {what}.", where=where, next=f"Needed: {_FIELDS}."
            ) from None
        for key in (problem.id, problem.prompt.strip()):
            if key in seen:
                raise InputError(
                    f"This problem has the id or the prompt of line {seen[key]}.",
                    where=where,
                    next="Remove one.",
                )
            seen[key] = number
        problems.append(problem)
    if not problems:
        raise InputError(
            "The file contains no problems.", where=str(path), next=f"Each line needs {_FIELDS}."
        )
    return problems


def read_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of a file of JSON lines with the numbers of their lines.

    Raises:
        InputError: a line is not a JSON object.
    """
    for number, line in read_lines(path):
        try:
            row: object = parse_json(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise InputError(
                "This line is not a JSON object.", where=f"{path}:{number}", next="Write one object a line."
            )
        yield number, cast("dict[str, Any]", row)


def _make(row: dict[str, Any]) -> Problem:
    if "test_list" in row:
        return _make_mbpp(row)
    if is_plus(row):
        return make_plus_problem(row)
    return make_problem(row)


def _make_mbpp(row: dict[str, Any]) -> Problem:
    """Return a problem in the format of MBPP (Austin et al. 2021): a description, and assertions."""
    tests = [*map(str, row["test_list"]), *map(str, row.get("challenge_test_list") or ())]
    setup = "\n".join([str(row.get("test_setup_code") or ""), *map(str, row.get("test_imports") or ())])
    checks = "\n".join(tests)
    text = str(row["text"] if "text" in row else row["prompt"])
    shown = "\n".join(map(str, row["test_list"]))
    return Problem(
        id=str(row["task_id"]),
        prompt=f"{text.strip()}\n\nYour code has to pass these tests:\n\n{shown}",
        functions=_find_functions(checks, setup),
        checks=checks,
        helpers=setup,
        canonical=str(row.get("code", "")),
        completes=False,
    )


def _find_functions(checks: str, setup: str) -> tuple[str, ...]:
    """Return the names that the checks call and that neither Python nor the setup defines.

    Raises:
        ValueError: there are none.
    """
    known = {*dir(builtins)}
    for node in ast.walk(ast.parse(setup)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            known.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            known |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    called = [
        node.func.id
        for node in ast.walk(ast.parse(checks))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    found = tuple(dict.fromkeys(name for name in called if name not in known))
    if not found:
        raise ValueError("its tests call no function of a solution")
    return found
