"""A progress bar for counted work, on standard error."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from bactrian.cli.terminal.console import open_progress

_LINES = 10.0  # Seconds between two plain lines, where no bar can be drawn


class Tell(Protocol):
    """Receives how many are done, and of how many if known."""

    def __call__(self, done: int, total: int | None = None) -> None: ...


class _Left(ProgressColumn):
    """Shows the time left, or the time so far while that is unknown."""

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        if task.total is None or left is None:
            return Text(write_seconds(task.elapsed or 0.0), style="dim")
        return Text(f"{write_seconds(left)} left", style="dim")


@contextmanager
def show_bar(title: str, noun: str, *, quiet: bool = False) -> Generator[Tell]:
    """Show a bar on a terminal, and a line now and then elsewhere; return the function that moves it.

    Work that takes less than the first interval shows no line, so that scripts stay silent.
    """
    console = open_progress()
    if quiet:
        yield ignore_progress
    elif not console.is_terminal or console.is_dumb_terminal:
        last_line = time.monotonic()

        def tell(done: int, total: int | None = None) -> None:
            nonlocal last_line
            if time.monotonic() - last_line >= _LINES:
                last_line = time.monotonic()
                console.print(f"{title}: {_write_share(done, total)} {noun}")

        yield tell
    else:
        console.soft_wrap = False
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None if console.width < 60 else 30),
            TextColumn("{task.fields[share]}"),
            _Left(),
        )
        with Progress(*columns, console=console, transient=True, expand=console.width < 60) as bar:
            task = bar.add_task(title, total=None, share="")

            def move(done: int, total: int | None = None) -> None:
                bar.update(task, completed=done, total=total, share=_write_share(done, total))

            yield move


@contextmanager
def open_parts(runs: Sequence[Path], *, quiet: bool = False) -> Generator[Path]:
    """Provide one run to read with all that the parts ``runs`` contain, and show how it is made."""
    # Few commands read parts, and what merges them takes time to load.
    if len(runs) == 1:
        yield runs[0]
        return
    from bactrian.api.run_parts import join_parts

    with ExitStack() as stack:
        with show_bar("Reading the parts", "sessions", quiet=quiet) as tell:
            whole = stack.enter_context(join_parts(runs, tell))
        yield whole


def ignore_progress(done: int, total: int | None = None) -> None:
    """Show nothing."""


def write_seconds(seconds: float) -> str:
    """Return a time as ``4 s``, ``3:20`` or ``1:03:20``."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _write_share(done: int, total: int | None) -> str:
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"
