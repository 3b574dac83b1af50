"""Writes JSON lines, or one JSON array."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

Write = Callable[[object], object]


@contextmanager
def open_json_lines(path: Path) -> Generator[Write]:
    """Open ``path`` for objects, one a line."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        yield lambda value: file.write(f"{to_line(value)}\n")


@contextmanager
def open_json_array(path: Path) -> Generator[Write]:
    """Open ``path`` for one array of objects, each on a line of its own."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        before = "[\n"

        def write(value: object) -> None:
            nonlocal before
            file.write(before + to_line(value))
            before = ",\n"

        yield write
        file.write("[]\n" if before == "[\n" else "\n]\n")


def to_line(value: object) -> str:
    """Return ``value`` as one line of JSON, also for readers that treat U+2028 as a line end."""
    text = json.dumps(value, ensure_ascii=False)
    for character, escape in (("\u2028", "\\u2028"), ("\u2029", "\\u2029"), ("\x85", "\\u0085")):
        if character in text:
            text = text.replace(character, escape)
    return text
