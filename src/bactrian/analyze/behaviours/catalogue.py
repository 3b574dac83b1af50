"""All behaviours that can be found, by code."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType

from bactrian.analyze.behaviours.early_done import early_done
from bactrian.analyze.behaviours.empty_turn import empty_turn
from bactrian.analyze.behaviours.flake_reply import flake_reply
from bactrian.analyze.behaviours.infinite_loop import infinite_loop
from bactrian.analyze.behaviours.missing_marker import missing_marker
from bactrian.analyze.behaviours.near_duplicate import near_duplicate
from bactrian.analyze.behaviours.no_code import no_code
from bactrian.analyze.behaviours.reading import Reading, read
from bactrian.analyze.behaviours.refusal import refusal
from bactrian.analyze.behaviours.repeats_instruction import repeats_instruction
from bactrian.analyze.behaviours.role_flip import role_flip
from bactrian.analyze.behaviours.self_answer import self_answer
from bactrian.analyze.behaviours.truncated_turn import truncated_turn
from bactrian.analyze.behaviours.wrong_language import wrong_language
from bactrian.records.finding import Behaviour, Finding
from bactrian.records.kinds import kind_of
from bactrian.records.session import Session

Detector = Callable[[Reading], Iterator[Finding]]
"""Looks for one behaviour in a session."""

DETECTORS: Mapping[Behaviour, Detector] = MappingProxyType(
    {
        "role_flip": role_flip,
        "repeats_instruction": repeats_instruction,
        "flake_reply": flake_reply,
        "infinite_loop": infinite_loop,
        "missing_marker": missing_marker,
        "empty_turn": empty_turn,
        "truncated_turn": truncated_turn,
        "wrong_language": wrong_language,
        "refusal": refusal,
        "near_duplicate": near_duplicate,
        "early_done": early_done,
        "self_answer": self_answer,
        "no_code": no_code,
    }
)
"""The detector of each behaviour."""

_OF_ANYONE: tuple[Behaviour, ...] = ("empty_turn", "truncated_turn", "wrong_language", "refusal")
"""Those that need no inception protocol: all that are looked for in a talk of several agents."""

LIKELY = 0.5
"""Confidence from which on a turn more likely shows a behaviour than not."""


def find(
    session: Session, behaviours: Iterable[Behaviour] | None = None, least: float = LIKELY
) -> tuple[Finding, ...]:
    """What ``session`` shows, in the order of its turns.

    Args:
        session: Finished or not.
        behaviours: Those to look for; all if None.
        least: Confidence that a finding has at least.
    """
    reading = read(session)
    if kind_of(session) == "talk":
        behaviours = [name for name in _OF_ANYONE if behaviours is None or name in behaviours]
    found = (
        finding
        for behaviour in (DETECTORS if behaviours is None else behaviours)
        for finding in DETECTORS[behaviour](reading)
        if finding.confidence >= least
    )
    return tuple(sorted(found, key=lambda finding: finding.turn))
