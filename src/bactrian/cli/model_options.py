"""Model options from flags and the environment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from bactrian.api.models import build_model_options
from bactrian.cli.terminal.console import open_progress, say
from bactrian.errors import InputError
from bactrian.models.http.address import read_address
from bactrian.models.registry import ModelOptions

_WARN_EVERY = 60.0
"""Seconds between two warnings about transient faults."""


def read_model_options(
    base_url: str | None,
    *,
    window: int | None = None,
    timeout: float = 600.0,
    longest_wait: float = 600.0,
) -> ModelOptions:
    """Return the options given by flags, with defaults from the environment."""
    return show_model_progress(
        build_model_options(base_url, window=window, timeout=timeout, max_wait=longest_wait)
    )


def check_base_url(base_url: str | None, names: Iterable[str]) -> None:
    """Refuse an address on the command line that none of the models takes.

    Raises:
        InputError: no model is ``openai:NAME``.
    """
    names = list(names)
    if base_url is None or base_url == os.environ.get("BACTRIAN_BASE_URL"):
        return
    if any(name.startswith("openai:") for name in names):
        return
    other = next((name for name in names if ":" in name and "@" not in name), "openai:NAME")
    raise InputError(
        "This is the address of openai:NAME, and no agent has such a model.",
        where="--base-url",
        next=f"Write the address behind the name: --model {other}@{read_address(base_url)}",
    )


def show_model_progress(options: ModelOptions) -> ModelOptions:
    """Return ``options`` with warnings and a progress bar of downloads on standard error."""
    return replace(options, progress=_fetching(), notice=_now_and_then(), report=_say)


def _say(text: str) -> None:
    say(f"bactrian: {text}")


def _warn(text: str) -> None:
    say(f"bactrian: warning: {text}")


def _now_and_then() -> Callable[[str], None]:
    """Return a function that warns at most once a minute, as many conversations may meet the same fault."""
    last = -_WARN_EVERY

    def tell(text: str) -> None:
        nonlocal last
        if time.monotonic() - last >= _WARN_EVERY:
            last = time.monotonic()
            _warn(text)

    return tell


def _fetching() -> Callable[[int, int], None]:
    """Return a function that shows a progress bar on standard error when weights are fetched."""
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
