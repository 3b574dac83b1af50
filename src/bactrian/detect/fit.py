"""Trains detectors on labelled conversations: their files, folds by author, calibration, and behaviours of users."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from math import log
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from bactrian.detect.detector import (
    DetectedConversation,
    DetectorModel,
    Forest,
    Head,
    Tree,
    read_gram,
    write_gram,
)
from bactrian.detect.features import Features, list_grams
from bactrian.detect.loops import LOOP, SHORTEST_LOOP
from bactrian.detect.turn_text import ReadTurn, Sentence, read_turn
from bactrian.errors import InputError, import_optional
from bactrian.files.json_text import parse_json, read_lines
from bactrian.stats.intervals import Proportion

load_learner = partial(import_optional, extra="learn", needed_for="Training a detector")


@dataclass(frozen=True)
class LabelledConversation:
    """A conversation whose turns are labelled."""

    id: str
    group: str  # Author, or another part of the data that cross-validation holds out as a whole
    language: str
    texts: tuple[tuple[bool, str], ...]  # For each turn, whether it is the user's, and its text
    # For each turn, whether it shows a behaviour; a behaviour that is missing is not labelled.
    labels: tuple[Mapping[str, bool], ...]
    # False if it was made to be hard; confidences are calibrated on ordinary conversations.
    is_ordinary: bool = True

    @cached_property
    def turns(self) -> tuple[ReadTurn, ...]:
        """The turns, read when they are needed first: that takes most of the time."""
        return tuple(read_turn(text, by_user=by_user) for by_user, text in self.texts)

    def list_targets(self, behaviour: str) -> list[bool | None]:
        """Return what a head learns of each turn; None if unknown.

        A loop is labelled from its fourth turn on, but the three before it go round already.
        """
        labels = [label.get(behaviour) for label in self.labels]
        if behaviour == LOOP:
            for index in [index for index, label in enumerate(labels) if label]:
                for before in range(max(0, index - SHORTEST_LOOP + 1), index):
                    labels[before] = True
        return labels


def read_labelled(path: Path) -> list[LabelledConversation]:
    """Read labelled conversations from JSON lines.

    A line is ``{"turns": [{"speaker": "user" | "assistant", "text": …, "labels": [codes]}, …]}``, and may have ``id``,
    ``author`` and ``language``. A turn without ``labels`` is not labelled.

    Raises:
        InputError: the file cannot be read, or a line is something else.
    """
    rows = [(number, _read_row(line, f"{path}:{number}")) for number, line in read_lines(path)]
    codes = sorted({code for _, row in rows for turn in row.turns for code in turn.labels or ()})
    return [
        LabelledConversation(
            id=f"{number} {row.id}",
            group=str(row.author),
            language=str(row.language),
            texts=tuple((turn.speaker == "user", turn.text) for turn in row.turns),
            labels=tuple(
                {} if turn.labels is None else {code: code in turn.labels for code in codes}
                for turn in row.turns
            ),
        )
        for number, row in rows
    ]


class _LabelledTurn(BaseModel, strict=True):
    speaker: Literal["user", "assistant"]
    text: str
    labels: list[str] | None = None


class _LabelledRow(BaseModel, strict=True):
    turns: list[_LabelledTurn]
    id: Any = ""
    author: Any = ""
    language: Any = ""


def _read_row(line: str, where: str) -> _LabelledRow:
    try:
        return _LabelledRow.model_validate(parse_json(line))
    except ValueError as error:
        raise InputError(
            "The line is not a labelled conversation.",
            where=where,
            next='Write {"turns": [{"speaker": "user", "text": "…", "labels": []}, …]}.',
        ) from error


def list_codes(conversations: Sequence[LabelledConversation]) -> list[str]:
    """Return the behaviours that some turn shows."""
    return sorted(
        {code for chat in conversations for labels in chat.labels for code, shown in labels.items() if shown}
    )


def hash_conversations(conversations: Sequence[LabelledConversation]) -> str:
    """Return a hash of texts and labels, which a model keeps of its data."""
    digest = hashlib.sha256()
    for chat in conversations:
        for (by_user, text), labels in zip(chat.texts, chat.labels, strict=True):
            digest.update(f"{chat.id}\0{by_user}\0{text}\0{sorted(labels.items())}\n".encode())
    return digest.hexdigest()


# Training of a detector on labelled conversations. Needs scikit-learn (the extra ``learn``).
#
# Trees must see sentence scores as they are on new authors: within the training data they come from linear models that
# have not seen the author of the turn (stacking, Wolpert 1992).


_INNER = 4  # Folds in which sentence scores of the training data are made
_SEEN = 4  # turns that must contain an n-gram, and
_SEEN_BY = 2  # groups (authors) that must have used it
_TREES = 120
_CHECKS = (5, 10, 16, 24, 36, 52, 76)  # Numbers of trees after which hopeless turns are given up, for speed
_STEPS = 127  # Steps of a weight on either side of 0
_SEED = 1


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """A head to train."""

    behaviour: str
    speaker: str | None
    neighbours: tuple[int, ...] = (-1,)


# The heads of the built-in model.
BUILT_IN = (
    HeadPlan("flake_reply", "assistant"),
    HeadPlan("repeats_instruction", "assistant"),
    HeadPlan("role_flip", "assistant"),
    HeadPlan("role_flip", "user"),
    HeadPlan(LOOP, None, (-2, -1, 1, 2)),
)


class TrainingSet:
    """Labelled conversations in the form that training needs; made once, used by many folds."""

    def __init__(self, conversations: Sequence[LabelledConversation]) -> None:
        numpy = load_learner("numpy")
        vectorizer = load_learner("sklearn.feature_extraction.text").CountVectorizer(
            analyzer=_write_grams, dtype="float32"
        )
        self.conversations = conversations
        self.turns = [turn for chat in conversations for turn in chat.turns]
        self.groups = numpy.unique(
            [chat.group for chat in conversations for _ in chat.turns], return_inverse=True
        )[1]
        self.features = [Features(chat.turns) for chat in conversations]
        self.owner = numpy.repeat(numpy.arange(len(self.turns)), [len(turn.sentences) for turn in self.turns])
        self.matrix = vectorizer.fit_transform(
            [sentence for turn in self.turns for sentence in turn.sentences]
        )
        self.grams: Sequence[str] = vectorizer.get_feature_names_out()

    def get_targets(self, plan: HeadPlan) -> tuple[Any, Any]:
        """Return, for each turn, whether it is known and about the head's speaker, and what it shows."""
        numpy = load_learner("numpy")
        labels = [label for chat in self.conversations for label in chat.list_targets(plan.behaviour)]
        about = [plan.speaker is None or (plan.speaker == "user") == turn.by_user for turn in self.turns]
        known = [label is not None and fits for label, fits in zip(labels, about, strict=True)]
        return numpy.array(known, dtype=bool), numpy.array([bool(label) for label in labels], dtype=bool)


