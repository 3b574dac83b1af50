"""Redirects what tools print to standard error, because standard output is for data."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO, cast

_in_tool: ContextVar[bool] = ContextVar("in_tool", default=False)


class _Divided:
    """A stream that writes to standard output, or to standard error in the task or thread of a tool."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _in_tool.get() else self._out, name)


@contextmanager
def divide_output() -> Generator[None]:
    """Separate the output of tools from the program's within the context."""
    out = sys.stdout
    sys.stdout = cast("TextIO", _Divided(out))
    try:
        yield
    finally:
        sys.stdout = out


@contextmanager
def redirect_to_stderr() -> Generator[None]:
    """Redirect output to standard error within the context, including tasks and threads started there."""
    token = _in_tool.set(True)
    try:
        yield
    finally:
        _in_tool.reset(token)
