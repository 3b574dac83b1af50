"""Reading of JSON and JSON lines that somebody else wrote: neither depth nor length can harm."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bactrian.errors import InputError, explain_os_errors

# Most bytes of a line. A device such as /dev/zero never ends its first one.
LONGEST_LINE = 64 * 1024 * 1024


def parse_json(text: str | bytes) -> Any:
    """Parse JSON.

    Raises:
        ValueError: it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def read_lines(path: Path) -> Iterator[tuple[int, str]]:
    r"""Yield the lines of a text file that are not blank, with their numbers, one in memory at a time.

    Only ``\n`` ends a line: strings of JSON may contain U+2028 and other characters at which ``str.splitlines`` splits.

    Raises:
        InputError: the file cannot be read, is not UTF-8, or has a line of more than 64 MiB.
    """
    number = 0
    try:
        with explain_os_errors("The file cannot be read", path, "Check the path."), path.open("rb") as file:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise InputError(
                        f"The line has more than {LONGEST_LINE:,} bytes.",
                        where=f"{path}:{number}",
                        next="Check that this is the file you mean.",
                    )
                if text := line.decode("utf-8-sig" if number == 1 else "utf-8").strip():
                    yield number, text
    except UnicodeDecodeError as error:
        raise InputError(
            "The line is not text in UTF-8.",
            where=f"{path}:{number}",
            next="Check that this is the file you mean.",
        ) from error