def train_model(
    data: TrainingSet, plans: Sequence[HeadPlan] = BUILT_IN, without: Collection[str] = ()
) -> DetectorModel:
    """Train a model on all conversations but those with the ids ``without``.

    Scores are not calibrated yet: :func:`~bactrian.detect.fit.calibrate_model` needs scores of
    conversations that were held out.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    numpy, sparse = load_learner("numpy"), load_learner("scipy.sparse")
    kept = numpy.array([chat.id not in without for chat in data.conversations for _ in chat.turns])
    columns = _choose_columns(data, kept)
    matrix = data.matrix[:, columns]
    matrix = (sparse.diags(1 / numpy.sqrt(numpy.asarray(matrix.sum(axis=1)).ravel() + 1)) @ matrix).tocsr()
    vocabulary = {read_gram(data.grams[column]): position for position, column in enumerate(columns)}
    heads: list[Head] = []
    scores: list[Any] = []
    for plan in plans:
        known, shown = data.get_targets(plan)
        linear, scores_of_head = _train_sentences(data, matrix, known & kept, shown)
        weights = linear.coef_[0]
        scale = float(f"{max(abs(weights).max(), 1e-6) / _STEPS:.4g}")
        heads.append(
            Head(
                plan.behaviour,
                plan.speaker,
                plan.neighbours,
                bias=float(round(linear.intercept_[0], 5)),
                scale=scale,
                weights=[round(weight / scale) for weight in weights.tolist()],
                forest=Forest(0.0, (), ()),
                calibration=(1.0, 0.0),
                threshold=0.0,
            )
        )
        scores.append(scores_of_head)
    model = DetectorModel(vocabulary, tuple(heads), {})
    conversations = _assemble(data, model, scores)
    return replace(
        model,
        heads=tuple(
            replace(head, forest=_train_trees(data, conversations, head, plan, kept))
            for head, plan in zip(heads, plans, strict=True)
        ),
    )


def _write_grams(sentence: Sentence) -> list[str]:
    return [write_gram(gram) for gram in list_grams(sentence)]


def _choose_columns(data: TrainingSet, kept: Any) -> list[int]:
    """Return the n-grams that enough turns and groups have, in alphabetical order."""
    numpy, sparse = load_learner("numpy"), load_learner("scipy.sparse")
    use = kept[data.owner]
    owners, matrix = data.owner[use], data.matrix[use]

    def count_parts(part: Any) -> Any:
        """Return, for each n-gram, the number of different parts that have it."""
        among = sparse.csr_matrix((numpy.ones(len(part)), (part, numpy.arange(len(part)))))
        return numpy.asarray((among @ matrix > 0).sum(axis=0)).ravel()

    least = min(_SEEN_BY, len(numpy.unique(data.groups[kept])))
    enough = (count_parts(owners) >= _SEEN) & (count_parts(data.groups[owners]) >= least)
    return numpy.flatnonzero(enough).tolist()  # type: ignore[no-any-return]


def _train_sentences(data: TrainingSet, matrix: Any, use: Any, shown: Any) -> tuple[Any, Any]:
    """Train the linear model of sentences; return it with the scores of all sentences.

    Sentences of the training data get the score of a model that has not seen their group.
    """
    numpy = load_learner("numpy")

    def fit(rows: Any) -> Any:
        model = load_learner("sklearn.linear_model").LogisticRegression(
            C=2,
            class_weight="balanced",
            solver="liblinear",
            dual=True,
            tol=0.1,
            max_iter=300,
            random_state=_SEED,
        )
        return model.fit(matrix[rows], labels[rows])

    known, labels, groups = use[data.owner], shown[data.owner], data.groups[data.owner]
    linear = fit(numpy.flatnonzero(known))
    scores = linear.decision_function(matrix)
    if (folds := min(_INNER, len(numpy.unique(groups)))) > 1:
        splitter = load_learner("sklearn.model_selection").GroupKFold(folds)
        for rest, part in splitter.split(scores, groups=groups):
            rows = rest[known[rest]]
            if len(numpy.unique(labels[rows])) > 1:
                scores[part] = fit(rows).decision_function(matrix[part])
    return linear, scores


def _assemble(data: TrainingSet, model: DetectorModel, scores: Sequence[Any]) -> list[DetectedConversation]:
    """Return the conversations with the stacked scores of their sentences."""
    columns: list[Iterator[float]] = [iter(of.tolist()) for of in scores]
    by_turn: list[dict[str, list[float]]] = []
    for turn in data.turns:
        of_turn = [list(islice(column, len(turn.sentences))) for column in columns]
        heads = zip(model.heads, of_turn, strict=True)
        by_turn.append({head.name: of for head, of in heads if of and head.applies_to(turn)})
    rest = iter(by_turn)
    return [
        DetectedConversation(model, chat.turns, list(islice(rest, len(chat.turns))), features)
        for chat, features in zip(data.conversations, data.features, strict=True)
    ]


def _train_trees(
    data: TrainingSet, conversations: Sequence[DetectedConversation], head: Head, plan: HeadPlan, kept: Any
) -> Forest:
    numpy = load_learner("numpy")
    known, shown = data.get_targets(plan)
    turns = [(chat, number) for chat in conversations for number in range(len(chat.turns))]
    used: list[int] = numpy.flatnonzero(known & kept).tolist()
    labels: list[bool] = shown[used].tolist()
    forest = train_forest(
        [turns[index][0].make_row(turns[index][1], head) for index in used],
        labels,
        n_estimators=_TREES,
        learning_rate=0.07,
        max_leaf_nodes=12,
        max_depth=6,
        max_features=0.16,
        subsample=0.7,
        min_samples_leaf=min(15, max(2, sum(labels) // 4)),
    )
    # No turn is given up before calibration.
    return replace(forest, checks=tuple((count, float("-inf")) for count in _CHECKS))


def train_forest(rows: Sequence[Sequence[float]], labels: Sequence[bool], **settings: Any) -> Forest:
    """Train boosted trees on rows with labels; ``settings`` are those of scikit-learn's GradientBoostingClassifier."""
    weights = load_learner("sklearn.utils").compute_sample_weight("balanced", labels)
    boosting = load_learner("sklearn.ensemble").GradientBoostingClassifier(random_state=_SEED, **settings)
    boosting.fit(load_learner("numpy").array(rows, dtype="float32"), labels, sample_weight=weights)
    trees = tuple(_read_tree(row[0].tree_, boosting.learning_rate) for row in boosting.estimators_)
    # The weights balance the classes, so that the trees begin at even odds.
    return Forest(0.0, trees, ())


