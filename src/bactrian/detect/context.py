"""A second model, which has learned from conversations of real models: it sees a turn and all of its conversation.

The heads of :mod:`.detector` learned from invented conversations and see a turn with its neighbours. What they say of
every turn of its speaker, before and after, is what this model adds: an agent that has flipped stays so, and one that
promises the work promises it again. It is linear: trees learned the sources that they were trained on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from importlib import resources
from itertools import accumulate
from math import exp
from operator import mul
from typing import Any

from bactrian.detect.detector import DetectedConversation, DetectorModel, Head
from bactrian.files.json_text import parse_json

_OPENING = 4  # turns in which a protocol shows
_MARKED = 0.2  # share of the turns with a marker, from which they follow a protocol
_LONG = 3  # words of a sentence that is an echo if the other says it, too
# Whose things a turn speaks of, in English: a customer says "my order", a clerk "your order".
_MY = re.compile(r"\b(?:my|mine|i need|i want|i'd like|i would like)\b")
_YOUR = re.compile(r"\byours?\b")
# What the conversation adds to a turn's own columns.
AROUND = tuple(
    """here mean highest mean_before mean_after turns share_past later marked my your echoed like_other
    more_like_other like_before""".split()
)


@dataclass(frozen=True, slots=True)
class ContextHead:
    """The model of one behaviour of one speaker."""

    head: str  # Name of the head whose row it sees
    bias: float
    weights: Sequence[float]  # of the columns of :func:`list_context_columns`
    calibration: tuple[float, float]  # Slope and intercept of the confidence's log odds (Platt 1999)
    sure: float  # Log odds from which a turn counts
    possible: float  # Log odds from which it is a candidate

    def score(self, row: Sequence[float]) -> float:
        """Return the log odds of a row."""
        return self.bias + sum(map(mul, self.weights, row))

    def calibrate(self, score: float) -> float:
        """Return the confidence of a score."""
        slope, intercept = self.calibration
        return round(1 / (1 + exp(-(slope * score + intercept))), 2)


@dataclass(frozen=True, slots=True)
class ContextModel:
    """Heads by the names of those whose rows they see."""

    heads: Mapping[str, ContextHead]
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])  # how it was made


@cache
def load_context() -> ContextModel:
    """Load the built-in model."""
    data = parse_json(resources.files("bactrian.detect").joinpath("context.json").read_text("utf-8"))
    heads = [ContextHead(**head) for head in data["heads"]]
    return ContextModel({head.head: head for head in heads}, data["about"])


def write_context(model: ContextModel) -> str:
    """Return a model as JSON."""
    content = {"about": model.about, "heads": [asdict(head) for head in model.heads.values()]}
    return json.dumps(content, separators=(",", ":"))


def list_context_columns(model: DetectorModel, head: Head) -> list[str]:
    """Return the names of the columns that the model sees: a head's own, then :data:`AROUND`."""
    return [*model.list_columns(head), *AROUND]


# Not slotted: a cached property needs a ``__dict__``.
@dataclass(frozen=True, eq=False, repr=False)
class Surroundings:
    """A conversation as the model sees it."""

    detected: DetectedConversation

    def make_row(self, index: int, head: Head) -> list[float]:
        """Return the columns of the turn at ``index``: the head's own, then those of the conversation.

        These are the head's confidence in this turn, its mean and maximum over the speaker's turns, its means before
        and after this turn; the number of turns, the share that is past, the number of turns that the speaker still
        has, and whether the turns have markers of the protocol; then :meth:`_compare` of a user's turn.
        """
        said = self._add_up(head)
        place = self._places[index]
        total, past, count = said.sums[-1], said.sums[place], len(said.confidences)
        here = said.confidences[place]
        later = count - place - 1
        return [
            *self.detected.make_row(index, head),
            here,
            total / count,
            said.highest,
            past / place if place else 0.0,
            (total - past - here) / later if later else 0.0,
            len(self._places),
            index / len(self._places),
            later,
            self._marked,
            *(self._compare(index) if self.detected.turns[index].by_user else _NOT_COMPARED),
        ]

    def _compare(self, index: int) -> tuple[float, ...]:
        """Return whose things a turn speaks of, and how much of it the other says, too.

        That is the share of its sentences that the other says anywhere, the likeness to the other's turns that it does
        not answer, how much it is more like these than like its speaker's own, and the likeness to the turn before.
        """
        turns, sets = self.detected.turns, self.detected.features.words
        turn, mine = turns[index], sets[index]
        alike = {True: 0.0, False: 0.0}
        before = 0.0
        for other, words in enumerate(sets):
            if other == index:
                continue
            shared = (mine.all & words.all).bit_count()
            likeness = shared / max(1, mine.size + words.size - shared)
            if other == index - 1:
                before = likeness
            own = turns[other].by_user
            if (own or other != index - 1) and likeness > alike[own]:
                alike[own] = likeness
        said = {tuple(sentence.stems) for sentence in turn.sentences if len(sentence.stems) >= _LONG}
        return (
            len(_MY.findall(turn.prose)),
            len(_YOUR.findall(turn.prose)),
            len(said & self._said_by_assistant) / max(1, len(said)),
            alike[False],
            alike[False] - alike[True],
            before,
        )

    @cached_property
    def _said_by_assistant(self) -> set[tuple[str, ...]]:
        return {
            tuple(sentence.stems)
            for turn in self.detected.turns
            if not turn.by_user
            for sentence in turn.sentences
        }

    @cached_property
    def _marked(self) -> bool:
        marked = [turn.instructs or turn.solves for turn in self.detected.turns]
        return any(marked[:_OPENING]) or sum(marked) > _MARKED * len(marked)

    @cached_property
    def _places(self) -> list[int]:
        """For each turn, how many turns its speaker had before."""
        seen = {True: 0, False: 0}
        places: list[int] = []
        for turn in self.detected.turns:
            places.append(seen[turn.by_user])
            seen[turn.by_user] += 1
        return places

    def _add_up(self, head: Head) -> _Said:
        if head.name not in self._of_heads:
            turns = enumerate(self.detected.turns)
            scores = [self.detected.score(head, index) for index, turn in turns if head.applies_to(turn)]
            confidences = [1 / (1 + exp(-score)) for score in scores]
            self._of_heads[head.name] = _Said(
                confidences, [*accumulate(confidences, initial=0.0)], max(confidences)
            )
        return self._of_heads[head.name]

    @cached_property
    def _of_heads(self) -> dict[str, _Said]:
        """What heads say of the turns that they are about, kept by their names."""
        return {}


_NOT_COMPARED = (0.0,) * 6


@dataclass(frozen=True, slots=True)
class _Said:
    """What a head says of the turns of its speaker."""

    confidences: list[float]
    sums: list[float]  # of those before each turn, and of all
    highest: float
