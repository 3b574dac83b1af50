"""Parts of a data set that have nothing in common."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from bactrian.errors import InputError
from bactrian.records.session import Session, find_kind

TRAIN = "train"


@dataclass(frozen=True, slots=True)
class Split:
    """Shares of a data set by their names; what is left is ``train``."""

    shares: Mapping[str, float] = field(default_factory=dict[str, float])

    @property
    def names(self) -> tuple[str, ...]:
        """All parts, ``train`` first."""
        return (TRAIN, *self.shares)

    def find_part(self, session: Session) -> str:
        """The part that ``session`` belongs to.

        All sessions of a pair of roles fall into one part, in whatever run or language, so that a model is never
        tested on a pair that it was trained on. Questions fall together by everything but their own text.
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
        InputError: a share is no number between 0 and 1, or they leave nothing to train on.
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
                f"{text!r} is no part of a data set.",
                where="--split",
                next="Write NAME=SHARE: validation=0.05",
            )
        shares[name] = share
    if sum(shares.values()) >= 1:
        raise InputError("The shares leave nothing to train on.", where="--split", next="Make them smaller.")
    return Split(shares)


def _group(session: Session) -> tuple[str, ...]:
    if find_kind(session) == "answer":
        values = [value for value in session.values.values() if value != session.task.original]
        return tuple(values) or (session.task.original,)
    return (session.assistant.name, session.user.name)
