"""The corpus of conversations by strangers to the detectors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.behaviours import NOT_BLIND, list_training, split_by_author, split_by_language
from benchmarks.corpus import BEHAVIOURS, Conversation, read_corpus, read_real

PAGE = (Path(__file__).parents[2] / "docs" / "behaviours-invented.md").read_text("utf-8")


@pytest.fixture(scope="module")
def corpus() -> list[Conversation]:
    return list(read_corpus())


def test_the_corpus_is_as_large_as_its_page_says(corpus: Sequence[Conversation]) -> None:
    turns = sum(len(conversation.labels) for conversation in corpus)
    assert f"{len(corpus):,} conversations with {turns:,} turns" in PAGE
    assert len({conversation.author for conversation in corpus}) == 28
    assert len({conversation.language for conversation in corpus}) == 12


def test_every_turn_is_labelled_with_known_behaviours_and_most_of_them_twice(
    corpus: Sequence[Conversation],
) -> None:
    for conversation in corpus:
        second = conversation.second or conversation.labels
        assert len(second) == len(conversation.labels) == len(conversation.session.turns)
        assert set().union(*conversation.labels, *second) <= set(BEHAVIOURS)
    assert {conversation.author for conversation in corpus if conversation.second is None} == {"a27"}


def test_a_loop_is_labelled_from_its_fourth_turn_on(corpus: Sequence[Conversation]) -> None:
    for conversation in corpus:
        first = next(
            (place for place, labels in enumerate(conversation.labels) if "infinite_loop" in labels), 3
        )
        assert first >= 3


def test_the_user_speaks_first_and_the_agents_alternate(corpus: Sequence[Conversation]) -> None:
    for conversation in corpus:
        speakers = [turn.speaker for turn in conversation.session.turns]
        assert speakers == (["user", "assistant"] * len(speakers))[: len(speakers)]


def test_each_behaviour_is_shown_by_every_author(corpus: Sequence[Conversation]) -> None:
    for behaviour in BEHAVIOURS:
        authors = Counter(
            conversation.author
            for conversation in corpus
            if any(behaviour in labels for labels in conversation.labels)
        )
        assert len(authors) == len({conversation.author for conversation in corpus})


@pytest.mark.soak  # It changes with the data only.
def test_no_author_language_or_idea_is_trained_on_and_measured(corpus: Sequence[Conversation]) -> None:
    conversations = list_training()
    for parts, key in (
        (split_by_author(conversations), lambda conversation: conversation.group),
        (split_by_language(conversations), lambda conversation: conversation.language),
    ):
        for part in parts:
            held = {conversation.id for conversation in part}
            assert {key(conversation) for conversation in part}.isdisjoint(
                key(conversation) for conversation in conversations if conversation.id not in held
            )
    measured = {conversation.id for part in split_by_author(conversations) for conversation in part}
    assert measured == {conversation.session.id for conversation in (*corpus, *read_real())}
    assert NOT_BLIND.isdisjoint(
        conversation.group for conversation in conversations if conversation.id in measured
    )
