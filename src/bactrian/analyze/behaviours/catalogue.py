"""All built-in behaviours by code."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from types import MappingProxyType

from bactrian.analyze.behaviours.cooperation import PAPER, detect_failure
from bactrian.analyze.behaviours.early_done import detect_early_done
from bactrian.analyze.behaviours.empty_turn import detect_empty_turns
from bactrian.analyze.behaviours.missing_marker import detect_missing_markers
from bactrian.analyze.behaviours.near_duplicate import detect_near_duplicates
from bactrian.analyze.behaviours.no_code import detect_missing_code
from bactrian.analyze.behaviours.own import OwnBehaviour, find_installed
from bactrian.analyze.behaviours.reading import SessionReading, read_session
from bactrian.analyze.behaviours.refusal import detect_refusals
from bactrian.analyze.behaviours.self_answer import detect_self_answers
from bactrian.analyze.behaviours.truncated_turn import detect_truncated_turns
from bactrian.analyze.behaviours.wrong_language import detect_wrong_language
from bactrian.records.finding import Behaviour, Finding
from bactrian.records.session import Session, find_kind

Detector = Callable[[SessionReading], Iterator[Finding]]
"""Detects one behaviour in a session."""

DETECTORS: Mapping[Behaviour, Detector] = MappingProxyType(
    {
        **{behaviour: detect_failure(behaviour) for behaviour in PAPER},
        "missing_marker": detect_missing_markers,
        "empty_turn": detect_empty_turns,
        "truncated_turn": detect_truncated_turns,
        "wrong_language": detect_wrong_language,
        "refusal": detect_refusals,
        "near_duplicate": detect_near_duplicates,
        "early_done": detect_early_done,
        "self_answer": detect_self_answers,
        "no_code": detect_missing_code,
    }
)
"""The detector of each behaviour."""

_OF_ANYONE: tuple[Behaviour, ...] = ("empty_turn", "truncated_turn", "wrong_language", "refusal")
"""Behaviours that do not depend on the inception protocol: the only ones detected in group chats."""

LIKELY = 0.5
"""Confidence from which a turn is more likely to show a behaviour than not."""


@cache
def load_definitions() -> Mapping[Behaviour, str]:
    """Return the definition of every built-in behaviour, in words."""
    text = resources.files("bactrian.analyze.behaviours").joinpath("definitions.toml").read_text("utf-8")
    written: dict[str, str] = tomllib.loads(text)
    return MappingProxyType(
        {
            code: written.get(code) or sys.modules[detector.__module__].__doc__ or code
            for code, detector in DETECTORS.items()
        }
    )


def find_behaviours(
    session: Session,
    behaviours: Iterable[Behaviour] | None = None,
    least: float = LIKELY,
    own: Sequence[OwnBehaviour] | None = None,
    *,
    explain: bool = True,
) -> tuple[Finding, ...]:
    """Return the findings in ``session``, in the order of its turns.

    Args:
        session: Finished or not.
        behaviours: Codes to detect; all if None.
        least: Minimum confidence of a finding.
        own: User-defined behaviours to detect as well; those of installed packages if None.
        explain: False if findings are only counted: those of learned detectors then have no quote and no reason.
    """
    reading = replace(read_session(session), least=least, explains=explain)
    if find_kind(session) == "talk":
        behaviours = [name for name in _OF_ANYONE if behaviours is None or name in behaviours]
    own = find_installed() if own is None else own
    detectors = [DETECTORS[behaviour] for behaviour in (DETECTORS if behaviours is None else behaviours)]
    found = (
        finding
        for detect in (*detectors, *(one.detect for one in own))
        for finding in detect(reading)
        if finding.confidence >= least
    )
    return tuple(sorted(found, key=lambda finding: finding.turn))
