"""The end of the process, which cancelled calls in threads do not hold up."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from time import monotonic
from typing import NoReturn

CALL_THREAD = "bactrian-call"
"""How the names of the threads for blocking calls begin."""
_LAST_WAIT = 1.0
"""Seconds that cancelled calls have to release what they use."""


def end_process(code: int) -> NoReturn:
    """End the process with ``code``; without Python's usual ending if cancelled calls would hold that up."""
    calls = [thread for thread in threading.enumerate() if thread.name.startswith(CALL_THREAD)]
    last = monotonic() + _LAST_WAIT
    with suppress(KeyboardInterrupt):
        for thread in calls:
            thread.join(max(0, last - monotonic()))
    if any(thread.is_alive() for thread in calls):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
