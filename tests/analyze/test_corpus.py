"""The corpus of conversations by strangers to the detectors."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from benchmarks.corpus import BEHAVIOURS, read_corpus

PAGE = (Path(__file__).parents[2] / "docs" / "behaviours.md").read_text("utf-8")
CORPUS = list(read_corpus())
TURNS = sum(len(one.labels) for one in CORPUS)


def test_the_corpus_is_as_large_as_its_page_says() -> None:
    assert f"{len(CORPUS):,} conversations with {TURNS:,} turns" in PAGE
    assert len({one.author for one in CORPUS}) == 12
    assert len({one.language for one in CORPUS}) == 12


def test_every_turn_is_labelled_twice_with_known_behaviours() -> None:
    for one in CORPUS:
        assert one.second is not None
        assert len(one.second) == len(one.labels) == len(one.session.turns)
        assert set().union(*one.labels, *one.second) <= set(BEHAVIOURS)


def test_the_user_speaks_first_and_the_agents_alternate() -> None:
    for one in CORPUS:
        speakers = [turn.speaker for turn in one.session.turns]
        assert speakers == (["user", "assistant"] * len(speakers))[: len(speakers)]


def test_each_behaviour_is_shown_by_every_author() -> None:
    for behaviour in BEHAVIOURS:
        authors = Counter(one.author for one in CORPUS if any(behaviour in labels for labels in one.labels))
        assert len(authors) == 12
