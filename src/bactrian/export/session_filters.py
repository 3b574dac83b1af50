"""Which sessions an export has: without those that quote a benchmark, in splits without overlap."""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, floor, log
from pathlib import Path

from bactrian.errors import InputError
from bactrian.files.json_text import parse_json
from bactrian.records.session import DUPLICATE, Session, find_kind

# Finds sessions that quote a benchmark, which must not be trained on.


# Consecutive words that make a quotation.
GRAM = 13
_WORD = re.compile(r"[^\W_]+")
# Keys of a line of the HumanEval file: the problem and its solution.
_FIELDS = ("prompt", "canonical_solution")


@dataclass(frozen=True, slots=True)
class Benchmark:
    """The word sequences of a benchmark's problems and solutions."""

    name: str
    # Of the file, unpacked.
    sha256: str
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
            for text in [problem[name] for name in _FIELDS]:
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


Predicate = Callable[[Session], bool]


@dataclass(frozen=True, slots=True)
class Filters:
    """Conditions on the sessions to export."""

    # Codes of endings; empty for all.
    endings: frozenset[str] = frozenset()
    # Predicates by name; a session that matches one is left out and counted under the name.
    reject: Mapping[str, Predicate] = field(default_factory=dict[str, Predicate])
    # Minimum rounds (an instruction and its solution) of a session.
    min_rounds: int = 0
    # True to include unfinished sessions.
    unfinished: bool = False
    # True to keep only the first of the samples that are the same for a reader of the format.
    dedup: bool = False
    # Predicates by name; only sessions that match all of them are exported.
    require: Mapping[str, Predicate] = field(default_factory=dict[str, Predicate])
    # Sessions that quote this are left out.
    benchmark: Benchmark | None = None

    def describe(self) -> dict[str, object]:
        """Return the active filters, for the manifest."""
        made: dict[str, object] = {
            "only_endings": sorted(self.endings),
            "rejected": sorted(self.reject),
            "required": sorted(self.require),
            "min_rounds": self.min_rounds,
            "unfinished": self.unfinished,
            "dedup": self.dedup,
            "decontaminated": self.benchmark.describe() if self.benchmark else None,
        }
        return {name: value for name, value in made.items() if value}


class SessionFilter:
    """Applies filters to the sessions of a run, in sequence."""

    def __init__(self, filters: Filters) -> None:
        self._filters = filters

    def find_reason(self, session: Session) -> str | None:
        """Return the reason to leave ``session`` out; None to export it."""
        filters = self._filters
        code = session.ending.code if session.ending else "none"
        for name, predicate in filters.require.items():
            if not predicate(session):
                return f"not {name}"
        if session.ending is None and not filters.unfinished:
            return "unfinished"
        if filters.endings and code not in filters.endings:
            return f"ending {code}"
        if len(session.turns) // 2 < filters.min_rounds:
            return "too few rounds"
        if filters.benchmark and filters.benchmark.is_quoted_in(session):
            return f"quotes {filters.benchmark.name}"
        return next((name for name, predicate in filters.reject.items() if predicate(session)), None)


# Splits of a data set without overlap.


TRAIN = "train"


@dataclass(frozen=True, slots=True)
class Split:
    """Fractions of a data set by name; the rest is ``train``."""

    shares: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def names(self) -> tuple[str, ...]:
        """All parts, ``train`` first."""
        return (TRAIN, *self.shares)

    def find_part(self, session: Session) -> str:
        """Return the part of ``session``.

        All sessions of a role pair belong to one part, regardless of run and language, so that a model is never
        tested on a pair that it was trained on. Questions are grouped by everything but their own text.
        """
        if not self.shares:
            return TRAIN
        position = locate_group(name_group(session))
        for name, share in self.shares.items():
            if position < share:
                return name
            position -= share
        return TRAIN

    def check(self, rows: Mapping[str, int], places: Collection[float]) -> None:
        """Refuse a part without rows. ``places`` are those of its groups (:func:`locate_group`).

        Raises:
            InputError: a part is empty.
        """
        empty = next((name for name in self.names if not rows.get(name)), None)
        if empty is None:
            return
        hint = "Export without a split, or more sessions."
        enough = floor(min(places) * 1000 + 1) / 1000
        if len(self.shares) == 1 and empty != TRAIN and len(places) > 1 and enough < max(places):
            hint = f"{empty}={enough:g} is enough for one pair. {hint}"
        pairs = f"{len(places):,} role pair" + ("" if len(places) == 1 else "s")
        likely = ""
        if empty in self.shares:
            # Of so many pairs, one falls into a part of this size with a probability of 95 %.
            needed = ceil(log(0.05) / log(1 - self.shares[empty]))
            likely = f"; {needed:,} pairs make a part of that size likely"
        raise InputError(
            f"The part {empty!r} would be empty: the sessions are of {pairs}, and none falls into it{likely}.",
            where="split",
            next=hint,
        )


def read_split(texts: list[str]) -> Split:
    """Read ``validation=0.05`` and the like.

    Raises:
        InputError: a share is not a number between 0 and 1, or nothing is left for training.
    """
    shares: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            share = float(number)
        except ValueError:
            share = -1.0
        if not name.isidentifier() or name in (TRAIN, *shares) or not 0 < share < 1:
            raise InputError(
                f"{text!r} is not a split.",
                option="split",
                next="Write NAME=SHARE: validation=0.05",
            )
        shares[name] = share
    if sum(shares.values()) >= 1:
        raise InputError("The shares leave nothing for training.", option="split", next="Make them smaller.")
    return Split(shares)


def name_group(session: Session) -> str:
    """Return what must not be divided between parts: a name that all sessions of a role pair share."""
    if find_kind(session) == "answer":
        values = [
            value
            for key, value in session.values.items()
            if key != DUPLICATE and value != session.task.original
        ]
        return "\0".join(values or (session.task.original,)).casefold()
    return f"{session.assistant.name}\0{session.user.name}".casefold()


def locate_group(group: str) -> float:
    """Return the place of a group between 0 and 1, the same on every machine."""
    return int.from_bytes(hashlib.sha256(group.encode()).digest()[:8], "big") / 2**64
