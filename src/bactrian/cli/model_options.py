"""How to reach models, read from flags and the environment."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from bactrian.cli.terminal.console import to_printable
from bactrian.models.registry import ModelOptions

_WARN_EVERY = 60.0
"""Seconds between two warnings of faults that are waited out."""


def read_model_options(
    base_url: str | None,
    *,
    window: int | None = None,
    timeout: float = 600.0,
    longest_wait: float = 600.0,
) -> ModelOptions:
    """What the flags say, and what they leave open from ``OPENAI_BASE_URL``. Keys are looked up where they are used."""
    from bactrian.play.recorded import Recorded

    return ModelOptions(
        base_url=base_url or os.environ.get("OPENAI_BASE_URL") or None,
        window=window,
        timeout=timeout,
        max_wait=longest_wait,
        progress=_fetching(),
        notice=_now_and_then(),
        report=_say,
        recorded=Recorded,
    )


def _say(text: str) -> None:
    print(to_printable(f"bactrian: {text}"), file=sys.stderr)


def _warn(text: str) -> None:
    print(to_printable(f"bactrian: warning: {text}"), file=sys.stderr)


def _now_and_then() -> Callable[[str], None]:
    """Warns on standard error, at most once a minute: a thousand conversations meet the same fault."""
    last = -_WARN_EVERY

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _WARN_EVERY:
            last = time.monotonic()
            _warn(text)

    return tell


def _fetching() -> Callable[[int, int], None]:
    """A progress bar on standard error that appears when weights are fetched."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

    from bactrian.cli.terminal.console import open_progress

    bar = Progress(TextColumn("Fetching the model"), BarColumn(), DownloadColumn(), console=open_progress())
    shown: list[TaskID] = []

    def tell(done: int, total: int) -> None:
        if not shown:
            bar.start()
            shown.append(bar.add_task("weights", total=total))
        bar.update(shown[0], completed=done)
        if done >= total:
            bar.stop()

    return tell
