"""Words and quotations of a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

STOP_WORDS = frozenset(
    (
        "a an the and or but of to in on at by for from with without into onto as is are was were be been "
        "being am it its this that these those i you he she we they me him her us them my your his our their "
        "so then than too also not no do does did done has have had will would can could may might shall "
        "should must there here which who whom whose what when where how if please each every all any some "
        "more most very just only own same such up out about per none"
    ).split()
)
"""English function words."""

_MARKS = "\u0300-\u036f\u064b-\u065f\u0670\u0900-\u0903\u093a-\u094f\u0951-\u0957\u0962\u0963"
"""Vowel signs and accents that follow a letter; in Hindi, they belong to the letter."""
_MARKED = rf"[^\W_]+(?:[{_MARKS}]+[^\W_]*)*"
WORD = re.compile(rf"{_MARKED}(?:'{_MARKED})*")
"""A word of letters and digits, with the signs of its letters and with apostrophes between them."""
_TOKEN = re.compile(r"[^\W_]+")
# Chinese, Japanese, Thai, Lao and Khmer have no spaces between words.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")
_ENDINGS = (
    "ations",
    "ation",
    "ments",
    "ment",
    "ings",
    "ing",
    "ions",
    "ion",
    "ies",
    "ers",
    "ed",
    "es",
    "ly",
    "er",
    "s",
    "e",
)
_STEM = 6
_QUOTED = re.compile(r"\"[^\"\n]{1,400}\"|“[^”\n]{1,400}”|«[^»\n]{1,400}»|「[^」\n]{1,400}」")


def tokenize(text: str) -> list[str]:
    """Return the words of ``text`` in lower case; for scripts without spaces, pairs of adjacent characters."""
    lower = text.lower()
    found = _TOKEN.findall(lower)
    if lower.isascii() or _UNSPACED.search(lower) is None:
        return found
    return [piece for token in found for piece in _split_token(token)]


_IRREGULAR: Mapping[str, str] = MappingProxyType(
    {
        "written": "write",
        "wrote": "write",
        "built": "build",
        "drawn": "draw",
        "drew": "draw",
        "made": "make",
        "chosen": "choose",
        "chose": "choose",
        "choice": "choose",
        "given": "give",
        "gave": "give",
        "shown": "show",
        "found": "find",
        "said": "say",
        "told": "tell",
        "done": "do",
        "taken": "take",
        "sold": "sell",
        "sent": "send",
        "explanation": "explain",
        "proof": "prove",
        "decision": "decide",
        "summary": "summarize",
        "summaries": "summarize",
        "maintenance": "maintain",
        "definition": "define",
        "comparison": "compare",
        "analyses": "analyze",
    }
)


def stem(word: str) -> str:
    """Return an approximate stem of an English word: ``evaluate`` and ``evaluation`` give ``evalu``."""
    # British and American spelling; analysis, analyse, analyze.
    word = _IRREGULAR.get(word, word).replace("z", "s")
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)]
            break
    # write, writing; plan, planned
    if len(word) > 3 and word[-1] == word[-2]:
        word = word[:-1]
    return word[:_STEM]


def strip_quotations(text: str) -> str:
    """Replace text in quotation marks with spaces, so that positions stay the same."""
    if '"' not in text and text.isascii():
        return text
    return _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)


def _split_token(token: str) -> list[str]:
    if _UNSPACED.search(token) is None:
        return [token]
    if len(token) == 1:
        return [token]
    return [token[i : i + 2] for i in range(len(token) - 1)]
