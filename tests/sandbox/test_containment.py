"""Hostile programs of our own, on each tier."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bactrian.sandbox.probes import Bait, Probe, load_probes, provide_bait, run_probe
from bactrian.sandbox.tiers import Tier, Unsafe

pytestmark = pytest.mark.system

PROBES = load_probes()
LONG = ("sleep", "exit-trap", "deep-recursion")
"""Programs that are ended only by their time."""


@pytest.fixture(scope="module")
def bait() -> Iterator[Bait]:
    with provide_bait() as bait:
        yield bait


@pytest.mark.parametrize(
    "probe",
    [pytest.param(probe, marks=pytest.mark.slow if probe.name in LONG else ()) for probe in PROBES],
    ids=lambda probe: probe.name,
)
def test_a_hostile_program_is_held(probe: Probe, tier: Tier, bait: Bait) -> None:
    result = run_probe(probe, tier, bait)
    assert result.held != (tier.name in probe.beyond), result.how


@pytest.mark.parametrize("name", ["network", "home", "memory", "names", "inotify", "packages"])
def test_a_program_escapes_where_nothing_holds_it(name: str, bait: Bait) -> None:
    """The programs are told apart from programs that fail in any case."""
    probe = next(probe for probe in PROBES if probe.name == name)
    assert not run_probe(probe, Unsafe(), bait).held or name == "memory"


def test_there_are_enough_programs() -> None:
    assert len(PROBES) >= 30
