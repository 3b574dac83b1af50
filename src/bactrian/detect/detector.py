"""A trained detector: trees over what a model knows of each turn, and a second model that sees the conversation.

Each behaviour of each speaker has a head of its own. A head first scores every sentence by its n-grams (a linear
model); its trees see the summary of these scores, the features of the turn (:mod:`.features`) and the most important
ones of its neighbours. The result is a calibrated confidence.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, cached_property
from importlib import resources
from itertools import compress
from math import exp
from operator import itemgetter, mul, not_
from typing import Any, NamedTuple

from bactrian.detect.features import Features, Gram, WordingScorer, list_names
from bactrian.detect.turn_text import ReadTurn
from bactrian.files.json_text import parse_json

# Boosted decision trees (Friedman 2001), evaluated in plain Python.


class Tree(NamedTuple):
    """A tree in flat lists, one entry for each node; node 0 is the root."""

    features: list[int]  # Column that a node compares; -1 for a leaf
    thresholds: list[float]  # A value up to it goes left
    left: list[int]
    right: list[int]
    values: list[float]  # Log odds that the node adds. Those of inner nodes explain a score.


# Not slotted: a cached property needs a place to be kept in.
@dataclass(frozen=True)
class Forest:
    """A sum of trees."""

    base: float
    trees: tuple[Tree, ...]
    # Numbers of trees after which a turn may be given up, and the log odds below which it is hopeless by
    # then: hardly any turn that is found in the end is.
    checks: Sequence[tuple[int, float]]

    @cached_property
    def _parts(self) -> list[tuple[list[Any], float]]:
        """The trees between two checks, nested for speed, and the log odds below which a turn is given up."""
        parts: list[tuple[list[Any], float]] = []
        begin = 0
        for end, hopeless in (*self.checks, (len(self.trees), float("-inf"))):
            parts.append(([_nest_tree(tree) for tree in self.trees[begin:end]], hopeless))
            begin = end
        return parts

    def score(self, row: Sequence[float]) -> float:
        """Return the log odds of a row; those so far if they are hopeless at a check."""
        total = self.base
        for trees, hopeless in self._parts:
            total = _add_trees(trees, row, total)
            if total < hopeless:
                return total
        return total

    def add_up(self, row: Sequence[float]) -> list[float]:
        """Return the log odds of a row at each check, and at the end."""
        total = self.base
        return [total := _add_trees(trees, row, total) for trees, _ in self._parts]

    def explain(self, row: Sequence[float]) -> dict[int, float]:
        """Return what each column adds to the score: the change of value along the path (Saabas 2014)."""
        added: defaultdict[int, float] = defaultdict(float)
        for features, thresholds, left, right, values in self.trees:
            node = 0
            while (feature := features[node]) >= 0:
                child = (left if row[feature] <= thresholds[node] else right)[node]
                added[feature] += values[child] - values[node]
                node = child
        return added


def _add_trees(trees: Sequence[Any], row: Sequence[float], total: float) -> float:
    for feature, threshold, left, right in trees:
        while feature >= 0:
            feature, threshold, left, right = left if row[feature] <= threshold else right  # noqa: PLW2901
        total += threshold
    return total


def _nest_tree(tree: Tree, node: int = 0) -> Any:
    """Return a node as ``(feature, threshold, left, right)``; a leaf has its value in place of the threshold."""
    feature = tree.features[node]
    if feature < 0:
        return feature, tree.values[node], None, None
    left, right = tree.left[node], tree.right[node]
    return feature, tree.thresholds[node], _nest_tree(tree, left), _nest_tree(tree, right)


# Summaries of the scores of a turn's sentences.
SUMMARIES = ("mean", "highest", "lowest", "first", "last", "positive")
# Features of a neighbouring turn that a head sees.
OF_NEIGHBOURS = tuple(
    """length sentences questions_share instructs solves asks_next is_done code numbers bare_share work_sentences
    said_before said_before_jaccard new_words like_own news_share news promise_share accept_share delay_share
    thanks_share leave_share serve_share""".split()
)
_NO_SUMMARY = (0.0,) * len(SUMMARIES)
LIKELY = 0.5  # confidence from which a turn is found, and counts
POSSIBLE = 0.4  # confidence from which it is a candidate: shown as possible, and counted only if confirmed
_DOUBTFUL = 0.49


@dataclass(frozen=True, eq=False, repr=False)
class Head:
    """The model of one behaviour of one speaker."""

    behaviour: str
    speaker: str | None  # ``user`` or ``assistant``; None for both
    neighbours: tuple[int, ...]  # Offsets of the neighbouring turns that it sees
    bias: float
    scale: float
    weights: Sequence[int]  # of the vocabulary's n-grams, in units of ``scale``; from -127 to 127
    forest: Forest
    calibration: tuple[float, float]  # Slope and intercept of the confidence's log odds (Platt 1999)
    threshold: float  # Log odds from which a finding is reported

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

    vocabulary: Mapping[Gram, int]  # n-grams of sentences, by their place in the heads' weights
    heads: tuple[Head, ...]
    about: Mapping[str, Any]  # how it was made: hash of the data, counts, figures

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
        positions = {name: position for position, name in enumerate((*self.summaries, *list_names()))}
        return itemgetter(*(positions[name] for name in self.shared))

    @cached_property
    def no_neighbour(self) -> tuple[float, ...]:
        """The columns of a neighbour that does not exist."""
        return (0.0,) * (len(self.shared) + 1)

    def list_columns(self, head: Head) -> list[str]:
        """Return the names of a row's columns; those of neighbours begin with their offset."""
        shared = (*self.shared, "there")
        of_neighbours = [f"{offset} {name}" for offset in head.neighbours for name in shared]
        return [*self.summaries, *list_names(), *of_neighbours]

    @cached_property
    def _scorers(self) -> dict[bool, WordingScorer]:
        """Scorers of the user's sentences and of the assistant's: by ``by_user``."""
        return {by_user: self._make_scorer("user" if by_user else "assistant") for by_user in (True, False)}

    def _make_scorer(self, speaker: str) -> WordingScorer:
        heads = [head for head in self.heads if head.speaker in (None, speaker)]
        weights = {head.name: (head.bias, head.scale, head.weights) for head in heads}
        return WordingScorer(self.vocabulary, weights)

    def score_sentences(self, turn: ReadTurn) -> dict[str, list[float]]:
        """Return the scores of the turn's sentences, by head; of the heads that are about its speaker only."""
        return self._scorers[turn.by_user].score(turn.sentences)

    def summarize(self, scores: Mapping[str, Sequence[float]]) -> list[float]:
        """Return the summaries of all heads; zeros for a head that is not about the speaker."""
        values: list[float] = []
        for head in self.heads:
            if of := scores.get(head.name):
                count = len(of)
                positive = sum([score > 0 for score in of])
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
        vocabulary={read_gram(gram): position for position, gram in enumerate(data["vocabulary"])},
        heads=tuple(map(_read_head, data["heads"])),
        about=data["about"],
    )


