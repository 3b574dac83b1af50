"""The seed of every request of a run, from the one seed that its user gives.

Scheme 2, for runs that begin now: a hash of the run's seed and of the request's place gives each request a seed of its
own. Scheme 1, for runs that began before there was another: 10,000 for each job, one for each turn, 100,003 for each
attempt are added to the run's seed, so that turn 4 of job 10 has the seed of candidate 2 for turn 1 of job 0. A run
freezes its scheme and goes on by it; one that has frozen none has scheme 1.

A session outside a run of a recipe has its user's seed as it is, and the seeds of scheme 1: within one session no two
of them are the same for the same agent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from bactrian.records.sampling import Sampling

SCHEME = 2
"""The scheme of runs that begin now."""
_DERIVED = 1 << 52
"""The highest bit of a derived seed: 53 bits are exact in every JSON reader, and no user types such a number."""
_JOBS_APART = 10_000
_ATTEMPTS_APART = 100_003
_RETRY = 1_000_003


def derive_seed(seed: int, *place: int | str) -> int:
    """Return the seed of ``place`` (job, agent, turn, attempt …) under ``seed``, from 2**52 to 2**53 - 1.

    The same place gives the same seed on every machine. Two of a million places share one with a chance of 1 in 9,000.
    """
    digest = blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) % _DERIVED + _DERIVED


@dataclass(frozen=True, slots=True)
class RunSeeds:
    """The seeds of a run's jobs and lists; None for all of them if the user gives no seed."""

    seed: int | None
    scheme: int = SCHEME

    @classmethod
    def of_run(cls, frozen: Mapping[str, Any]) -> RunSeeds:
        """The seeds of a run by what it has frozen."""
        return cls(frozen.get("seed"), frozen.get("seeds", 1))

    def find_job(self, number: int) -> int | None:
        """The seed of the sessions of a job, by its 0-based number."""
        if self.seed is None:
            return None
        return self.seed + _JOBS_APART * number if self.scheme == 1 else derive_seed(self.seed, number)

    def find_list(self, list_id: str, calls: int) -> int | None:
        """The seed of a request for a list, after so many calls for it."""
        if self.seed is None:
            return None
        return self.seed + calls if self.scheme == 1 else derive_seed(self.seed, list_id, calls)


def is_derived(seed: int | None) -> bool:
    """True if a session with this seed belongs to a run of scheme 2."""
    return seed is not None and seed >= _DERIVED


def derive_stage_seed(seed: int | None, stage: str) -> int | None:
    """The seed of one stage of a society whose job has ``seed``."""
    return derive_seed(seed, stage) if seed is not None and is_derived(seed) else seed


def derive_sampling(
    sampling: Sampling, agent: str, turn: int, attempt: int = 0, *, retry: bool = False
) -> Sampling:
    """Return the ``sampling`` of a session with the seed of one of its requests.

    One seed for a whole session would make a small model say the same thing again in each turn.

    Args:
        sampling: The agent's, with the session's seed.
        agent: Who is asked.
        turn: The turn's number, from 1; 0 for what comes before the conversation.
        attempt: How many requests for this turn this one is an alternative to.
        retry: True if the reply was empty and is asked for again.
    """
    seed = sampling.seed
    if seed is None:
        return sampling
    if is_derived(seed):
        return replace(sampling, seed=derive_seed(seed, agent, turn, attempt, retry))
    again = (_RETRY if turn else 1) if retry else 0
    return replace(sampling, seed=seed + turn + _ATTEMPTS_APART * attempt + again)
