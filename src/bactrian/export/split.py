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
        place = locate_group(name_group(session))
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


def name_group(session: Session) -> str:
    """Return what must not be divided between parts: a name that all sessions of a role pair share."""
    if find_kind(session) == "answer":
        values = [value for value in session.values.values() if value != session.task.original]
        return "\0".join(values or (session.task.original,)).casefold()
    return f"{session.assistant.name}\0{session.user.name}".casefold()


def locate_group(group: str) -> float:
    """Return the place of a group between 0 and 1, the same on every machine."""
    return int.from_bytes(hashlib.sha256(group.encode()).digest()[:8], "big") / 2**64
