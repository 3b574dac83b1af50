"""The learned detector: what it is made from, and that it gives the same everywhere."""

from __future__ import annotations

import json
import subprocess
import sys
from itertools import islice
from math import sqrt

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.detect.detector import load_model, read_model, write_model
from bactrian.detect.features import Features, list_grams
from bactrian.detect.fit import hash_conversations
from bactrian.detect.turn_text import read_turn, read_turns
from benchmarks.behaviours import BEGIN, END, PAGE, WEIGHTS, list_training
from benchmarks.corpus import BEHAVIOURS, read_corpus
from benchmarks.labelled import conversation, read_cases

HOW = "run: python -m benchmarks.behaviours --write"


@pytest.mark.soak  # It changes with the data only.
def test_the_model_was_trained_on_the_data_as_it_is() -> None:
    assert load_model().about["data"] == hash_conversations(list_training()), HOW


def test_the_page_holds_its_tables() -> None:
    text = PAGE.read_text("utf-8")
    assert BEGIN in text
    assert END in text
    for behaviour in BEHAVIOURS:
        assert f"| `{behaviour}` | turns |" in text.partition(BEGIN)[2], HOW


def test_the_weights_are_small_and_survive_reading_and_writing() -> None:
    text = WEIGHTS.read_text("utf-8")
    assert len(text.encode()) < 2_000_000
    assert json.loads(write_model(read_model(text))) == json.loads(text)


def test_a_model_that_was_trained_on_other_features_is_refused() -> None:
    data = json.loads(WEIGHTS.read_text("utf-8"))
    with pytest.raises(ValueError, match="other features"):
        read_model(json.dumps({**data, "features": data["features"][1:]}))


def test_detection_needs_no_package_beyond_the_core() -> None:
    code = (
        "import sys\n"
        "for name in ('numpy', 'sklearn', 'scipy'): sys.modules[name] = None\n"
        "from bactrian.detect.loops import is_loop\n"
        "from bactrian.detect.detector import load_model\n"
        "from bactrian.detect.turn_text import read_turns\n"
        "class Turn:\n"
        "    def __init__(self, speaker, text): self.speaker, self.text = speaker, text\n"
        "turns = [Turn('user', 'Thank you!'), Turn('assistant', 'You are welcome!')] * 4\n"
        "assert is_loop(turns, 8)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
def test_the_older_cases_are_mostly_judged_as_they_are_labelled(behaviour: str) -> None:
    """The model was trained on them: a regression test. Limits that real text needs cost a few of them."""
    cases = read_cases(behaviour)
    right = sum(
        case.label is any(finding.turn == case.turn for finding in find_behaviours(case.session, [behaviour]))
        for case in cases
    )
    assert right / len(cases) >= 0.88


def test_a_finding_says_why_and_quotes_the_sentence() -> None:
    (found,) = find_behaviours(
        conversation(
            "Instruction: Write the scraper.\nInput: None",
            "Solution: Sure. I will write the scraper for you right away.\nNext request.",
        ),
        ["flake_reply"],
    )
    assert found.quote == "I will write the scraper for you right away."
    assert "it promises" in found.reason or "no sentence of work" in found.reason


def test_the_scores_of_sentences_are_the_sums_of_their_n_grams_weights() -> None:
    model = load_model()
    long = " and ".join(f"I will send you report {number}" for number in range(60))
    for by_user in (True, False):
        turn = read_turn(f"Thank you! Shall I “start” in 2 days?\n{long}.\n谢谢您！", by_user=by_user)
        scores = model.score_sentences(turn)
        for head in model.heads:
            assert (head.name in scores) == head.applies_to(turn)
            for sentence, score in zip(turn.sentences, scores.get(head.name, ()), strict=False):
                known = [model.vocabulary[gram] for gram in list_grams(sentence) if gram in model.vocabulary]
                total = sum(head.weights[place] for place in known)
                assert score == head.bias + head.scale * total / sqrt(len(known) + 1)


def test_markers_in_other_languages_and_misspelt_ones_are_no_part_of_what_is_said() -> None:
    texts = (
        "Instuction: Name a river.\nInput: None",
        "Lösung: Die Oder.\nNächste Anfrage.",
        "指令：说出一条河\n输入：无",
    )
    turns = read_turns(conversation(*texts).turns)
    assert [turn.prose for turn in turns] == ["name a river.", "die oder.", "说出一条河"]
    assert [(turn.instructs, turn.solves, turn.asks_next) for turn in turns] == [
        (True, False, False),
        (False, True, True),
        (True, False, False),
    ]


def test_overlap_and_news_are_measured_against_the_turn_before() -> None:
    echo, answer = (
        Features(read_turns(conversation("Instruction: Name the longest river.", text).turns)).describe(1)
        for text in ("Solution: Name the longest river.", "Solution: It is the Nile, with 6650 km.")
    )
    assert (echo["said_before"], echo["new_words"], echo["covers_asked"]) == (1.0, 0, 1.0)
    assert answer["said_before"] < 0.5
    assert answer["new_numbers"] == 1


def test_findings_that_are_only_counted_are_the_same_without_words_and_reasons() -> None:
    for case in list(islice(read_corpus(), 0, 300, 20)):
        explained = find_behaviours(case.session, BEHAVIOURS)
        counted = find_behaviours(case.session, BEHAVIOURS, explain=False)
        assert [finding.turn for finding in counted] == [finding.turn for finding in explained]
        assert [finding.confidence for finding in counted] == [finding.confidence for finding in explained]
