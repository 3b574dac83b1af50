"""Extracts the code from a model's reply. docs/evaluate.md states the rules."""

from __future__ import annotations

import ast
import re
import textwrap
import warnings

from bactrian.evaluate.problems.problem import Problem
from bactrian.language.fences import PYTHON, find_blocks
from bactrian.language.think import split_thought

_CODE = re.compile(r"(?:from\s+\S+\s+import\b|import\s|async\s+def\s|def\s|class\s|@\w)")
_STOPS = re.compile(r"^(?:class |def |#|if |print)", re.MULTILINE)
"""Where the body of a function ends (Chen et al. 2021, section 3.1)."""
_CUTS = 60
"""Most attempts to cut prose after code."""


def extract_module(problem: Problem, reply: str) -> str:
    """Return the Python module that ``reply`` proposes for ``problem``; empty if it contains no code."""
    text = split_thought(reply)[1].replace("\r\n", "\n").expandtabs(4)
    blocks = _find_blocks(text)
    whole = [block for block in blocks if any(_defines(block, name) for name in problem.functions)]
    if whole:
        return _join(problem, "\n\n".join(blocks) if not _compiles(whole[0]) else whole[0])
    if blocks:
        return _complete(problem, blocks[0]) if problem.completes else "\n\n".join(blocks)
    if any(_defines(text, name) for name in problem.functions) or not problem.completes:
        return _join(problem, _cut_prose(text))
    return _complete(problem, text)


def _find_blocks(text: str) -> list[str]:
    """Return the fenced blocks of Python, or of no stated language."""
    return [one.code for one in find_blocks(text) if one.language in PYTHON and one.code.strip()]


def _defines(code: str, name: str) -> bool:
    return re.search(rf"^[ ]*(?:async )?(?:def|class) +{re.escape(name)}\b", code, re.MULTILINE) is not None


def _join(problem: Problem, code: str) -> str:
    """Return ``code`` after the prompt, whose imports and helpers it may use."""
    code = textwrap.dedent(code)
    if not problem.completes or not _compiles(problem.prompt):
        return code
    return f"{problem.prompt.rstrip()}\n\n\n{code}"


def _complete(problem: Problem, body: str) -> str:
    """Return the prompt continued by ``body``, the rest of its function."""
    if not body.strip():
        return ""
    lines = body.strip("\n")
    if not lines.startswith(" "):
        lines = textwrap.indent(lines, "    ")
    body = lines + "\n"
    if (stop := _STOPS.search(body)) is not None:
        body = body[: stop.start()]
    return problem.prompt.rstrip() + "\n" + body


def _cut_prose(text: str) -> str:
    """Return the code of a reply without fences: from its first line of code to the last that Python can read."""
    lines = text.split("\n")
    first = next((number for number, line in enumerate(lines) if _CODE.match(line)), None)
    if first is None:
        return text
    lines = lines[first:]
    # Prose after the code begins in the first column.
    ends = [number for number, line in enumerate(lines) if line and not line[0].isspace()][1:]
    for end in [len(lines), *reversed(ends[-_CUTS:])]:
        code = "\n".join(lines[:end])
        if _compiles(code):
            return code
    return "\n".join(lines)


def _compiles(code: str) -> bool:
    try:
        with warnings.catch_warnings(action="ignore"):
            ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True