def _read_tree(tree: Any, rate: float) -> Tree:
    values = (tree.value[:, 0, 0] * rate).tolist()
    return Tree(
        [max(-1, feature) for feature in tree.feature.tolist()],
        [float(round(value, 5)) for value in tree.threshold.tolist()],
        tree.children_left.tolist(),
        tree.children_right.tolist(),
        [float(round(value, 5)) for value in values],
    )


# Scores of conversations by models that have not seen their authors, and calibration on them.


# Share of turns that show a behaviour in ordinary conversations, for which confidences are calibrated.
PREVALENCE = 1 / 30
# Confidences from which on turns might be found. The chosen one costs no more than
LEASTS = tuple(step / 20 for step in range(6, 17))
_COST = 0.02  # of the highest F1 on held-out turns, for a precision that is as high as this allows, up to
_PRECISE = 0.9  # where :data:`PREVALENCE` of the turns show the behaviour
_FEW, _PARTS = 3, 5
_FEW_FOUND = 30  # turns that must be found, for others to be given up early
_GIVEN_UP = 0.003  # share of the turns that are found in the end and are below a check


@dataclass(frozen=True, slots=True)
class HeldOutScore:
    """The score of a labelled turn by a model that has not seen its group."""

    conversation: str  # Its id
    is_ordinary: bool  # False if the conversation was made to be hard
    number: int
    head: str
    behaviour: str
    sums: tuple[float, ...]  # Log odds at each check of the trees, and at the end
    is_target: bool  # True if the head should have scored it high

    @property
    def score(self) -> float:
        """The log odds at the end."""
        return self.sums[-1]


