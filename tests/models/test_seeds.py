"""Every request has a seed of its own."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from bactrian.models.model import (
    RunSeeds,
    derive_sampling,
    derive_seed,
    derive_stage_seed,
    fit_seed,
)
from bactrian.records.turn import Sampling
from tests.helpers.texts import CHARACTERS

SEEDS = st.integers(-(2**63), 2**63)


def seeds_of(run: RunSeeds, jobs: range, turns: range, attempts: range) -> list[int | None]:
    """The seeds of all these requests, of two agents each."""
    return [
        derive_sampling(session, agent, turn, attempt, retry=retry).seed
        for session in [Sampling(seed=run.find_job(job)) for job in jobs]
        for turn in turns
        for attempt in attempts
        for agent in ("assistant", "critic")
        for retry in (False, True)
    ]


@settings(max_examples=30)
@given(SEEDS, st.integers(0, 25_000_000), st.integers(0, 40), st.integers(0, 100))
def test_no_two_requests_of_a_run_share_a_seed(seed: int, job: int, turn: int, attempt: int) -> None:
    jobs, turns, attempts = range(job, job + 12), range(turn, turn + 10), range(attempt, attempt + 4)
    seeds = seeds_of(RunSeeds(seed), jobs, turns, attempts)
    assert len(set(seeds)) == len(seeds) == 12 * 10 * 4 * 2 * 2


def test_a_whole_run_of_conversations_shares_no_seed() -> None:
    seeds = seeds_of(RunSeeds(7), range(100), range(41), range(3))
    assert len(set(seeds)) == len(seeds)


@given(SEEDS, st.lists(st.one_of(st.integers(), st.text(CHARACTERS)), max_size=4))
def test_a_derived_seed_is_a_number_that_every_json_reader_keeps(
    seed: int, position: list[int | str]
) -> None:
    derived = derive_seed(seed, *position)
    assert derived >= 1 << 52
    assert int(float(derived)) == derived


def test_a_derived_seed_is_the_same_on_every_machine_and_in_every_version() -> None:
    assert derive_seed(7, 10, "user", 4, 0) == 8190885170026952
    assert RunSeeds(7).find_list("task@001", 0) == derive_seed(7, "task@001", 0)


def test_without_a_seed_there_is_none() -> None:
    run = RunSeeds(None)
    assert (run.find_job(3), run.find_list("task@", 0), derive_stage_seed(None, "plan")) == (None, None, None)
    assert derive_sampling(Sampling(0.2), "user", 4) == Sampling(0.2)


def test_a_derived_seed_is_sent_in_31_bits_and_a_typed_one_as_it_is() -> None:
    sent = {fit_seed(derive_seed(7, job, "user", 1)) for job in range(1000)}
    assert len(sent) == 1000
    assert max(sent) < 1 << 31
    assert fit_seed(1 << 40) == 1 << 40
