"""The characters of which Hypothesis makes texts."""

from __future__ import annotations

from hypothesis import strategies as st

CHARACTERS = st.characters(exclude_categories=("Cs",))
"""All characters but surrogates. Hypothesis has the same by itself, and encodes a million of them to find out."""
