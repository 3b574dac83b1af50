"""A trained detector: scores of sentences by their wording, then trees over all features of a turn.

Each behaviour of each speaker has a head of its own. A head first scores every sentence by its n-grams (a linear
model); its trees see the summary of these scores, the features of the turn (:mod:`.features`) and the most important
ones of its neighbours. The result is a calibrated confidence.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from math import exp, sqrt
from typing import Any, NamedTuple

from bactrian.detect.features import NOTHING, describe_turns, explain_feature
from bactrian.detect.trees import Forest, read_forest, write_forest
from bactrian.detect.turns import ReadTurn, Sentence
from bactrian.files.json_text import parse_json

SUMMARIES = ("mean", "highest", "lowest", "first", "last", "positive")
"""Summaries of the scores of a turn's sentences."""
OF_NEIGHBOURS = tuple(
    """length sentences questions_share instructs solves asks_next is_done items code numbers bare work_sentences
    said_before said_before_jaccard new_words like_own news_share news promise_share accept_share delay_share
    thanks_share leave_share serve_share""".split()
)
"""Features of a neighbouring turn that a head sees."""
_REASONS = 3
"""Reasons given for a finding."""
_NO_SUMMARY = (0.0,) * len(SUMMARIES)
_LIKELY, _DOUBTFUL = 0.5, 0.49


@dataclass(frozen=True, eq=False, repr=False)
class Head:
    """The model of one behaviour of one speaker."""

    behaviour: str
    speaker: str | None
    """``user`` or ``assistant``; None for both."""
    neighbours: tuple[int, ...]
    """Offsets of the neighbouring turns that it sees."""
    bias: float
    scale: float
    weights: list[int]
    """Of the vocabulary's n-grams, in units of ``scale``."""
    forest: Forest
    calibration: tuple[float, float]
    """Slope and intercept of the confidence's log odds (Platt 1999)."""
    threshold: float
    """Log odds from which a finding is reported."""

    @cached_property
    def name(self) -> str:
        """The name of its sentence scores."""
        return f"{self.behaviour}_{self.speaker or 'any'}"

    def applies_to(self, turn: ReadTurn) -> bool:
        """Return True if it is about the turn's speaker."""
        return self.speaker is None or (self.speaker == "user") == turn.by_user

    def calibrate(self, score: float) -> float:
        """Return the confidence of a score; below the threshold it is less than one half."""
        slope, intercept = self.calibration
        confidence = round(1 / (1 + exp(-(slope * score + intercept))), 2)
        return max(confidence, _LIKELY) if score >= self.threshold else min(confidence, _DOUBTFUL)


class TurnScore(NamedTuple):
    """What a head says of a turn."""

    turn: int
    """From 1."""
    behaviour: str
    score: float
    """Log odds."""
    confidence: float
    is_shown: bool
    """True if the score reaches the head's threshold."""


class DetectedConversation:
    """A conversation with the scores of a model."""

    def __init__(
        self,
        model: DetectorModel,
        turns: Sequence[ReadTurn],
        sentences: Sequence[Mapping[str, Sequence[float]]],
        described: Sequence[Mapping[str, float]],
    ) -> None:
        """Take the scores of each turn's sentences by head, and the turns' features."""
        self.model = model
        self.turns = turns
        self._sentences = sentences
        self.features = [
            {**model.summarize(scores), **features}
            for scores, features in zip(sentences, described, strict=True)
        ]
        self._scores: dict[str, list[TurnScore]] = {}
        self._joined: dict[tuple[int, tuple[int, ...]], list[float]] = {}
        self._rows = [list(features.values()) for features in self.features]
        self._shared = [[features[name] for name in model.shared] for features in self.features]

    def make_row(self, place: int, head: Head) -> list[float]:
        """Return the columns of :meth:`DetectorModel.list_columns` for the turn at ``place``."""
        key = place, head.neighbours
        if key not in self._joined:
            self._joined[key] = self._join_row(place, head.neighbours)
        return self._joined[key]

    def _join_row(self, place: int, neighbours: tuple[int, ...]) -> list[float]:
        row = list(self._rows[place])
        for offset in neighbours:
            other = place + offset
            if 0 <= other < len(self.turns):
                row += self._shared[other]
                row.append(1.0)
            else:
                row += [0.0] * (len(self.model.shared) + 1)
        return row

    def score(self, head: Head, *, whole: bool = False) -> Sequence[TurnScore]:
        """Score the turns of the head's speaker; all trees vote on every turn if ``whole``."""
        if whole:
            return self._score(head, whole=True)
        if head.name not in self._scores:
            self._scores[head.name] = self._score(head, whole=False)
        return self._scores[head.name]

    def _score(self, head: Head, *, whole: bool) -> list[TurnScore]:
        scored: list[TurnScore] = []
        for place, turn in enumerate(self.turns):
            if head.applies_to(turn):
                score = head.forest.score(self.make_row(place, head), whole=whole)
                scored.append(
                    TurnScore(
                        turn.number, head.behaviour, score, head.calibrate(score), score >= head.threshold
                    )
                )
        return scored

    def explain(self, head: Head, number: int) -> tuple[str, str]:
        """Return why a turn is found, in words, and the sentence that shows it most."""
        place = number - 1
        columns = self.model.list_columns(head)
        reasons: dict[str, None] = {}
        row = self.make_row(place, head)
        for column, added in head.forest.explain(row).most_common():
            if added <= 0 or len(reasons) == _REASONS:
                break
            if reason := _explain_column(columns[column], row[column], head):
                reasons[reason] = None
        scores = self._sentences[place].get(head.name, [])
        sentences = self.turns[place].sentences
        quote = sentences[scores.index(max(scores))].text if scores else ""
        return "; ".join(reasons), quote


