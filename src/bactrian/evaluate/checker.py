"""Runs the checks of a problem against functions that live in another sandbox.

This file runs in a sandbox of its own, without the package: it sees the checks and the expected values, and never the
code of a solution. ``ask`` is an action of the trusted side; it calls a function of the solution.
"""

from __future__ import annotations

import builtins
import io
import sys
from collections.abc import Callable

ask: Callable[[str, tuple[object, ...], dict[str, object]], dict[str, object]]  # The session provides it


class SolutionStopped(BaseException):
    """The solution cannot be asked any more. No ``except Exception`` of a check hides it."""


class SolutionError(Exception):
    """An exception of a type that only the solution knows."""


class Remote:
    """A function of the solution."""

    def __init__(self, name: str, state: dict[str, object]) -> None:
        self.__name__ = self.__qualname__ = name
        self._state = state

    def __call__(self, *arguments: object, **keywords: object) -> object:
        state = self._state
        if state["stop"]:
            raise SolutionStopped
        state["calls"] = int(state["calls"]) + 1  # type: ignore[call-overload]
        try:
            answer = ask(self.__name__, arguments, keywords)  # noqa: F821 - see above
        except RuntimeError as error:
            answer = {"stop": "unsupported", "text": str(error)}
        if "stop" in answer:
            state["stop"], state["detail"] = answer["stop"], answer["text"]
            raise SolutionStopped
        if "error" not in answer:
            return answer["value"]
        raised = state["raised"] = _make_error(str(answer["error"]), str(answer["text"]))
        raise raised


def _make_error(name: str, text: str) -> Exception:
    """Return an exception of the built-in type of that name, or a :class:`SolutionError`.

    The end of an iterator is not passed on: in a check such as ``all(map(…))`` it would end the check, and pass.
    """
    kind: object = getattr(builtins, name, None)
    ends = (StopIteration, StopAsyncIteration)
    if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, ends):
        try:
            return kind(text)
        except TypeError:
            pass
    return SolutionError(f"{name}: {text}")


def judge(helpers: str, names: list[str], checks: str) -> dict[str, object]:
    """Run ``checks`` and return the verdict as plain values.

    Args:
        helpers: Source to run before: what the checks may use besides the solution.
        names: The solution's functions.
        checks: Source that raises AssertionError if the solution is wrong.
    """
    state: dict[str, object] = {"stop": "", "detail": "", "calls": 0, "raised": None}
    scope: dict[str, object] = {"__name__": "checks"}
    kept, sys.stdout = sys.stdout, io.StringIO()
    try:
        kind, detail = _run(helpers, names, checks, scope, state)
    finally:
        sys.stdout = kept
    if state["stop"]:
        kind, detail = str(state["stop"]), str(state["detail"])
    elif kind == "passed" and not state["calls"]:
        kind, detail = "judge_error", "the checks never call the solution"
    return {"kind": kind, "detail": detail[:500], "calls": state["calls"]}


def _run(
    helpers: str, names: list[str], checks: str, scope: dict[str, object], state: dict[str, object]
) -> tuple[str, str]:
    try:
        exec(compile(helpers, "helpers.py", "exec"), scope)  # noqa: S102
        for name in names:
            scope[name] = Remote(name, state)
        exec(compile(checks, "checks.py", "exec"), scope)  # noqa: S102
    except SolutionStopped:
        return "crashed", ""
    except Exception as error:  # noqa: BLE001
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if error is state["raised"]:
            return "error", text
        if isinstance(error, AssertionError):
            return "wrong", f"{_find_line(error, checks)} {error}".strip()
        # A value of a wrong type makes a check stumble; without an answer, the check itself is wrong.
        return ("wrong" if state["calls"] else "judge_error"), text
    return "passed", ""


def _find_line(error: BaseException, checks: str) -> str:
    trace, line = error.__traceback__, 0
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "checks.py":
            line = trace.tb_lineno
        trace = trace.tb_next
    lines = checks.splitlines()
    return lines[line - 1].strip() if 0 < line <= len(lines) else ""
