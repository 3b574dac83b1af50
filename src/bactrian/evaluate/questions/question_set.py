"""Reads sets of questions: those of this package, and files of the same form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from bactrian.errors import InputError
from bactrian.files.json_text import parse_json, read_lines
from bactrian.files.toml import suggest_name
from bactrian.records.text import clean_text

SETS = ("ai-society", "code", "math", "science")
"""The sets of table 2, with our own questions: 20 each, and 60 for science."""


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """Questions with a name."""

    name: str
    questions: tuple[str, ...]

    @property
    def has_one_answer(self) -> bool:
        """True if the judge is to solve each problem first."""
        return self.name == "math"


def load_questions(name: str) -> QuestionSet:
    """Return a set by its name, or from a file: JSON lines with ``text``, or plain lines.

    Raises:
        InputError: there is no such set, or the file cannot be read or contains no question.
    """
    if name in SETS:
        text = files("bactrian.evaluate.questions").joinpath(f"{name}.jsonl").read_text("utf-8")
        return QuestionSet(name, tuple(_parse(enumerate(text.splitlines(), start=1), name)))
    path = Path(name).expanduser()
    if not path.is_file():
        raise InputError(
            f"There is no set of questions {name!r}.{suggest_name(name, SETS)}",
            where="--questions",
            next=f"One of {', '.join(SETS)}, or a file of JSON lines with `text`.",
        )
    questions = tuple(dict.fromkeys(_parse(read_lines(path), name)))
    if not questions:
        raise InputError("The file contains no question.", where=name, next="Write one a line.")
    return QuestionSet(path.stem, questions)


def _parse(lines: Iterable[tuple[int, str]], where: str) -> Iterable[str]:
    for number, line in lines:
        text: str = line.strip()
        if line.lstrip().startswith("{"):
            try:
                row = cast("dict[str, Any]", parse_json(line))
            except ValueError as error:
                raise InputError(
                    "This line is not JSON.", where=f"{where}:{number}", next="Correct it."
                ) from error
            given = row.get("text")
            text = given if isinstance(given, str) else ""
            if not text.strip():
                raise InputError(
                    "This line has no `text`.", where=f"{where}:{number}", next="Add the question."
                )
        if text.strip():
            yield clean_text(text.strip())
