"""A spinner that makes room for a bar: two displays cannot redraw the same line."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

from rich.console import Console
from rich.status import Status
from rich.text import Text

_TURNING: ContextVar[Status | None] = ContextVar("spinner", default=None)
"""The spinner of this task; the threads that it starts see it, too."""


@contextmanager
def show_spinner(console: Console, text: str) -> Generator[None]:
    """Show a spinner within the context."""
    with console.status(Text(text)) as status:
        token = _TURNING.set(status)
        try:
            yield
        finally:
            _TURNING.reset(token)


def hide_spinner() -> None:
    """Take the spinner away, if one is shown, until :func:`return_spinner` is called."""
    if (status := _TURNING.get()) is not None:
        status.stop()


def return_spinner() -> None:
    """Show the spinner again, if there was one."""
    if (status := _TURNING.get()) is not None:
        status.start()