# Not slotted: a cached property needs a place to be kept in.
@dataclass(frozen=True, eq=False, repr=False)
class DetectorModel:
    """Heads over one vocabulary."""

    vocabulary: Mapping[str, int]
    """n-grams of sentences, by their place in the heads' weights."""
    heads: tuple[Head, ...]
    about: Mapping[str, Any]
    """How it was made: hash of the data, counts, figures."""

    @cached_property
    def summaries(self) -> tuple[str, ...]:
        """Names of the sentence scores' summaries."""
        return tuple(f"{head.name}_{summary}" for head in self.heads for summary in SUMMARIES)

    @cached_property
    def shared(self) -> tuple[str, ...]:
        """Names of the features that neighbours share."""
        return (*self.summaries, *OF_NEIGHBOURS)

    def get_head(self, behaviour: str, speaker: str | None = None) -> Head:
        """Return the head of a behaviour of a speaker. Raises KeyError if not found."""
        for head in self.heads:
            if head.behaviour == behaviour and head.speaker == speaker:
                return head
        raise KeyError(behaviour)

    def list_columns(self, head: Head) -> list[str]:
        """Return the names of a row's columns; those of neighbours begin with their offset."""
        own = [*self.summaries, *_NAMES]
        return own + [f"{offset} {name}" for offset in head.neighbours for name in (*self.shared, "there")]

    def detect(self, turns: Sequence[ReadTurn]) -> DetectedConversation:
        """Prepare a conversation for scoring."""
        sentences = [self.score_sentences(turn) for turn in turns]
        return DetectedConversation(self, turns, sentences, describe_turns(turns))

    def score_sentences(self, turn: ReadTurn) -> dict[str, list[float]]:
        """Return the scores of the turn's sentences, by head; of the heads that are about its speaker only."""
        heads = [head for head in self.heads if head.applies_to(turn)]
        known = [self._look_up(sentence) for sentence in turn.sentences]
        if not known:
            return {}
        return {
            head.name: [
                head.bias + head.scale * sum(map(head.weights.__getitem__, places)) / sqrt(len(places) + 1)
                for places in known
            ]
            for head in heads
        }

    def summarize(self, scores: Mapping[str, Sequence[float]]) -> dict[str, float]:
        """Return the summaries of all heads; zeros for a head that is not about the speaker."""
        values: list[float] = []
        for head in self.heads:
            if of := scores.get(head.name):
                count = len(of)
                positive = sum([one > 0 for one in of])
                values += (sum(of) / count, max(of), min(of), of[0], of[-1], positive / count)
            else:
                values += _NO_SUMMARY
        return dict(zip(self.summaries, values, strict=True))

    def _look_up(self, sentence: Sentence) -> list[int]:
        vocabulary = self.vocabulary
        return [*map(vocabulary.__getitem__, vocabulary.keys() & sentence.grams)]


@cache
def load_model() -> DetectorModel:
    """Load the built-in model."""
    return read_model(resources.files("bactrian.detect").joinpath("weights.json").read_text("utf-8"))


def read_model(text: str) -> DetectorModel:
    """Read a model from JSON."""
    data = parse_json(text)
    return DetectorModel(
        vocabulary={gram: place for place, gram in enumerate(data["vocabulary"])},
        heads=tuple(
            Head(
                behaviour=head["behaviour"],
                speaker=head["speaker"],
                neighbours=tuple(head["neighbours"]),
                bias=head["bias"],
                scale=head["scale"],
                weights=head["weights"],
                forest=read_forest(head["forest"]),
                calibration=(head["calibration"][0], head["calibration"][1]),
                threshold=head["threshold"],
            )
            for head in data["heads"]
        ),
        about=data["about"],
    )


def write_model(model: DetectorModel) -> str:
    """Return a model as JSON."""
    return json.dumps(
        {
            "about": model.about,
            "vocabulary": list(model.vocabulary),
            "heads": [
                {
                    "behaviour": head.behaviour,
                    "speaker": head.speaker,
                    "neighbours": head.neighbours,
                    "bias": round(head.bias, 5),
                    "scale": head.scale,
                    "weights": head.weights,
                    "forest": write_forest(head.forest),
                    "calibration": [round(one, 4) for one in head.calibration],
                    "threshold": round(head.threshold, 5),
                }
                for head in model.heads
            ],
        },
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _explain_column(column: str, value: float, head: Head) -> str | None:
    """Return in words what a column says; None if it says little to a reader."""
    if " " in column:
        return None
    if column.startswith(head.name):
        return "worded like other cases" if value > 0 else None
    return explain_feature(column, value)


_NAMES = tuple(describe_turns([NOTHING])[0])
"""Names of the features of :func:`describe_turns`."""
