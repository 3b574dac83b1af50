"""A second model, which has learned from conversations of real models: it sees a turn and all of its conversation.

The heads of :mod:`.detector` learned from invented conversations and see a turn with its neighbours. What they say of
every turn, before and after, is what this model adds: an agent that has flipped stays so, and one that promises the
work promises it again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, cached_property
from importlib import resources
from itertools import accumulate
from math import exp
from typing import Any

from bactrian.detect.detector import DetectedConversation, Forest, Head, read_forest
from bactrian.files.json_text import parse_json

_OPENING = 4  # turns in which a protocol shows
_MARKED = 0.2  # share of the turns with a marker, from which they follow a protocol


@dataclass(frozen=True, slots=True)
class ContextHead:
    """The model of one behaviour of one speaker."""

    head: str  # Name of the head whose row it sees
    forest: Forest
    calibration: tuple[float, float]  # Slope and intercept of the confidence's log odds (Platt 1999)
    sure: float  # Log odds from which a turn counts
    possible: float  # Log odds from which it is a candidate

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
    for head in data["heads"]:
        head["forest"] = read_forest(head["forest"])
    heads = [ContextHead(**head) for head in data["heads"]]
    return ContextModel({head.head: head for head in heads}, data["about"])


def write_context(model: ContextModel) -> str:
    """Return a model as JSON."""
    content = {"about": model.about, "heads": [asdict(head) for head in model.heads.values()]}
    return json.dumps(content, separators=(",", ":"))


# Not slotted: a cached property needs a ``__dict__``.
@dataclass(frozen=True, eq=False, repr=False)
class Surroundings:
    """A conversation as the model sees it."""

    detected: DetectedConversation

    def make_row(self, index: int, head: Head) -> list[float]:
        """Return the columns of the turn at ``index``: the head's own, then those of the conversation.

        For each head: its confidence in this turn, mean and maximum over the speaker's turns, its means before and
        after this turn, and over the other speaker's turns. Then the number of turns, the share that is past, the
        number of turns that the speaker still has, and whether the turns have markers of the protocol.
        """
        turns = self.detected.turns
        by_user = turns[index].by_user
        mine, other = self._of_speaker[by_user], self._of_speaker[not by_user]
        place = self._places[index]
        count = len(mine.sums) - 1
        total = mine.sums[-1]
        past, here = mine.sums[place], self._confidences[index]
        later = count - place - 1
        nothing = [0.0] * len(here)
        return [
            *self.detected.make_row(index, head),
            *here,
            *[value / count for value in total],
            *mine.highest,
            *([value / place for value in past] if place else nothing),
            *([(a - b - c) / later for a, b, c in zip(total, past, here, strict=True)] if later else nothing),
            *other.mean,
            len(turns),
            index / len(turns),
            later,
            self._marked,
        ]

    @cached_property
    def _marked(self) -> bool:
        marked = [turn.instructs or turn.solves for turn in self.detected.turns]
        return any(marked[:_OPENING]) or sum(marked) > _MARKED * len(marked)

    @cached_property
    def _confidences(self) -> list[list[float]]:
        """What each head says of each turn; zero if it is about the other speaker."""
        return [
            [
                1 / (1 + exp(-self.detected.score(head, index))) if head.applies_to(turn) else 0.0
                for head in self.detected.model.heads
            ]
            for index, turn in enumerate(self.detected.turns)
        ]

    @cached_property
    def _places(self) -> list[int]:
        """For each turn, how many turns its speaker had before."""
        seen = {True: 0, False: 0}
        places: list[int] = []
        for turn in self.detected.turns:
            places.append(seen[turn.by_user])
            seen[turn.by_user] += 1
        return places

    @cached_property
    def _of_speaker(self) -> dict[bool, _Said]:
        pairs = list(zip(self.detected.turns, self._confidences, strict=True))
        heads = len(self.detected.model.heads)
        return {
            by_user: _add_up([row for turn, row in pairs if turn.by_user == by_user], heads)
            for by_user in (True, False)
        }


@dataclass(frozen=True, slots=True)
class _Said:
    """What the heads say of one speaker's turns."""

    sums: list[list[float]]  # up to each turn, beginning with zeros
    highest: list[float]

    @property
    def mean(self) -> list[float]:
        return [value / max(1, len(self.sums) - 1) for value in self.sums[-1]]


def _add_up(rows: Sequence[list[float]], heads: int) -> _Said:
    nothing = [0.0] * heads
    sums = accumulate(rows, lambda a, b: [x + y for x, y in zip(a, b, strict=True)], initial=nothing)
    return _Said(list(sums), [max(column) for column in zip(*rows, strict=True)] if rows else nothing)
