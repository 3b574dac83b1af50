"""The end of the process, which cancelled calls in threads do not hold up."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import NoReturn

CALL_THREAD = "bactrian-call"
"""How the names of the threads for blocking calls begin."""
_WRITER_THREAD = "bactrian-store"
"""The thread that ``store/write.py`` names so. Not imported: the store would be loaded at every start."""
_LAST_WRITE = 60.0
"""Seconds that a slow disk, or another process that writes the same run, may hold up the last replies."""
_LAST_WAIT = 1.0
"""Seconds that cancelled calls have to release what they use."""


def end_process(code: int) -> NoReturn:
    """End the process with ``code``; without Python's usual ending if cancelled calls would hold that up.

    First, what a run still has to write is written; a signal ends the process at once here, and loses it.
    """
    with suppress(KeyboardInterrupt):
        writers = _find_threads(_WRITER_THREAD)
        if _outlive(writers, _LAST_WAIT):
            from bactrian.cli.terminal.console import say

            say("\nWriting to the run still; press Ctrl-C to end without it.")
            _outlive(writers, _LAST_WRITE)
    calls = _find_threads(CALL_THREAD)
    with suppress(KeyboardInterrupt):
        _outlive(calls, _LAST_WAIT)
    if any(thread.is_alive() for thread in calls):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _find_threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(name)]


def _outlive(threads: Sequence[threading.Thread], seconds: float) -> bool:
    """Wait for ``threads`` to end; return whether one of them still runs after ``seconds``."""
    last = monotonic() + seconds
    for thread in threads:
        thread.join(max(0, last - monotonic()))
    return any(thread.is_alive() for thread in threads)
