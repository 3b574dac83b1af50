"""Seeds of the requests of a run, derived from the one seed that the user gives.

Scheme 2, for new runs: a hash of the run's seed and the request's place gives each request its own seed. Scheme 1, for
runs of earlier versions: the run's seed plus 10,000 per job, 1 per turn and 100,003 per attempt, so that seeds collide:
turn 4 of job 10 has the seed of candidate 2 for turn 1 of job 0. A run freezes its scheme; a run without a frozen
scheme uses scheme 1.

A session outside a recipe's run uses the user's seed unchanged, with scheme 1: within one session, no two requests of
the same agent share a seed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from bactrian.records.sampling import Sampling

SCHEME = 2
"""The scheme of new runs."""
_DERIVED = 1 << 52
"""The highest bit of a derived seed: 53 bits are exact in every JSON parser, and users do not type such numbers."""
_SENT = 1 << 31
_JOBS_APART = 10_000
_ATTEMPTS_APART = 100_003
_RETRY = 1_000_003


def derive_seed(seed: int, *place: int | str) -> int:
    """Return the seed for ``place`` (job, agent, turn, attempt …) under ``seed``, from 2**52 to 2**53 - 1.

    The same place gives the same seed on every machine. Among a million places, the chance of a collision is 1 in
    9,000.
    """
    digest = blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) % _DERIVED + _DERIVED


@dataclass(frozen=True, slots=True)
class RunSeeds:
    """Seeds of a run's jobs and lists; all None if the user gives no seed."""

    seed: int | None
    scheme: int = SCHEME

    @classmethod
    def of_run(cls, frozen: Mapping[str, Any]) -> RunSeeds:
        """Create the seeds of a run from its frozen settings."""
        return cls(frozen.get("seed"), frozen.get("seeds", 1))

    def find_job(self, number: int) -> int | None:
        """Return the seed for the sessions of a job, given its 0-based number."""
        if self.seed is None:
            return None
        return self.seed + _JOBS_APART * number if self.scheme == 1 else derive_seed(self.seed, number)

    def find_list(self, list_id: str, calls: int) -> int | None:
        """Return the seed for a list request after ``calls`` earlier calls for the same list."""
        if self.seed is None:
            return None
        return self.seed + calls if self.scheme == 1 else derive_seed(self.seed, list_id, calls)


def is_derived(seed: int | None) -> bool:
    """Return True if a session with this seed belongs to a run of scheme 2."""
    return seed is not None and seed >= _DERIVED


def fit_seed(seed: int) -> int:
    """Return ``seed`` as it is sent to an endpoint: a derived seed is reduced to 31 bits.

    Gemini accepts signed 32-bit seeds only, and llama.cpp unsigned ones. A seed that the user typed is sent as it is.
    """
    return seed % _SENT if is_derived(seed) else seed


def derive_stage_seed(seed: int | None, stage: str) -> int | None:
    """Return the seed for one stage of a society whose job has ``seed``."""
    return derive_seed(seed, stage) if seed is not None and is_derived(seed) else seed


def derive_sampling(
    sampling: Sampling, agent: str, turn: int, attempt: int = 0, *, retry: bool = False
) -> Sampling:
    """Return a session's ``sampling`` with the seed for one of its requests.

    With one seed for a whole session, a small model would repeat itself in each turn.

    Args:
        sampling: The agent's sampling, with the session's seed.
        agent: The agent that is asked.
        turn: The turn's number, from 1; 0 for requests before the conversation.
        attempt: Number of earlier alternative requests for this turn.
        retry: True if the request is repeated after an empty reply.
    """
    seed = sampling.seed
    if seed is None:
        return sampling
    if is_derived(seed):
        return replace(sampling, seed=derive_seed(seed, agent, turn, attempt, retry))
    again = (_RETRY if turn else 1) if retry else 0
    return replace(sampling, seed=seed + turn + _ATTEMPTS_APART * attempt + again)
