"""Labels of a person on turns of a run: which turns to ask about, where the labels are kept, what they say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bactrian.analyze.behaviours.catalogue import LIKELY, find_behaviours
from bactrian.analyze.behaviours.own import OwnBehaviour
from bactrian.errors import InputError
from bactrian.files.json_text import parse_json, read_lines
from bactrian.records.finding import Behaviour
from bactrian.records.session import Session
from bactrian.stats.proportion import Proportion
from bactrian.store import RunReader


@dataclass(frozen=True, slots=True)
class Label:
    """A person's answer to whether a turn shows a behaviour."""

    session: str
    turn: int
    behaviour: Behaviour
    confidence: float
    """The detector's, when the person was asked."""
    shown: bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """A turn to ask about."""

    session: Session
    turn: int
    confidence: float

    @property
    def doubt(self) -> float:
        """From 0, sure, to 0.5: the detector could as well toss a coin."""
        return 0.5 - abs(self.confidence - LIKELY)


async def list_candidates(
    store: RunReader, behaviour: Behaviour, own: Sequence[OwnBehaviour], labels: Iterable[Label], most: int
) -> list[Candidate]:
    """Return the turns of a run that the detector is least sure about, and that have no label yet."""
    known = {(one.session, one.turn) for one in labels if one.behaviour == behaviour}
    chosen: list[Candidate] = []
    codes = () if any(one.code == behaviour for one in own) else (behaviour,)
    async for session in store.sessions():
        chosen += [
            Candidate(session, finding.turn, finding.confidence)
            for finding in find_behaviours(session, codes, least=0.0, own=own)
            if finding.behaviour == behaviour and (session.id, finding.turn) not in known
        ]
        chosen = sorted(chosen, key=lambda one: (-one.doubt, one.session.id, one.turn))[:most]
    return chosen


def read_labels(path: Path) -> list[Label]:
    """Read the labels that were kept; none if the file does not exist.

    Raises:
        InputError: a line is not a label.
    """
    if not path.exists():
        return []
    labels: list[Label] = []
    for number, line in read_lines(path):
        try:
            labels.append(Label(**parse_json(line)))
        except (ValueError, TypeError) as error:
            raise InputError(
                "The line is not a label.", where=f"{path}:{number}", next="Remove the line, or the file."
            ) from error
    return labels


def append_label(path: Path, label: Label) -> None:
    """Keep a label."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(label), ensure_ascii=False) + "\n")


def compare_labels(labels: Sequence[Label]) -> tuple[Proportion, Proportion]:
    """Return how many findings the person confirms, and how many of the other doubtful turns show the behaviour."""
    found = [one.shown for one in labels if one.confidence >= LIKELY]
    other = [one.shown for one in labels if one.confidence < LIKELY]
    return Proportion(sum(found), len(found)), Proportion(sum(other), len(other))
