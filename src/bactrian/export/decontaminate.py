"""Finds sessions that quote a benchmark, which must not be trained on."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bactrian.errors import InputError
from bactrian.files.json_text import parse_json
from bactrian.records.session import Session

GRAM = 13
"""Consecutive words that make a quotation."""
_WORD = re.compile(r"[^\W_]+")
_FIELDS = ("prompt", "canonical_solution")
"""Keys of a line of the HumanEval file: the problem and its solution."""


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The word sequences of a benchmark's problems and solutions."""

    name: str
    sha256: str
    """Of the file, unpacked."""
    problems: int
    grams: frozenset[str]

    def is_quoted_in(self, session: Session) -> bool:
        """Return True if a turn of ``session``, or its task, shares 13 consecutive words with the benchmark."""
        texts = (session.task.text, *(turn.text for turn in session.turns))
        return any(gram in self.grams for text in texts for gram in list_grams(text))

    def describe(self) -> dict[str, object]:
        """Return the entry for the manifest."""
        return {"file": self.name, "sha256": self.sha256, "problems": self.problems, "words": GRAM}


def read_benchmark(path: Path) -> Benchmark:
    """Read a file of problems in HumanEval's format: JSON lines with ``prompt`` and ``canonical_solution``.

    Words are compared as letters and digits in lower case, regardless of layout and punctuation.

    Raises:
        InputError: it cannot be read, or has another format.
    """
    where = str(path)
    wanted = "Give the benchmark's file: JSON lines with `prompt` and `canonical_solution`, or that as .gz."
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
    except (OSError, EOFError) as error:
        raise InputError(f"The benchmark cannot be read: {error}.", where=where, next=wanted) from error
    grams: set[str] = set()
    problems = 0
    for number, line in enumerate(content.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            problem = parse_json(line)
            texts = [problem[name] for name in _FIELDS]
            for text in texts:
                grams.update(list_grams(text))
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(
                "This line is not a problem.", where=f"{where}, line {number}", next=wanted
            ) from error
        problems += 1
    if not grams:
        raise InputError(f"No text in the file has {GRAM} consecutive words.", where=where, next=wanted)
    return Benchmark(path.name, hashlib.sha256(content).hexdigest(), problems, frozenset(grams))


def list_grams(text: str) -> Iterator[str]:
    """Yield every sequence of 13 words in ``text``, in lower case."""
    words = _WORD.findall(text.lower())
    for start in range(len(words) - GRAM + 1):
        yield " ".join(words[start : start + GRAM])
