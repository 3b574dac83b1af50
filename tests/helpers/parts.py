"""Functions that processes of :mod:`bactrian.analyze.aggregate` call."""

from __future__ import annotations

import multiprocessing
import os
import time


def tell_process(_: int) -> int:
    """Return the number of this process."""
    return os.getpid()


def work_and_tell_process(part: int) -> tuple[int, int]:
    """Return ``part`` and the number of this process; the first process works for a while before."""
    end = time.process_time() + (0.1 if multiprocessing.parent_process() is None else 0)
    while time.process_time() < end:
        pass
    return part, os.getpid()
