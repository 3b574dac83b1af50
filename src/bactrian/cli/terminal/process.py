"""The process of a command: standard streams with clear errors, and an end that cancelled calls do not hold up."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic
from typing import NoReturn, TextIO

from bactrian.errors import BactrianError

# Exit code after a closed pipe (`| head`): 128 plus the number of SIGPIPE, as in shells; not 0, because the work is
# not done.
READER_LEFT = 141
_ESCAPED = "bactrian-escaped"
CALL_THREAD = "bactrian-call"  # How the names of the threads for blocking calls begin
# The thread that `store/write.py` names so. Not imported: the store would be loaded at every start.
_WRITER_THREAD = "bactrian-store"
# Seconds that a slow disk, or another process that writes the same run, may hold up the last replies.
_LAST_WRITE = 60.0
_LAST_WAIT = 1.0  # Seconds that cancelled calls have to release what they use


class ReaderLeft(BactrianError):
    """The reader of standard output has closed the pipe. No message is printed."""

    exit_code = READER_LEFT


@contextmanager
def guard_streams() -> Generator[None]:
    """Open closed streams, and flush all output at the end. Errors of standard error are ignored.

    Raises:
        ReaderLeft: the reader of standard output has left.
        BactrianError: standard output cannot be written.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        # A stream that is closed from the start was closed on purpose, and is no fault.
        except OSError:  # Otherwise the next file opened would get its number, and our output.
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 (it lives as long as the process)
    codecs.register_error(_ESCAPED, _escape)
    # Standard output is for our data alone: what tools and libraries write to it past Python goes to standard error.
    ours = os.dup(1)
    os.dup2(2, 1)
    out = _Stream(ours)
    sys.stdout = _replace(sys.stdout, out)
    sys.stderr = _replace(sys.stderr, _Stream(2))
    try:
        yield
        sys.stdout.flush()
    except SystemExit:
        sys.stdout.flush()
        raise
    finally:
        out.over = True
        sys.stdout.flush()
        sys.stdout = sys.stderr  # as for tools: modules of the user may write when the process exits
        os.close(ours)


def _replace(stream: TextIO | None, raw: io.RawIOBase) -> TextIO:
    """Return a stream like ``stream`` that writes to ``raw``; ``stream`` itself where a test has replaced it."""
    if stream is not None and not isinstance(stream, io.TextIOWrapper):
        return stream
    encoding, by_line = (stream.encoding, stream.line_buffering) if stream else ("utf-8", False)
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding, _ESCAPED, line_buffering=by_line)


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Write characters that the encoding lacks as JSON escapes, so that JSON output stays valid."""
    # In prose, too: what is printed stays the data that it was.
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    codes = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{code}" for code in codes), error.end


class _Stream(io.FileIO):
    over = False  # True when further errors are ignored

    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self._is_terminal = self.isatty()  # Asked now: a terminal that was closed says that it is none.

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as error:
            is_closed_terminal = error.errno == errno.EIO and self._is_terminal
            if self.over or self.fileno() == 2 or is_closed_terminal:
                return len(data)
            if isinstance(error, BrokenPipeError):
                raise ReaderLeft("The reader of the output has left.") from error
            raise BactrianError(
                f"The output cannot be written: {error.strerror}.",
                where="standard output",
                next="Free some space, or write it elsewhere, and run the same command.",
            ) from error


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
