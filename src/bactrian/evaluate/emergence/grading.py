"""Grades replies by their exact answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bactrian.evaluate.emergence.domains import load_domains
from bactrian.evaluate.emergence.facts import KnownQuestion
from bactrian.language.think import split_thought

_WORD = re.compile(r"\w+")
_FORM = re.compile(r"\s*Solution:\s.*\bNext request\.\s*", re.S)


@dataclass(frozen=True, slots=True)
class Graded:
    """What one reply is worth."""

    question: KnownQuestion
    right: bool
    """True if the reply contains the answer, and no other answer of the domain."""
    in_form: bool
    """True if the reply has the form of the inception protocol: ``Solution: … Next request.``"""


def grade_reply(question: KnownQuestion, text: str) -> Graded:
    """Grade a reply. Letter case and punctuation do not count; the words of the question do not either."""
    _, said = split_thought(text)
    values = load_domains().find(question.fact.domain).values
    return Graded(
        question, find_answers(said, values) == {question.fact.value}, _FORM.fullmatch(said) is not None
    )


def find_answers(text: str, values: Sequence[str]) -> set[str]:
    """Return the ``values`` that occur in ``text`` as whole words."""
    words = {word.casefold() for word in _WORD.findall(text)}
    return {value for value in values if value.casefold() in words}
