"""Messages of a worker to the process that started it: JSON lines on standard output, which has nothing else."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

Emit = Callable[..., None]
"""Sends an event with its values."""


def open_events() -> Emit:
    """Return the function that sends events. What libraries print goes to standard error from now on."""
    if os.environ.get("RANK", "0") != "0":  # of several GPUs, one speaks
        os.dup2(2, 1)
        return _stay_silent
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.stdout = sys.stderr

    def emit(event: str, **values: Any) -> None:
        out.write(json.dumps({"event": event, **values}) + "\n")
        out.flush()

    return emit


def _stay_silent(_event: str, **_values: Any) -> None:
    """Send nothing."""


def end_with_parent() -> None:
    """End this process when its standard input ends, which happens also if the parent is killed."""

    def wait() -> None:
        while os.read(0, 4096):
            pass
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()
