"""The form in which a model is made to write a list, where its endpoint can be told one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_WITHIN_WORDS = "A-Za-z'()&/+#-"
_BEGINNINGS = "ABCDEFGHIJKLMNOPRSTUVW"
"""Letters with which a small model finds a word; with the others it makes one up."""
_GROUPS = 10
_MOST_WORDS = 12
_SHIFT = 3
"""Letters by which the groups move from one question to the next."""


def build_list_schema() -> Mapping[str, object]:
    """JSON schema of a list, for endpoints that take ``response_format``."""
    return {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "string"}}},
        "required": ["items"],
        "additionalProperties": False,
    }


def build_list_grammar(count: int, *, longest: int = 120) -> str:
    """GBNF grammar of a numbered list of ``count`` items of up to ``longest`` characters, for llama.cpp."""
    return _grammar(["A-Z"], count, f"[0-9 ,%{_WITHIN_WORDS}]{{0,{longest - 1}}}")


def build_varied_list_grammar(count: int, question: int) -> str:
    """GBNF grammar of a list in which a very small model does not say one thing on every line.

    Each of ten items in a row begins with one of two or three letters of its own, and with others at the next
    ``question``. An item has up to twelve words and no digit, after which such a model would only go on counting.
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
    """The letters in ten groups."""
    start = _SHIFT * question % len(_BEGINNINGS)
    letters = _BEGINNINGS[start:] + _BEGINNINGS[:start]
    edges = [group * len(letters) // _GROUPS for group in range(_GROUPS + 1)]
    return [letters[edges[group] : edges[group + 1]] for group in range(_GROUPS)]
