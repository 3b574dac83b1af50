"""Explanations of features in words, for findings."""

from __future__ import annotations

from typing import NamedTuple


class Reason(NamedTuple):
    """What a feature says in words if its value is in a range."""

    beginning: str
    """Of the feature's name."""
    least: float
    most: float
    words: str


_MUCH, _LITTLE, _ANY = 0.5, 5.0, 1e9
_REASONS = (
    Reason("said_before", _MUCH, _ANY, "most of its words stand in the message before"),
    Reason("covers_asked", _MUCH, _ANY, "it says most words of the instruction"),
    Reason("old_instruction", _MUCH, _ANY, "it says most words of an earlier instruction"),
    Reason("new_words", 0, _LITTLE, "hardly any new word"),
    Reason("news", 0, _LITTLE, "hardly any new word"),
    Reason("fresh_sentences", 0, 0, "no sentence says something new"),
    Reason("like_own", _MUCH, _ANY, "its speaker has said almost the same before"),
    Reason("asked_again", _MUCH, _ANY, "the same was asked before"),
    Reason("worked", 0, 0, "no sentence of work"),
    Reason("work_sentences", 0, 0, "no sentence of work"),
    Reason("bare", 0, 0, "no sentence of work"),
    Reason("instructs", 1, 1, "a line begins with the marker of an instruction"),
    Reason("solves", 1, 1, "a line begins with the marker of a solution"),
    Reason("asks_next", 1, 1, "it asks for the next instruction"),
    Reason("questions", 1, _ANY, "it asks"),
    Reason("promise", 0.01, _ANY, "it promises"),
    Reason("accept", 0.01, _ANY, "it accepts"),
    Reason("delay", 0.01, _ANY, "it asks for time"),
    Reason("thanks", 0.01, _ANY, "it thanks"),
    Reason("leave", 0.01, _ANY, "it takes leave"),
    Reason("serve", 0.01, _ANY, "it offers help or waits for orders"),
    Reason("assign", 0.01, _ANY, "it gives the other work to do"),
    Reason("restate", 0.01, _ANY, "it says what is wanted"),
    Reason("deliver", 0.01, _ANY, "it hands something over"),
    Reason("finished", 0.01, _ANY, "it says that all is done"),
    Reason("refuse", 0.01, _ANY, "it declines"),
)


def explain_feature(name: str, value: float) -> str | None:
    """Return in words what a feature says; None if it says little to a reader."""
    for reason in _REASONS:
        if name.startswith(reason.beginning) and reason.least <= value <= reason.most:
            return reason.words
    return None
