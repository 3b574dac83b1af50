"""A command at a pseudo-terminal, and the person before it."""

from __future__ import annotations

import os
import pty
import signal
from collections.abc import Sequence
from pathlib import Path

from tests.helpers.command import Command, clean_environment


def at_a_terminal(
    folder: Path, command: Sequence[str], *, keys: Sequence[tuple[bytes, bytes]]
) -> tuple[int, bytes]:
    """Run a command at a pseudo-terminal: wait for each text, then press the keys after it.

    Gives the exit code and all output.
    """
    master, slave = pty.openpty()
    process = Command(command, folder, clean_environment(TERM="xterm", COLUMNS="200"), terminal=slave)
    os.close(slave)
    seen, mark = b"", 0
    try:
        for wait, press in keys:
            while wait not in seen[mark:]:
                seen += os.read(master, 4096)
            mark = len(seen)
            if press == b"\x03":
                process.send_signal(signal.SIGINT)
            else:
                os.write(master, press)
        while True:
            seen += os.read(master, 4096)
    except OSError:  # the other end is closed
        pass
    finally:
        process.finish()
        os.close(master)
    return process.wait(), seen
