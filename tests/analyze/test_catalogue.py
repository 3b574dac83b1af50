from __future__ import annotations

from pathlib import Path

from bactrian.analyze.behaviours import DETECTORS, find_behaviours, load_definitions
from bactrian.records.run import BEHAVIOURS, LONGEST_QUOTE
from benchmarks.labelled import conversation

FLIPPED = conversation(
    "Instruction: Name a river.\nInput: None", "Instruction: Name two lakes." + " Please." * 90
)
TWO_THINGS_WRONG = conversation(
    "Solution: The Oder.\nNext request.", "I will write the report right away.", "", "Sure, will do!"
)


def test_every_behaviour_has_a_detector() -> None:
    assert set(DETECTORS) == set(BEHAVIOURS)


def test_every_behaviour_has_a_definition_of_its_own_and_a_row_on_the_page() -> None:
    definitions = load_definitions()
    assert list(definitions) == list(DETECTORS)
    assert len({text.strip().partition(":")[0] for text in definitions.values()}) == len(DETECTORS)
    page = (Path(__file__).parents[2] / "docs" / "behaviours.md").read_text("utf-8")
    assert [code for code in BEHAVIOURS if f"\n| `{code}` | " not in page] == []


def test_only_the_behaviours_that_are_asked_for_are_looked_for() -> None:
    assert {finding.behaviour for finding in find_behaviours(TWO_THINGS_WRONG, ["flake_reply"])} == {
        "flake_reply"
    }
    assert {"role_flip", "flake_reply", "empty_turn"} <= {
        finding.behaviour for finding in find_behaviours(TWO_THINGS_WRONG)
    }


def test_findings_come_in_the_order_of_the_turns() -> None:
    turns = [finding.turn for finding in find_behaviours(TWO_THINGS_WRONG)]
    assert turns == sorted(turns)
    assert len(turns) > 3


def test_a_doubtful_finding_is_given_only_when_asked_for() -> None:
    lower_case = conversation("instruction: name a river.\ninput: none")
    assert find_behaviours(lower_case, ["missing_marker"]) == ()
    assert [finding.turn for finding in find_behaviours(lower_case, ["missing_marker"], least=0.0)] == [1]


def test_a_quotation_is_short_and_from_the_turn() -> None:
    (finding,) = find_behaviours(FLIPPED, ["role_flip"])
    assert len(finding.quote) == LONGEST_QUOTE
    assert finding.quote in FLIPPED.turns[1].text


def test_a_session_without_turns_shows_nothing() -> None:
    assert find_behaviours(conversation()) == ()