def _read_head(data: dict[str, Any]) -> Head:
    data["forest"] = read_forest(data["forest"])
    data["neighbours"] = tuple(data["neighbours"])
    return Head(**data)


def read_forest(data: dict[str, Any]) -> Forest:
    """Return the forest that JSON holds."""
    return Forest(data["base"], tuple(Tree(*tree) for tree in data["trees"]), data.get("checks", ()))


def read_gram(text: str) -> Gram:
    """Return the n-gram that a text stands for."""
    word, space, other = text.partition(" ")
    return (word, other) if space else text


def write_gram(gram: Gram) -> str:
    """Return an n-gram as text."""
    return gram if isinstance(gram, str) else " ".join(gram)


def write_model(model: DetectorModel) -> str:
    """Return a model as JSON."""
    content = {
        "about": model.about,
        "features": [*list_names(), *OF_NEIGHBOURS],
        "vocabulary": [write_gram(gram) for gram in model.vocabulary],
        "heads": model.heads,
    }
    return json.dumps(content, default=_list_fields, ensure_ascii=False, separators=(",", ":"))


def _list_fields(record: Head | Forest) -> dict[str, Any]:
    # Not by ``asdict``, which would copy each of the 200,000 numbers.
    return {field.name: getattr(record, field.name) for field in fields(record)}


# A conversation as a model sees it: a row of numbers for each turn, its scores, and what they come from.


@cache
def _load_reasons() -> list[tuple[str, float, float, str]]:
    text = resources.files("bactrian.detect").joinpath("reasons.toml").read_text("utf-8")
    return [(name, least, most, words) for name, least, most, words in tomllib.loads(text)["reasons"]]


_MOST_REASONS = 3  # Reasons given for a finding


