"""Seeds of requests, derived from the one seed that the user gives.

A hash of the seed and of the request's position (job, agent, turn, attempt) gives each request a seed of its own. With
one seed for all requests, a small model would repeat itself in each turn; with sums of numbers, seeds would collide.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import blake2b

from bactrian.records.turn import Sampling

# The highest bit of a derived seed: 53 bits are exact in every JSON parser, and users do not type such
# numbers.
_DERIVED = 1 << 52
_SENT = 1 << 31


def derive_seed(seed: int, *position: int | str) -> int:
    """Return the seed for ``position`` (job, agent, turn, attempt …) under ``seed``, from 2**52 to 2**53 - 1.

    The same position gives the same seed on every machine. Among a million positions, the chance of a collision is 1 in
    9,000.
    """
    digest = blake2b(repr((seed, *position)).encode(), digest_size=8).digest()
    return int.from_bytes(digest) % _DERIVED + _DERIVED


@dataclass(frozen=True, slots=True)
class RunSeeds:
    """Seeds of a run's jobs and lists; all None if the user gives no seed."""

    seed: int | None

    def find_job(self, number: int) -> int | None:
        """Return the seed for the sessions of a job, given its 0-based number."""
        return None if self.seed is None else derive_seed(self.seed, number)

    def find_list(self, list_id: str, calls: int) -> int | None:
        """Return the seed for a list request after ``calls`` earlier calls for the same list."""
        return None if self.seed is None else derive_seed(self.seed, list_id, calls)


def fit_seed(seed: int) -> int:
    """Return ``seed`` as it is sent to an endpoint: a derived seed is reduced to 31 bits.

    Gemini accepts signed 32-bit seeds only, and llama.cpp unsigned ones. A smaller seed is sent as it is.
    """
    return seed % _SENT if seed >= _DERIVED else seed


def derive_stage_seed(seed: int | None, stage: str) -> int | None:
    """Return the seed for one stage of a society whose job has ``seed``."""
    return None if seed is None else derive_seed(seed, stage)


def derive_sampling(
    sampling: Sampling, agent: str, turn: int, attempt: int = 0, *, retry: bool = False
) -> Sampling:
    """Return a session's ``sampling`` with the seed for one of its requests.

    Args:
        sampling: The agent's sampling, with the session's seed.
        agent: The agent that is asked.
        turn: The turn's number, from 1; 0 for requests before the conversation.
        attempt: Number of earlier alternative requests for this turn.
        retry: True if the request is repeated after an empty reply.
    """
    if sampling.seed is None:
        return sampling
    return replace(sampling, seed=derive_seed(sampling.seed, agent, turn, attempt, retry))
