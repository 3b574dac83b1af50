"""Runs the Python of a session's solutions in a sandbox, in the order of its turns: the behaviour ``code_fails``."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from bactrian.protocol.fences import PYTHON, find_blocks
from bactrian.records.run import LONGEST_QUOTE, Finding
from bactrian.records.session import Session
from bactrian.records.turn import Turn
from bactrian.sandbox.programs import BlockOutcome, SandboxSession
from bactrian.sandbox.tiers import Limits, Tier

# ``unknown``: it needs what a sandbox does not have, or it did not end in time.
RunEnding = Literal["runs", "fails", "unknown"]
LIMITS = Limits(cpu=30, wall=10)  # of one session's code; ``wall`` is that of one block
BLOCK_CPU = 5.0  # seconds of CPU time of one block

_PROMPT = re.compile(r"^(?:>>>|\.\.\.)(?: |$)", re.MULTILINE)
_SHELL = re.compile(r"^[ \t]*(?:[!%$]|(?:python3? -m )?pip3? install\b)", re.MULTILINE)
# What a block lacks if it fails with an exception of that name: no fault of the code.
_NEEDS = {
    "ModuleNotFoundError": "a package",
    "ImportError": "a package",
    "EOFError": "input",
    "TclError": "a display",
    **dict.fromkeys(("FileNotFoundError", "IsADirectoryError", "NotADirectoryError"), "a file"),
    **dict.fromkeys(("PermissionError", "OSError"), "a right that a sandbox does not give"),
    **dict.fromkeys(
        ("gaierror", "URLError", "ConnectionError", "ConnectionRefusedError", "NetworkError"), "the network"
    ),
}


@dataclass(frozen=True, slots=True)
class SolutionRun:
    """How the Python of one turn ran."""

    turn: int  # Its number, from 1
    ending: RunEnding
    reason: str  # the last line of the traceback, or what is missing; empty if it ran
    line: str = ""  # the line of code that failed; empty if it is not known


def read_code(turn: Turn) -> list[str]:
    """Return the Python blocks of a turn.

    Those are its fenced blocks of Python, and those of no stated language that Python can read. Blocks with a shell's
    commands or a console's prompts are left out.
    """
    return [
        block.code
        for block in find_blocks(turn.text)
        if block.language in PYTHON
        and block.code.strip()
        and not _PROMPT.search(block.code)
        and not _SHELL.search(block.code)
        and (block.language or _is_program(block.code))
    ]


def run_solutions(session: Session, tier: Tier | None = None) -> Iterator[SolutionRun]:
    """Run the code of each solution of ``session`` and yield how it went. A turn without Python is left out.

    All turns of a session share one process, so that a solution may use what earlier ones have defined. Turns whose
    code was run when they were made, those of embodied agents, are left out.

    Args:
        session: Finished or not.
        tier: Default: the strongest that works here.

    Raises:
        SandboxError: no sandbox works here.
    """
    programs = [
        (turn.number, "\n\n".join(blocks))
        for turn in session.turns
        if turn.speaker != "user" and not turn.uses and (blocks := read_code(turn))
    ]
    process: SandboxSession | None = None
    incomplete = False
    try:
        for number, code in programs:
            if process is None or process.ended:
                incomplete = incomplete or process is not None
                _close(process)
                process = SandboxSession(LIMITS, tier=tier)
            outcome = process.run(code, "solution.py", cpu=BLOCK_CPU)
            run = _read_outcome(number, outcome, code, incomplete=incomplete)
            incomplete = incomplete or run.ending != "runs"
            yield run
    finally:
        _close(process)


def check_runs(session: Session, tier: Tier | None = None) -> bool:
    """Return True if a session's solutions contain Python, some of it ran, and none of it failed.

    Raises:
        SandboxError: no sandbox works here.
    """
    endings = [run.ending for run in run_solutions(session, tier)]
    return "runs" in endings and "fails" not in endings


def _close(process: SandboxSession | None) -> None:
    if process is not None:
        process.close()


def _read_outcome(number: int, outcome: BlockOutcome, code: str, *, incomplete: bool) -> SolutionRun:
    """Return how a block ran. ``incomplete``: earlier code of the session did not run to its end."""
    line = _find_line(outcome.trace, code)
    error_line = f"{outcome.error}: {outcome.text}".strip(": ")
    match outcome.ending, outcome.error:
        case "ok", _:
            return SolutionRun(number, "runs", "")
        case "time", _:
            return SolutionRun(number, "unknown", "it did not end in time")
        case _, "SystemExit" if outcome.text in ("0", "None", ""):
            return SolutionRun(number, "runs", "")
        case _, "SystemExit":
            return SolutionRun(number, "unknown", "it ended itself, as without arguments or input", line)
        case _, error if error in _NEEDS:
            return SolutionRun(number, "unknown", f"it needs {_NEEDS[error]}: {error_line}", line)
        case _, "NameError" if incomplete:
            return SolutionRun(number, "unknown", f"it follows code that did not run: {error_line}", line)
        case "error", _:
            return SolutionRun(number, "fails", error_line, line)
        case _:
            reason = outcome.text or f"it reached the limit of {outcome.ending}"
            return SolutionRun(number, "unknown", reason, line)


def _find_line(trace: str, code: str) -> str:
    """Return the last line of ``code`` that a traceback names; empty if it names none."""
    lines = code.splitlines()
    numbers = [int(number) for number in re.findall(r'File "solution\.py", line (\d+)', trace)]
    return lines[numbers[-1] - 1].strip() if numbers and 0 < numbers[-1] <= len(lines) else ""


def _is_program(code: str) -> bool:
    """Return True for Python that does something; a word, a name or a list of numbers does nothing."""
    try:
        with warnings.catch_warnings(action="ignore"):
            body = ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(
        not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Call) for statement in body
    )


# The behaviour ``code_fails``: a solution whose Python raises an exception when it is run.
#
# It is detected only if requested, because detecting it runs code of a model.


CODE_FAILS = "code_fails"
DEFINITION = (
    "Code fails: the Python of a solution raises an exception when it is run in a sandbox, after that of earlier"
    " solutions.\n\nNo failure: code that needs a package, a file, input, the network or more time."
)


@dataclass(frozen=True, slots=True)
class CodeRunner:
    """Runs the code of solutions and finds those that fail."""

    tier: Tier | None = None  # Default: the strongest that works here
    code: str = CODE_FAILS

    def detect(self, session: Session) -> Iterator[Finding]:
        """Yield a finding for each turn whose code fails.

        Raises:
            SandboxError: no sandbox works here.
        """
        for run in run_solutions(session, self.tier):
            if run.ending == "fails":
                quote = run.line or run.reason
                yield Finding(session.id, run.turn, CODE_FAILS, 0.9, quote[:LONGEST_QUOTE], run.reason[:500])
