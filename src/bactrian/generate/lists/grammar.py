"""Builds grammars and schemas that constrain a model's reply to a list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_WITHIN_WORDS = "A-Za-z'()&/+#-"
_LONGEST = 120
"""Maximum characters of an item."""
_BEGINNINGS = "ABCDEFGHIJKLMNOPRSTUVW"
"""Initial letters for which a small model finds a real word."""
_GROUPS = 10
_MOST_WORDS = 12
_SHIFT = 3
"""Number of letters by which the groups shift from one question to the next."""


def build_list_schema() -> Mapping[str, object]:
    """Return the JSON schema of a list, for endpoints that take ``response_format``."""
    return {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "string"}}},
        "required": ["items"],
        "additionalProperties": False,
    }


def build_list_grammar(count: int) -> str:
    """Return the GBNF grammar of a numbered list of ``count`` items for llama.cpp."""
    return _grammar(["A-Z"], count, f"[0-9 ,%{_WITHIN_WORDS}]{{0,{_LONGEST - 1}}}")


def build_varied_list_grammar(count: int, question: int) -> str:
    """Return the GBNF grammar of a list that keeps a very small model from repeating one item on every line.

    Each of ten consecutive items must begin with one of its own two or three letters, which change from ``question``
    to ``question``. Items have up to twelve words and no digits, after which such a model only continues counting.
    """
    word = f'[{_WITHIN_WORDS}]* ","?'
    return _grammar(_beginnings(question), count, f'{word} (" " [A-Za-z(&] {word}){{0,{_MOST_WORDS - 1}}}')


def _grammar(beginnings: Sequence[str], count: int, rest: str) -> str:
    lines = " ".join(
        f'"{number}. " [{beginnings[(number - 1) % len(beginnings)]}] rest "\\n"'
        for number in range(1, count + 1)
    )
    return f"root ::= {lines}\nrest ::= {rest}\n"


def _beginnings(question: int) -> Sequence[str]:
    """Return the letters in ten groups, shifted by the number of the question."""
    start = _SHIFT * question % len(_BEGINNINGS)
    letters = _BEGINNINGS[start:] + _BEGINNINGS[:start]
    edges = [group * len(letters) // _GROUPS for group in range(_GROUPS + 1)]
    return [letters[edges[group] : edges[group + 1]] for group in range(_GROUPS)]
