"""Texts that Hypothesis makes up."""

from __future__ import annotations

from string import ascii_lowercase

from hypothesis import strategies as st

CHARACTERS = st.characters(exclude_categories=("Cs",))
"""All characters but surrogates. Hypothesis has the same by itself, and encodes a million of them to find out."""

WORDS = st.text(ascii_lowercase, min_size=3, max_size=9)
ITEMS = st.lists(WORDS, min_size=1, max_size=5).map(lambda words: " ".join(words).capitalize())
"""Items as lists have them: one word to five. Made by a regular expression, they would take several times as long."""
