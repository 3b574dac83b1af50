"""Warns if something blocks the event loop, and with it every conversation."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_LOOKS = 4
"""Consecutive checks without progress before a warning. A stopped process makes no checks either."""
_QUIET = 240
"""Checks between two warnings: one minute."""


@contextmanager
def watch_event_loop(tell: Callable[[str], object], *, patience: float = 1.0) -> Generator[None]:
    """Call ``tell`` with the cause when the running loop is blocked for ``patience`` seconds; at most once a minute."""
    loop = asyncio.get_running_loop()
    interval = patience / _LOOKS
    moved = threading.Event()
    over = threading.Event()
    thread = threading.get_ident()

    def beat() -> None:
        nonlocal timer
        moved.set()
        timer = loop.call_later(interval / 2, beat)

    def watch() -> None:
        still = quiet = 0
        while not over.wait(interval):
            quiet -= 1
            still = 0 if moved.is_set() else still + 1
            moved.clear()
            if still == _LOOKS and quiet <= 0 and not _is_importing(thread):
                quiet = _QUIET
                tell(f"Nothing made progress for {patience:g} s: {_where(thread)} blocks the event loop.")

    timer = loop.call_soon(beat)
    watcher = threading.Thread(target=watch, name="bactrian-watchdog", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        timer.cancel()
        over.set()
        watcher.join()


def _where(thread: int) -> str:
    """Return the thread's innermost call, and the function of this program that led to it."""
    frame = innermost = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage] (there is no other way)
    while frame is not None and not _is_ours(frame):
        frame = frame.f_back
    if innermost is None:
        return "something"
    place = _place(innermost)
    return place if frame is None or frame is innermost else f"{place}, called from {_place(frame)},"


def _is_importing(thread: int) -> bool:
    """Return True if the thread imports a module, which may take seconds, but only once."""
    frame = sys._current_frames().get(thread)  # pyright: ignore[reportPrivateUsage] (there is no other way)
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


def _is_ours(frame: FrameType) -> bool:
    return frame.f_globals.get("__name__", "").partition(".")[0] == "bactrian"


def _place(frame: FrameType) -> str:
    return f"{frame.f_code.co_name} ({Path(frame.f_code.co_filename).name}:{frame.f_lineno})"
