"""Functions that processes of :mod:`bactrian.analyze.processes` call."""

from __future__ import annotations

import os
import time


def tell_process(_: int) -> int:
    """Return the number of this process, after a moment in which others take parts."""
    time.sleep(0.05)
    return os.getpid()
