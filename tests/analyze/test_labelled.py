from __future__ import annotations

import pytest

from bactrian.records.finding import Behaviour
from benchmarks.behaviours import LABELLED, f1, judged
from benchmarks.labelled import read_cases


@pytest.mark.parametrize("behaviour", LABELLED)
def test_the_labelled_set_is_large_and_its_cases_differ(behaviour: Behaviour) -> None:
    cases = read_cases(behaviour)
    assert sum(case.label for case in cases) >= 60
    assert sum(not case.label for case in cases) >= 60
    assert {case.source for case in cases} == {"written", "model"}
    assert len({tuple(turn.text for turn in case.session.turns) for case in cases}) == len(cases)


@pytest.mark.parametrize("behaviour", LABELLED)
def test_a_detector_is_right_on_cases_that_it_was_not_tuned_on(behaviour: Behaviour) -> None:
    held_out = [case for case in read_cases(behaviour) if case.split == "held_out"]
    assert f1(judged(behaviour, held_out)) >= 0.9