@dataclass(frozen=True, slots=True)
class Fold:
    """Conversations that were held out, by id, and the model that has not seen them."""

    held_out: tuple[str, ...]
    model: DetectorModel
    scores: tuple[HeldOutScore, ...]


def hold_out(
    data: TrainingSet, part: Sequence[LabelledConversation], plans: Sequence[HeadPlan] = BUILT_IN
) -> Fold:
    """Train on all conversations but those of ``part``, and score these."""
    held_out = tuple(chat.id for chat in part)
    model = train_model(data, plans, frozenset(held_out))
    scores: list[HeldOutScore] = []
    for chat in part:
        detected = DetectedConversation(model, chat.turns)
        for head in model.heads:
            for index, target in enumerate(chat.list_targets(head.behaviour)):
                if target is not None and head.applies_to(chat.turns[index]):
                    sums = tuple(head.forest.add_up(detected.make_row(index, head)))
                    about = (chat.id, chat.is_ordinary, index + 1, head.name, head.behaviour)
                    scores.append(HeldOutScore(*about, sums, target))
    return Fold(held_out, model, tuple(scores))


def calibrate_model(model: DetectorModel, scores: Sequence[HeldOutScore]) -> DetectorModel:
    """Give every head its confidences and its threshold, from held-out scores of ordinary conversations.

    Turns are weighted so that :data:`PREVALENCE` of them show the behaviour. The threshold is the score of one of
    :data:`LEASTS`: that of the highest F1 alone would find too much where the behaviour is rare.
    """
    return replace(
        model,
        heads=tuple(
            _calibrate(head, [score for score in scores if score.head == head.name]) for head in model.heads
        ),
    )


def _calibrate(head: Head, scores: Sequence[HeldOutScore]) -> Head:
    numpy = load_learner("numpy")
    ordinary = [score for score in scores if score.is_ordinary]
    use = ordinary if len({score.is_target for score in ordinary}) > 1 else list(scores)
    values = numpy.array([score.score for score in use])
    shown = numpy.array([score.is_target for score in use])
    # A loop takes several void turns in a row: a single one may be found more readily.
    prevalence = PREVALENCE * (SHORTEST_LOOP if use and use[0].behaviour == LOOP else 1)
    weights = numpy.where(shown, prevalence / max(1, shown.sum()), (1 - prevalence) / max(1, (~shown).sum()))
    fitted = (
        load_learner("sklearn.linear_model")
        .LogisticRegression(C=100.0)
        .fit(values[:, None], shown, sample_weight=weights * len(use))
    )
    slope, intercept = float(fitted.coef_[0][0]), float(fitted.intercept_[0])
    # Where scores tell nothing, nothing is found.
    threshold = float(values.max()) + 1
    if slope > 0:
        thresholds = [(log(least / (1 - least)) - intercept) / slope for least in LEASTS]
        threshold = _choose_threshold(values, shown, weights, thresholds)
    sums = [score.sums for score in scores if score.score >= threshold]
    checks: list[tuple[int, float]] = []
    if len(sums) >= _FEW_FOUND:
        # Below a check were hardly any of the turns that are found in the end.
        lowest = [sorted(column)[int(_GIVEN_UP * len(sums))] for column in zip(*sums, strict=True)]
        checks = [(count, round(low, 4)) for (count, _), low in zip(head.forest.checks, lowest, strict=False)]
    return replace(
        head,
        calibration=(round(slope, 4), round(intercept, 4)),
        threshold=round(threshold, 5),
        forest=replace(head.forest, checks=checks),
    )


