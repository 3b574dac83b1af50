"""What tools print: it goes to standard error, because standard output is for data."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TextIO, cast

_in_tool: ContextVar[bool] = ContextVar("in_tool", default=False)


class _Divided:
    """Standard output for the program, standard error for what runs as a tool, in its task or its thread."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _in_tool.get() else self._out, name)


@contextmanager
def divide_output() -> Generator[None]:
    """Keep what tools print apart as long as the context lasts."""
    out = sys.stdout
    sys.stdout = cast("TextIO", _Divided(out))
    try:
        yield
    finally:
        sys.stdout = out


@contextmanager
def redirect_to_stderr() -> Generator[None]:
    """Whatever runs in this context, and whatever it starts, is a tool."""
    token = _in_tool.set(True)
    try:
        yield
    finally:
        _in_tool.reset(token)
