from __future__ import annotations

import pytest

from bactrian.records.run import Behaviour
from benchmarks.corpus import BEHAVIOURS
from benchmarks.labelled import read_cases


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_labelled_set_is_large_and_its_cases_differ(behaviour: Behaviour) -> None:
    cases = read_cases(behaviour)
    assert sum(case.label for case in cases) >= 60
    assert sum(not case.label for case in cases) >= 60
    assert {case.source for case in cases} == {"written", "model"}
    assert len({tuple(turn.text for turn in case.session.turns) for case in cases}) == len(cases)
