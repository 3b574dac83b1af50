"""Runs the command of an MCP server, given as the arguments of this process.

When the server ends, when the program that asked for it ends (even with ``kill -9``), or on SIGTERM, all that the
server has started is killed. This process adopts those whose parents are gone.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

from bactrian.sandbox.supervisor import end_processes


def main() -> NoReturn:
    """Run until the server ends."""
    if sys.platform == "linux":
        libc = ctypes.CDLL(None)
        libc.prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
        libc.prctl(1, signal.SIGTERM, 0, 0, 0)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    server = os.posix_spawnp(sys.argv[1], sys.argv[1:], os.environ)
    with suppress(KeyboardInterrupt):
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
    end_processes(server)
    sys.exit()