def _choose_threshold(values: Any, shown: Any, weights: Any, thresholds: Sequence[float]) -> float:
    metrics = load_learner("sklearn.metrics")
    f1: list[float] = []
    precision: list[float] = []
    for threshold in thresholds:
        above = values >= threshold
        f1.append(metrics.f1_score(shown, above, zero_division=0))
        precision.append(metrics.precision_score(shown, above, sample_weight=weights, zero_division=0))
    allowed = [number for number, value in enumerate(f1) if value >= max(f1) - _COST]
    return thresholds[max(allowed, key=lambda number: (min(_PRECISE, precision[number]), f1[number]))]


# Training of a user's own behaviour, from labelled conversations, with figures on what was left out.


LEAST = 8  # Fewest turns that show a behaviour, and that do not, from which one is learned


@dataclass(frozen=True, slots=True)
class LearnedModel:
    """A model, and how right it is on conversations that it was not trained on."""

    model: DetectorModel
    conversations: int
    groups: int  # Parts that were left out in turn: authors, or five parts
    precision: Proportion
    recall: Proportion


def learn_behaviour(
    conversations: Sequence[LabelledConversation],
    code: str,
    on_fold: Callable[[int, int], None] | None = None,
) -> LearnedModel:
    """Train a model for ``code``, and measure it on each author's conversations without them.

    Args:
        conversations: With fewer than three authors, five parts of the conversations are left out in turn.
        code: The behaviour.
        on_fold: Called with the number of parts that are done, and of all.

    Raises:
        InputError: too few turns show the behaviour, or do not.
        MissingExtra: scikit-learn is not installed.
    """
    plans = _plan_heads(conversations, code)
    data = TrainingSet(conversations)
    groups = [chat.group for chat in conversations]
    if len(set(groups)) < _FEW:
        groups = [str(number % _PARTS) for number in range(len(conversations))]
    parts = [
        [chat for chat, group in zip(conversations, groups, strict=True) if group == left_out]
        for left_out in sorted(set(groups))
    ]
    folds: list[Fold] = []
    for part in parts:
        folds.append(hold_out(data, part, plans))
        if on_fold is not None:
            on_fold(len(folds), len(parts))
    # By whether a turn is found, and whether it should be.
    counts: Counter[tuple[bool, bool]] = Counter()
    for fold in folds:
        others = [score for other in folds if other is not fold for score in other.scores]
        thresholds = {head.name: head.threshold for head in calibrate_model(fold.model, others).heads}
        counts.update((score.score >= thresholds[score.head], score.is_target) for score in fold.scores)
    model = calibrate_model(train_model(data, plans), [score for fold in folds for score in fold.scores])
    about = {"data": hash_conversations(conversations), "conversations": len(conversations)}
    return LearnedModel(
        replace(model, about=about),
        len(conversations),
        len(parts),
        Proportion(counts[True, True], counts[True, True] + counts[True, False]),
        Proportion(counts[True, True], counts[True, True] + counts[False, True]),
    )


def _plan_heads(conversations: Sequence[LabelledConversation], code: str) -> tuple[HeadPlan, ...]:
    """Return a head for each speaker that shows the behaviour."""
    plans: list[HeadPlan] = []
    for speaker in ("assistant", "user"):
        labels = [
            labels[code]
            for chat in conversations
            for turn, labels in zip(chat.turns, chat.labels, strict=True)
            if code in labels and turn.by_user == (speaker == "user")
        ]
        if sum(labels) >= LEAST and len(labels) - sum(labels) >= LEAST:
            plans.append(HeadPlan(code, speaker))
    if not plans:
        raise InputError(
            f"Too few turns are labelled for {code!r}.",
            where="labels",
            next=f"Label at least {LEAST} turns of one speaker that show it, and {LEAST} that do not.",
        )
    return tuple(plans)
