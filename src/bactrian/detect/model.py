"""A trained detector: scores of sentences by their wording, then trees over all features of a turn.

Each behaviour of each speaker has a head of its own. A head first scores every sentence by its n-grams (a linear
model); its trees see the summary of these scores, the features of the turn (:mod:`.features`) and the most important
ones of its neighbours. The result is a calibrated confidence.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from math import exp
from operator import itemgetter
from typing import Any

from bactrian.detect.features import list_names
from bactrian.detect.trees import Forest, read_forest, write_forest
from bactrian.detect.turns import ReadTurn
from bactrian.detect.wording import Gram, LinearWeights, WordingScorer
from bactrian.files.json_text import parse_json

SUMMARIES = ("mean", "highest", "lowest", "first", "last", "positive")
"""Summaries of the scores of a turn's sentences."""
OF_NEIGHBOURS = tuple(
    """length sentences questions_share instructs solves asks_next is_done code numbers bare_share work_sentences
    said_before said_before_jaccard new_words like_own news_share news promise_share accept_share delay_share
    thanks_share leave_share serve_share""".split()
)
"""Features of a neighbouring turn that a head sees."""
_NO_SUMMARY = (0.0,) * len(SUMMARIES)
LIKELY = 0.5
"""Confidence from which a turn is found."""
_DOUBTFUL = 0.49


@dataclass(frozen=True, eq=False, repr=False)
class Head:
    """The model of one behaviour of one speaker."""

    behaviour: str
    speaker: str | None
    """``user`` or ``assistant``; None for both."""
    neighbours: tuple[int, ...]
    """Offsets of the neighbouring turns that it sees."""
    linear: LinearWeights
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
        return max(confidence, LIKELY) if score >= self.threshold else min(confidence, _DOUBTFUL)


# Not slotted: a cached property needs a place to be kept in.
@dataclass(frozen=True, eq=False, repr=False)
class DetectorModel:
    """Heads over one vocabulary."""

    vocabulary: Mapping[Gram, int]
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

    def get_head(self, behaviour: str) -> Head:
        """Return the head of a behaviour that both speakers share. Raises KeyError if not found."""
        for head in self.heads:
            if head.behaviour == behaviour and head.speaker is None:
                return head
        raise KeyError(behaviour)

    @cached_property
    def select_shared(self) -> Callable[[Sequence[float]], tuple[float, ...]]:
        """Selects the columns of :attr:`shared` from those of a turn alone."""
        places = {name: place for place, name in enumerate((*self.summaries, *list_names()))}
        return itemgetter(*(places[name] for name in self.shared))

    @cached_property
    def no_neighbour(self) -> tuple[float, ...]:
        """The columns of a neighbour that does not exist."""
        return (0.0,) * (len(self.shared) + 1)

    def list_columns(self, head: Head) -> list[str]:
        """Return the names of a row's columns; those of neighbours begin with their offset."""
        if head.neighbours not in self._columns:
            own = [*self.summaries, *list_names()]
            self._columns[head.neighbours] = own + [
                f"{offset} {name}" for offset in head.neighbours for name in (*self.shared, "there")
            ]
        return self._columns[head.neighbours]

    @cached_property
    def _columns(self) -> dict[tuple[int, ...], list[str]]:
        """The columns of a row, kept by the neighbours that it shows."""
        return {}

    @cached_property
    def _scorers(self) -> dict[bool, WordingScorer]:
        """Scorers of the user's sentences and of the assistant's: by ``by_user``."""
        return {by_user: self._make_scorer("user" if by_user else "assistant") for by_user in (True, False)}

    def _make_scorer(self, speaker: str) -> WordingScorer:
        heads = [head for head in self.heads if head.speaker in (None, speaker)]
        return WordingScorer(self.vocabulary, {head.name: head.linear for head in heads})

    def score_sentences(self, turn: ReadTurn) -> dict[str, list[float]]:
        """Return the scores of the turn's sentences, by head; of the heads that are about its speaker only."""
        return self._scorers[turn.by_user].score(turn.sentences)

    def summarize(self, scores: Mapping[str, Sequence[float]]) -> list[float]:
        """Return the summaries of all heads; zeros for a head that is not about the speaker."""
        values: list[float] = []
        for head in self.heads:
            if of := scores.get(head.name):
                count = len(of)
                positive = sum([one > 0 for one in of])
                values += (sum(of) / count, max(of), min(of), of[0], of[-1], positive / count)
            else:
                values += _NO_SUMMARY
        return values


@cache
def load_model() -> DetectorModel:
    """Load the built-in model."""
    return read_model(resources.files("bactrian.detect").joinpath("weights.json").read_text("utf-8"))


def read_model(text: str) -> DetectorModel:
    """Read a model from JSON.

    Raises:
        ValueError: it is not a model, or one that was trained on other features.
    """
    data = parse_json(text)
    if data["features"] != [*list_names(), *OF_NEIGHBOURS]:
        raise ValueError("the model was trained on other features")
    return DetectorModel(
        vocabulary={_read_gram(gram): place for place, gram in enumerate(data["vocabulary"])},
        heads=tuple(
            Head(
                behaviour=head["behaviour"],
                speaker=head["speaker"],
                neighbours=tuple(head["neighbours"]),
                linear=LinearWeights(head["bias"], head["scale"], head["weights"]),
                forest=read_forest(head["forest"]),
                calibration=(head["calibration"][0], head["calibration"][1]),
                threshold=head["threshold"],
            )
            for head in data["heads"]
        ),
        about=data["about"],
    )


def _read_gram(text: str) -> Gram:
    one, space, other = text.partition(" ")
    return (one, other) if space else text


def write_model(model: DetectorModel) -> str:
    """Return a model as JSON."""
    return json.dumps(
        {
            "about": model.about,
            "features": [*list_names(), *OF_NEIGHBOURS],
            "vocabulary": [gram if isinstance(gram, str) else " ".join(gram) for gram in model.vocabulary],
            "heads": [
                {
                    "behaviour": head.behaviour,
                    "speaker": head.speaker,
                    "neighbours": head.neighbours,
                    "bias": round(head.linear.bias, 5),
                    "scale": head.linear.scale,
                    "weights": head.linear.weights,
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
