"""HumanEval+ (Liu et al. 2023): more inputs for the problems of HumanEval, from a file that the user has.

The expected values are those of the canonical solution, which runs beside the checks. EvalPlus's own
grader is not used.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from bactrian.evaluate.problems.problem import Problem

_COMPARE = """
import copy, math

def is_same(given, wanted, tolerance):
    if isinstance(wanted, float) and not isinstance(given, bool) and isinstance(given, (int, float)):
        return given == wanted or math.isclose(given, wanted, rel_tol=1e-7, abs_tol=tolerance)
    if isinstance(wanted, (list, tuple)) and type(given) is type(wanted):
        return len(given) == len(wanted) and all(map(lambda a, b: is_same(a, b, tolerance), given, wanted))
    return given == wanted
"""
_ROOT = 1e-4
"""Largest value of the polynomial at a root that ``find_zero`` returns: any root is right."""


def is_plus(row: dict[str, Any]) -> bool:
    """Return True if ``row`` is a problem of HumanEval+ with inputs instead of a test."""
    return "plus_input" in row and "test" not in row


def make_plus_problem(row: dict[str, Any]) -> Problem:
    """Return the problem of a row in EvalPlus's format.

    Raises:
        KeyError: a field is missing.
    """
    name, prompt = str(row["entry_point"]), str(row["prompt"])
    canonical = str(row["canonical_solution"])
    inputs = [*row["base_input"], *row["plus_input"]]
    tolerance = max(float(row.get("atol") or 0), 1e-6)
    if name == "find_zero":
        condition = f"abs(poly(*arguments, {name}(*copy.deepcopy(arguments)))) <= {_ROOT}"
    else:
        wanted = "wanted(*copy.deepcopy(arguments))"
        condition = f"is_same({name}(*copy.deepcopy(arguments)), {wanted}, {tolerance})"
    reference = f"{prompt}{canonical}\n\nwanted = {name}\n{_COMPARE}"
    checks = f"import json\nfor arguments in json.loads({json.dumps(inputs)!r}):\n    assert {condition}\n"
    return Problem(str(row["task_id"]), prompt, (name,), checks, reference, canonical)


def find_plus_file() -> Path | None:
    """Return the newest whole data file in the cache of EvalPlus; None if not found."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    found = list((cache / "evalplus").glob("HumanEvalPlus-v*.jsonl"))
    return max(
        found, key=lambda path: [int(number) for number in re.findall(r"\d+", path.stem)], default=None
    )
