"""Splits of a data set without overlap."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

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
        digest = hashlib.sha256("\0".join(_group(session)).casefold().encode()).digest()
        place = int.from_bytes(digest[:8], "big") / 2**64
        for name, share in self.shares.items():
            if place < share:
                return name
            place -= share
        return TRAIN


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


def _group(session: Session) -> tuple[str, ...]:
    if find_kind(session) == "answer":
        values = [value for value in session.values.values() if value != session.task.original]
        return tuple(values) or (session.task.original,)
    return (session.assistant.name, session.user.name)
