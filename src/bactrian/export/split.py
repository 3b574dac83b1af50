"""Splits of a data set without overlap."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import ceil, floor, log

from bactrian.errors import InputError
from bactrian.records.session import Session, find_kind

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
        place = locate_group(name_group(session))
        for name, share in self.shares.items():
            if place < share:
                return name
            place -= share
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
            likely = f"; {_count_needed(self.shares[empty]):,} pairs make a part of that size likely"
        raise InputError(
            f"The part {empty!r} would be empty: the sessions are of {pairs}, and none falls into it{likely}.",
            where="split",
            next=hint,
        )


def _count_needed(share: float) -> int:
    """Return the number of pairs of which one falls into a part of this size with a probability of 95 %."""
    return ceil(log(0.05) / log(1 - share))


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
                where="--split",
                next="Write NAME=SHARE: validation=0.05",
            )
        shares[name] = share
    if sum(shares.values()) >= 1:
        raise InputError("The shares leave nothing for training.", where="--split", next="Make them smaller.")
    return Split(shares)


def name_group(session: Session) -> str:
    """Return what must not be divided between parts: a name that all sessions of a role pair share."""
    if find_kind(session) == "answer":
        values = [value for value in session.values.values() if value != session.task.original]
        return "\0".join(values or (session.task.original,)).casefold()
    return f"{session.assistant.name}\0{session.user.name}".casefold()


def locate_group(group: str) -> float:
    """Return the place of a group between 0 and 1, the same on every machine."""
    return int.from_bytes(hashlib.sha256(group.encode()).digest()[:8], "big") / 2**64
