"""A sample of turns for a judge, found and not found, and what its answers say of the whole run.

Findings alone show how many of them are wrong, but not what the detector misses. A random sample of the other turns
does, so that the corrected rate is right even where the detector is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from heapq import nsmallest
from typing import Any

from bactrian.analyze.behaviours.cooperation import PAPER
from bactrian.analyze.judging.confirm import Key, make_key
from bactrian.records.finding import Behaviour, Confirmation, Finding
from bactrian.records.session import find_kind
from bactrian.stats.prevalence import Stratum, estimate_prevalence
from bactrian.store import RunReader

_OF_ASSISTANT: tuple[Behaviour, ...] = ("repeats_instruction", "flake_reply")
"""Behaviours that only the AI assistant can show."""


@dataclass(frozen=True, slots=True)
class JudgeSample:
    """Turns to ask about, for one behaviour."""

    found: tuple[Finding, ...]
    other: tuple[Finding, ...]
    """Turns without a finding, as findings with confidence 0."""
    found_turns: int
    """Turns of the run with a finding."""
    other_turns: int


async def sample_turns(
    store: RunReader, findings: Iterable[Finding], size: int
) -> dict[Behaviour, JudgeSample]:
    """Choose at most ``size`` turns with a finding and ``size`` without, for each of the paper's behaviours.

    The choice is by hash, so that a resumed analysis asks about the same turns.
    """
    found = {make_key(one): one for one in findings if one.behaviour in PAPER}
    other: dict[Behaviour, list[Finding]] = {behaviour: [] for behaviour in PAPER}
    counts = dict.fromkeys(PAPER, 0)
    async for session in store.sessions():
        if find_kind(session) == "talk":
            continue
        for turn in session.turns:
            for behaviour in PAPER:
                if behaviour in _OF_ASSISTANT and turn.speaker != "assistant":
                    continue
                if (session.id, turn.number, behaviour) not in found:
                    counts[behaviour] += 1
                    other[behaviour].append(Finding(session.id, turn.number, behaviour, 0.0, ""))
        for behaviour, turns in other.items():
            if len(turns) > 2 * size:
                other[behaviour] = nsmallest(size, turns, key=_hash)
    sample: dict[Behaviour, JudgeSample] = {}
    for behaviour in PAPER:
        mine = [one for one in found.values() if one.behaviour == behaviour]
        sample[behaviour] = JudgeSample(
            tuple(nsmallest(size, mine, key=_hash)),
            tuple(nsmallest(size, other[behaviour], key=_hash)),
            len(mine),
            counts[behaviour],
        )
    return sample


def list_questions(sample: Mapping[Behaviour, JudgeSample]) -> list[Finding]:
    """Return all sampled turns in the order of their sessions."""
    every = [one for part in sample.values() for one in (*part.found, *part.other)]
    return sorted(every, key=lambda one: (one.session, one.turn, one.behaviour))


def correct_rates(
    sample: Mapping[Behaviour, JudgeSample], answers: Mapping[Key, Confirmation]
) -> dict[str, Any]:
    """Return, for each behaviour, the corrected share of turns, and precision and recall of the detector.

    Each has the ends of its 95 % interval. The judge's answers count as the truth; unreadable ones are left out.
    """
    corrected: dict[str, Any] = {}
    for behaviour, part in sample.items():
        found = _count_answers(part.found, part.found_turns, answers)
        other = _count_answers(part.other, part.other_turns, answers)
        if not other.checked or (part.found_turns and not found.checked):
            continue
        corrected[behaviour] = {
            "found": {"turns": found.items, "asked": found.checked, "confirmed": found.held},
            "other": {"turns": other.items, "asked": other.checked, "confirmed": other.held},
            "detected_rate": found.items / max(1, found.items + other.items),
            **asdict(estimate_prevalence(found, other)),
        }
    return corrected


def _count_answers(asked: Sequence[Finding], turns: int, answers: Mapping[Key, Confirmation]) -> Stratum:
    holds = [answers[make_key(one)].holds for one in asked if make_key(one) in answers]
    read = [one for one in holds if one is not None]
    return Stratum(turns, len(read), sum(read))


def _hash(one: Finding) -> bytes:
    return blake2b(f"{one.session}\0{one.turn}\0{one.behaviour}".encode(), digest_size=8).digest()
