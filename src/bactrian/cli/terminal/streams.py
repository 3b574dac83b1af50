"""Standard streams with clear errors: closed streams, full disks, closed pipes, characters that cannot be encoded."""

from __future__ import annotations

import codecs
import errno
import io
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import TextIO

from bactrian.errors import BactrianError

READER_LEFT = 141
"""Exit code after a closed pipe (``| head``): 128 plus the number of SIGPIPE, as in shells."""


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
    _open_all()
    codecs.register_error(_ESCAPED, _escape)
    out, error = _Out(1), _Error(2)
    if _is_plain(sys.stdout) and _is_plain(sys.stderr):
        sys.stdout, sys.stderr = _text(out, sys.stdout), _text(error, sys.stderr)
    try:
        yield
        sys.stdout.flush()
    except SystemExit:
        sys.stdout.flush()
        raise
    finally:
        out.over = True


_ESCAPED = "bactrian-escaped"


def _escape(error: UnicodeError) -> tuple[str, int]:
    """Write characters that the encoding lacks as JSON escapes, so that JSON output stays valid."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    codes = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{code}" for code in codes), error.end


def _open_all() -> None:
    """Open closed streams on the null device: otherwise the next file opened would get their descriptor."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or open(0, closefd=False)  # noqa: SIM115 (it lives as long as the process)
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


def _is_plain(stream: object) -> bool:
    """Return False if the stream was replaced, as tests do."""
    return isinstance(stream, io.TextIOWrapper)


def _text(raw: io.RawIOBase, like: TextIO) -> TextIO:
    buffer = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffer, like.encoding, _ESCAPED, line_buffering=bool(like.line_buffering))


class _Out(io.FileIO):
    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)
        self.over = False
        """True when further errors are ignored."""
        self._is_terminal = self.isatty()

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        try:
            return super().write(data)
        except BrokenPipeError as error:
            if self.over:
                return len(data)
            raise ReaderLeft("The reader of the output has left.") from error
        except OSError as error:
            if self.over or (self._is_terminal and error.errno == errno.EIO):  # The terminal was closed.
                return len(data)
            raise BactrianError(
                f"The output cannot be written: {error.strerror}.",
                where="standard output",
                next="Free some space, or write it elsewhere, and run the same command.",
            ) from error


class _Error(io.FileIO):
    def __init__(self, number: int) -> None:
        super().__init__(number, "w", closefd=False)

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        with suppress(OSError):
            return super().write(data)
        return len(data)
