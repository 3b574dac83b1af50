"""Conversations for a report: which sessions it names, and which ones its page shows as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.analyze.behaviours.own import OwnBehaviour
from bactrian.analyze.session_summary import SessionSummary
from bactrian.records.finding import Behaviour, Finding
from bactrian.records.session import Session
from bactrian.store import RunReader

_NAMED = 5
"""Number of worst, and of best, sessions that are listed."""
_RANDOM = 10
"""Number of sessions that are chosen at random."""
QUOTES = 3
"""Quotations of each behaviour."""
_PAIRS = 6
"""Pairs of sessions that a comparison shows."""


@dataclass(frozen=True, slots=True)
class AnnotatedSession:
    """A session with the behaviours that its turns show."""

    session: Session
    findings: tuple[Finding, ...]


def list_worst(facts: Sequence[SessionSummary]) -> list[SessionSummary]:
    """Return those with the most turns that show a behaviour; of equals, the longer ones."""
    return sorted(
        (one for one in facts if one.seen), key=lambda one: (-_measure_trouble(one), -one.messages, one.id)
    )[:_NAMED]


def list_best(facts: Sequence[SessionSummary]) -> list[SessionSummary]:
    """Return those that ended well and show no behaviour; of them, those that solved the most."""
    good = [one for one in facts if one.ending == "task_done" and not one.seen and one.solved]
    return sorted(good, key=lambda one: (-one.solved, one.id))[:_NAMED]


def list_random(facts: Sequence[SessionSummary]) -> list[SessionSummary]:
    """Return ten by the hash of their id, so that the same run gives the same ones."""
    return sorted(facts, key=_hash)[:_RANDOM]


def choose_sessions(facts: Sequence[SessionSummary], codes: Iterable[Behaviour]) -> list[str]:
    """Return the ids of the sessions that a page shows, the most important first.

    These are the worst, one for each behaviour, the best, the random ones, and two more for each behaviour.
    """
    shuffled = sorted(facts, key=_hash)
    worst = [one.id for one in list_worst(facts)]
    with_code = {
        code: [
            *(one for one in worst if _shows(facts, one, code)),
            *(one.id for one in shuffled if code in one.behaviours and one.id not in worst),
        ][:QUOTES]
        for code in codes
    }
    return list(
        dict.fromkeys(
            (
                *worst,
                *(ids[0] for ids in with_code.values() if ids),
                *(one.id for one in list_best(facts)),
                *(one.id for one in list_random(facts)),
                *(one for ids in with_code.values() for one in ids),
            )
        )
    )


def choose_pairs(pairs: Sequence[tuple[SessionSummary, SessionSummary]]) -> list[str]:
    """Return the ids of pairs to show side by side: first those that end or behave the most differently."""

    def compare(pair: tuple[SessionSummary, SessionSummary]) -> tuple[int, bytes]:
        a, b = pair
        return -len(a.behaviours ^ b.behaviours) - (a.ending != b.ending), _hash(a)

    return [a.id for a, _ in sorted(pairs, key=compare)[:_PAIRS]]


async def read_annotated(
    store: RunReader, ids: Iterable[str], own: Sequence[OwnBehaviour] | None = None
) -> tuple[AnnotatedSession, ...]:
    """Return the sessions with these ids in their order, with their findings; those not found are left out."""
    found = [session for one in ids if (session := await store.session(one)) is not None]
    return tuple(AnnotatedSession(session, find_behaviours(session, own=own)) for session in found)


def _shows(facts: Sequence[SessionSummary], session: str, code: Behaviour) -> bool:
    return any(one.id == session and code in one.behaviours for one in facts)


def _measure_trouble(one: SessionSummary) -> float:
    """Return the share of its turns that show something."""
    return len({seen.turn for seen in one.seen}) / one.messages


def _hash(one: SessionSummary) -> bytes:
    return blake2b(one.id.encode(errors="surrogatepass"), digest_size=8).digest()
