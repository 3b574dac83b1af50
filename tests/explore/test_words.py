"""Searches are read as a person means them, and found where a person sees them."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from bactrian.explore.search_words import find_hits, prepare_text, read_search, write_match

TEXTS = [
    "The garden plan: sow, water, wait.",
    "A plan for the gardens of Paris — Café Noir.",
    "東京の天気を調べる",
    'NEAR("a" AND b*) OR -c: ^quoted',
]


def search(said: str) -> list[int]:
    """The texts that the full-text index finds."""
    match = write_match(read_search(said))
    if match is None:
        return []
    with closing(sqlite3.connect(":memory:")) as index:
        index.execute(
            "CREATE VIRTUAL TABLE words USING fts5(t, content='', tokenize='unicode61 remove_diacritics 2')"
        )
        index.executemany("INSERT INTO words (rowid, t) VALUES (?, ?)", enumerate(map(prepare_text, TEXTS)))
        query = "SELECT rowid FROM words WHERE words MATCH ? ORDER BY rowid"
        return [row for (row,) in index.execute(query, (match,))]


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("plan", [0, 1]),
        ('"garden plan"', [0]),
        ("garden*", [0, 1]),
        ("plan -water", [1]),
        ("cafe", [1]),
        ("CAFÉ noir", [1]),
        ("天気", [2]),
        ("天調", []),
        ('"', []),
        ("-plan", []),
        ('NEAR("a" b', [3]),
        ("AND", [3]),
        ("nothing-here", []),
        ("*)(", []),
    ],
)
def test_a_search_finds_what_it_says_and_is_never_an_error(said: str, found: list[int]) -> None:
    assert search(said) == found


@pytest.mark.parametrize("said", ["plan", '"garden plan"', "garden*", "cafe noir", "天気", "b"])
def test_what_the_index_finds_is_highlighted_in_the_text(said: str) -> None:
    terms = read_search(said)
    hit = {number for number, text in enumerate(TEXTS) if list(find_hits(text, terms))}
    assert hit >= set(search(said)) != set()


def test_a_highlight_covers_the_words_as_they_are_written() -> None:
    text = "Un CAFÉ noir, 天気."
    assert [text[begin:end] for begin, end in find_hits(text, read_search('"cafe noir" 天気'))] == [
        "CAFÉ noir",
        "天気",
    ]