class DetectedConversation:
    """A conversation with the scores of a model. Each turn is scored when first asked for."""

    def __init__(
        self,
        model: DetectorModel,
        turns: Sequence[ReadTurn],
        sentences: Sequence[Mapping[str, Sequence[float]]] = (),
        features: Features | None = None,
    ) -> None:
        """Take the turns, and if they are known their sentences' scores by head and their features."""
        self.model = model
        self.turns = turns
        self.features = features or Features(turns)
        self._sentences = dict(enumerate(sentences))
        self._turn_columns: dict[int, list[float]] = {}
        self._joined: dict[tuple[int, tuple[int, ...]], list[float]] = {}
        self._scores: dict[tuple[str, int], float] = {}

    def describe(self, index: int) -> Mapping[str, float]:
        """Return the features of the turn at ``index``."""
        return self.features.describe(index)

    def make_row(self, index: int, head: Head) -> list[float]:
        """Return the columns of :meth:`DetectorModel.list_columns` for the turn at ``index``."""
        key = index, head.neighbours
        if key not in self._joined:
            row = list(self._make_columns(index))
            for offset in head.neighbours:
                other = index + offset
                if 0 <= other < len(self.turns):
                    row += self.model.select_shared(self._make_columns(other))
                    row.append(1.0)
                else:
                    row += self.model.no_neighbour
            self._joined[key] = row
        return self._joined[key]

    def _make_columns(self, index: int) -> list[float]:
        """Return the columns of the turn alone."""
        if index not in self._turn_columns:
            scores = self.score_sentences(index)
            self._turn_columns[index] = [*self.model.summarize(scores), *self.describe(index).values()]
        return self._turn_columns[index]

    def score_sentences(self, index: int) -> Mapping[str, Sequence[float]]:
        """Return the scores of the sentences of the turn at ``index``, by head."""
        if index not in self._sentences:
            self._sentences[index] = self.model.score_sentences(self.turns[index])
        return self._sentences[index]

    def score(self, head: Head, index: int) -> float:
        """Return the log odds that the turn at ``index`` shows the head's behaviour."""
        key = head.name, index
        if key not in self._scores:
            self._scores[key] = head.forest.score(self.make_row(index, head))
        return self._scores[key]

    def is_shown(self, head: Head, index: int) -> bool:
        """Return True if the score reaches the head's threshold."""
        return self.score(head, index) >= head.threshold

    def explain(self, head: Head, index: int) -> tuple[str, str]:
        """Return why the turn at ``index`` is found, in words, and the sentence that shows it most."""
        columns = self.model.list_columns(head)
        reasons: dict[str, None] = {}
        row = self.make_row(index, head)
        added = [(more, column) for column, more in head.forest.explain(row).items() if more > 0]
        for _, column in sorted(added, key=itemgetter(0), reverse=True):
            if len(reasons) == _MOST_REASONS:
                break
            if reason := _explain_column(columns[column], row[column], head):
                reasons[reason] = None
        scores = self.score_sentences(index).get(head.name, [])
        sentences = self.turns[index].sentences
        quote = sentences[scores.index(max(scores))].text if scores else ""
        return "; ".join(reasons), quote


def _explain_column(column: str, value: float, head: Head) -> str | None:
    """Return in words what a column says; None if it says little to a reader."""
    if " " in column:
        return None
    if column.startswith(head.name):
        return "worded like other cases" if value > 0 else None
    return next(
        (
            words
            for beginning, least, most, words in _load_reasons()
            if column.startswith(beginning) and least <= value <= most
        ),
        None,
    )


# A second model, which has learned from conversations of real models: it sees a turn and all of its conversation.
#
# The heads of :mod:`.detector` learned from invented conversations and see a turn with its neighbours. What they say of
# every turn of its speaker, before and after, is what this model adds: an agent that has flipped stays so.
# It is linear: trees learned the sources that they were trained on.


_OPENING = 4  # turns in which a protocol shows
_MARKED = 0.2  # share of the turns with a marker, from which they follow a protocol
_LONG = 3  # words of a sentence that is an echo if the other says it, too
# Whose things a turn speaks of, in English: a customer says "my order", a clerk "your order".
# They begin with letters, which the search looks for far faster than for the edge of a word.
_MY = re.compile(r"(?:m(?<=\bm)(?:y|ine)|i(?<=\bi)(?: need| want|'d like| would like))\b")
_YOUR = re.compile(r"your(?<=\byour)s?\b")
# What the conversation adds to a turn's own columns.
AROUND = tuple(
    "here mean highest mean_before mean_after my your echoed like_other more_like_other like_before".split()
)


# Not slotted: a cached property needs a place to be kept in.
@dataclass(frozen=True)
class ContextHead:
    """The model of one behaviour of one speaker."""

    head: str  # Name of the head whose row it sees
    bias: float
    weights: Sequence[float]  # of the columns of the head's row, then :data:`AROUND`
    calibration: tuple[float, float]  # Slope and intercept of the confidence's log odds (Platt 1999)
    sure: float  # Log odds from which a turn counts
    possible: float  # Log odds from which it is a candidate
    about: Mapping[str, Any] = field(default_factory=dict[str, Any])  # how it was made

    @cached_property
    def _used(self) -> tuple[Sequence[float], Callable[[Sequence[float]], Sequence[float]]]:
        """The weights that are not zero, and what selects their columns."""
        used = [column for column, weight in enumerate(self.weights) if weight]
        return [self.weights[column] for column in used], itemgetter(*used)

    def score(self, row: Sequence[float]) -> float:
        """Return the log odds of a row."""
        weights, select = self._used
        return self.bias + sum(map(mul, weights, select(row)))

    def calibrate(self, score: float) -> float:
        """Return the confidence of a score."""
        slope, intercept = self.calibration
        return round(1 / (1 + exp(-(slope * score + intercept))), 2)


def follow_protocol(marked: Sequence[bool]) -> bool:
    """Return True if turns of which some are ``marked`` follow the protocol."""
    return any(marked[:_OPENING]) or sum(marked) > _MARKED * len(marked)


@cache
def load_context() -> ContextHead:
    """Load the built-in model."""
    return ContextHead(
        **parse_json(resources.files("bactrian.detect").joinpath("context.json").read_text("utf-8"))
    )


# Not slotted: a cached property needs a ``__dict__``.
@dataclass(frozen=True, eq=False, repr=False)
class Surroundings:
    """A conversation as the model sees it."""

    detected: DetectedConversation
    head: Head  # the head whose row it sees

    def make_row(self, index: int) -> list[float]:
        """Return the columns of the turn at ``index``: the head's own, then those of the conversation.

        These are the head's confidence in this turn, its mean and maximum over the speaker's turns, and its means
        before and after this turn; then :meth:`_compare`.
        """
        place = self._by_user[:index].count(self._by_user[index])
        total, past, count = sum(self._confidences), sum(self._confidences[:place]), len(self._confidences)
        here, later = self._confidences[place], count - place - 1
        return [
            *self.detected.make_row(index, self.head),
            here,
            total / count,
            max(self._confidences),
            past / place if place else 0.0,
            (total - past - here) / later if later else 0.0,
            *self._compare(index),
        ]

    def _compare(self, index: int) -> tuple[float, ...]:
        """Return whose things a user's turn speaks of, and how much of it the other says, too.

        That is the share of its sentences that the other says anywhere, the likeness to the other's turns that it does
        not answer, how much it is more like these than like its speaker's own, and the likeness to the turn before.
        """
        turn, sets = self.detected.turns[index], self.detected.features.words
        mine, size = sets[index].all, sets[index].size
        alike = [
            (shared := (mine & words.all).bit_count()) / (size + words.size - shared or 1) for words in sets
        ]
        before = alike[index - 1] if index else 0.0
        # Neither itself nor the turn that it answers.
        alike[index] = 0.0
        if index and not self._by_user[index - 1]:
            alike[index - 1] = 0.0
        like_own = max(compress(alike, self._by_user))
        like_other = max(compress(alike, map(not_, self._by_user)), default=0.0)
        said = {tuple(sentence.stems) for sentence in turn.sentences if len(sentence.stems) >= _LONG}
        return (
            len(_MY.findall(turn.prose)),
            len(_YOUR.findall(turn.prose)),
            len(said & self._said_by_assistant) / max(1, len(said)),
            like_other,
            like_other - like_own,
            before,
        )

    @cached_property
    def _by_user(self) -> list[bool]:
        return [turn.by_user for turn in self.detected.turns]

    @cached_property
    def _said_by_assistant(self) -> set[tuple[str, ...]]:
        others = compress(self.detected.turns, map(not_, self._by_user))
        return {tuple(sentence.stems) for turn in others for sentence in turn.sentences}

    @cached_property
    def _confidences(self) -> list[float]:
        """What the head says of the turns of its speaker."""
        turns = enumerate(self.detected.turns)
        scores = [
            self.detected.score(self.head, index) for index, turn in turns if self.head.applies_to(turn)
        ]
        return [1 / (1 + exp(-score)) for score in scores]
