"""Training of a detector on labelled conversations. Needs scikit-learn (the extra ``learn``).

Trees must see sentence scores as they are on new authors: within the training data they come from linear models that
have not seen the author of the turn (stacking, Wolpert 1992).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from bactrian.detect.conversation import DetectedConversation
from bactrian.detect.features import Features
from bactrian.detect.labelled import LabelledConversation
from bactrian.detect.loops import LOOP
from bactrian.detect.model import DetectorModel, Head
from bactrian.detect.trees import Forest, Tree
from bactrian.detect.wording import Gram, LinearWeights, list_grams
from bactrian.errors import MissingExtra

_INNER = 4
"""Folds in which sentence scores of the training data are made."""
_SEEN = 4
"""Turns that must contain an n-gram, and"""
_SEEN_BY = 2
"""groups (authors) that must have used it."""
_TREES = 120
_CHECKS = (5, 10, 16, 24, 36, 52, 76)
"""Numbers of trees after which hopeless turns are given up, for speed."""
_STEPS = 127
"""Steps of a weight on either side of 0."""
_SEED = 1


@dataclass(frozen=True, slots=True)
class HeadPlan:
    """A head to train."""

    behaviour: str
    speaker: str | None
    neighbours: tuple[int, ...] = (-1,)


BUILT_IN = (
    HeadPlan("flake_reply", "assistant"),
    HeadPlan("repeats_instruction", "assistant"),
    HeadPlan("role_flip", "assistant"),
    HeadPlan("role_flip", "user"),
    HeadPlan(LOOP, None, (-2, -1, 1, 2)),
)
"""The heads of the built-in model."""


class TrainingSet:
    """Labelled conversations in the form that training needs; made once, used by many folds."""

    def __init__(self, conversations: Sequence[LabelledConversation]) -> None:
        numpy, sparse = import_optional("numpy"), import_optional("scipy.sparse")
        self.conversations = conversations
        self.turns = [turn for one in conversations for turn in one.turns]
        self.groups = [one.group for one in conversations for _ in one.turns]
        self.features = [Features(one.turns) for one in conversations]
        sentences = [
            (place, sentence) for place, turn in enumerate(self.turns) for sentence in turn.sentences
        ]
        self.owner = numpy.array([place for place, _ in sentences], dtype=int)
        index: dict[Gram, int] = {}
        rows: list[int] = []
        columns: list[int] = []
        for row, (_, sentence) in enumerate(sentences):
            places = [index.setdefault(gram, len(index)) for gram in list_grams(sentence)]
            rows += [row] * len(places)
            columns += places
        self.grams = list(index)
        ones = numpy.ones(len(rows), dtype="float32")
        self.matrix = sparse.csr_matrix((ones, (rows, columns)), shape=(len(sentences), len(index)))

    def get_targets(self, plan: HeadPlan) -> tuple[Any, Any]:
        """Return, for each turn, whether it is known and about the head's speaker, and what it shows."""
        numpy = import_optional("numpy")
        labels = [label for one in self.conversations for label in one.list_targets(plan.behaviour)]
        about = [plan.speaker is None or (plan.speaker == "user") == turn.by_user for turn in self.turns]
        known = [label is not None and fits for label, fits in zip(labels, about, strict=True)]
        return numpy.array(known, dtype=bool), numpy.array([bool(label) for label in labels], dtype=bool)


def train_model(
    data: TrainingSet, plans: Sequence[HeadPlan] = BUILT_IN, without: Collection[str] = ()
) -> DetectorModel:
    """Train a model on all conversations but those with the ids ``without``.

    Scores are not calibrated yet: :func:`~bactrian.detect.cross_validation.calibrate_model` needs scores of
    conversations that were held out.

    Raises:
        MissingExtra: scikit-learn is not installed.
    """
    numpy = import_optional("numpy")
    kept = numpy.array([one.id not in without for one in data.conversations for _ in one.turns], dtype=bool)
    columns = _choose_columns(data, kept)
    matrix = _normalize_rows(data.matrix[:, columns])
    vocabulary = {data.grams[column]: place for place, column in enumerate(columns)}
    heads: list[Head] = []
    scores: dict[str, Any] = {}
    for plan in plans:
        known, shown = data.get_targets(plan)
        use = known & kept
        head, scores_of = _train_sentences(data, matrix, plan, use, shown)
        heads.append(head)
        scores[head.name] = scores_of
    model = DetectorModel(vocabulary, tuple(heads), {})
    conversations = _assemble(data, model, scores, kept)
    return replace(
        model,
        heads=tuple(
            replace(head, forest=_train_trees(data, conversations, head, plan, kept))
            for head, plan in zip(heads, plans, strict=True)
        ),
    )


def import_optional(module: str) -> Any:
    """Import a module of the extra ``learn``. Raises MissingExtra."""
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra("learn", "Training a detector") from error


def _choose_columns(data: TrainingSet, kept: Any) -> list[int]:
    """Return the n-grams that enough turns and groups have, in alphabetical order."""
    numpy = import_optional("numpy")
    use = kept[data.owner]
    coo = data.matrix[use].tocoo()
    owners = data.owner[use][coo.row]
    groups = {group: number for number, group in enumerate(sorted(set(data.groups)))}
    group_of = numpy.array([groups[group] for group in data.groups])
    width = data.matrix.shape[1]
    turns = numpy.bincount(numpy.unique(owners * width + coo.col) % width, minlength=width)
    by = numpy.bincount(numpy.unique(group_of[owners] * width + coo.col) % width, minlength=width)
    least = min(_SEEN_BY, len({group for group, keep in zip(data.groups, kept, strict=True) if keep}))
    chosen = numpy.flatnonzero((turns >= _SEEN) & (by >= least))
    return sorted(chosen.tolist(), key=lambda column: str(data.grams[column]))


def _normalize_rows(matrix: Any) -> Any:
    numpy, sparse = import_optional("numpy"), import_optional("scipy.sparse")
    norms = numpy.sqrt(numpy.asarray(matrix.sum(axis=1)).ravel() + 1)
    return (sparse.diags(1 / norms) @ matrix).tocsr()


def _train_sentences(
    data: TrainingSet, matrix: Any, plan: HeadPlan, use: Any, shown: Any
) -> tuple[Head, Any]:
    """Train the linear model of sentences; return it with the scores of all sentences.

    Sentences of the training data get the score of a model that has not seen their group.
    """
    numpy = import_optional("numpy")
    groups = sorted({group for group, keep in zip(data.groups, use, strict=True) if keep})
    folds = {group: number % _INNER for number, group in enumerate(groups)}
    fold = numpy.array([folds.get(group, -1) for group in data.groups])[data.owner]
    known, labels = use[data.owner], shown[data.owner]
    linear = _fit_linear(matrix[known], labels[known])
    scores = linear.decision_function(matrix)
    for number in range(min(_INNER, len(groups))):
        others, held = known & (fold != number), fold == number
        if held.any() and labels[others].any() and not labels[others].all():
            scores[held] = _fit_linear(matrix[others], labels[others]).decision_function(matrix[held])
    weights = linear.coef_[0]
    scale = float(f"{max(abs(weights).max(), 1e-6) / _STEPS:.4g}")
    head = Head(
        behaviour=plan.behaviour,
        speaker=plan.speaker,
        neighbours=plan.neighbours,
        linear=LinearWeights(
            float(round(linear.intercept_[0], 5)),
            scale,
            [round(weight / scale) for weight in weights.tolist()],
        ),
        forest=Forest(0.0, (), ()),
        calibration=(1.0, 0.0),
        threshold=0.0,
    )
    return head, scores


def _fit_linear(matrix: Any, labels: Any) -> Any:
    model = import_optional("sklearn.linear_model").LogisticRegression(
        C=2, class_weight="balanced", solver="liblinear", dual=True, tol=0.1, max_iter=300, random_state=_SEED
    )
    return model.fit(matrix, labels)


def _assemble(data: TrainingSet, model: DetectorModel, scores: Mapping[str, Any], kept: Any) -> list[Any]:
    """Return the conversations that are kept, with the stacked scores of their sentences; None for others."""
    by_turn: defaultdict[int, dict[str, list[float]]] = defaultdict(dict)
    for name, values in scores.items():
        for owner, value in zip(data.owner.tolist(), values.tolist(), strict=True):
            by_turn[owner].setdefault(name, []).append(value)
    assembled: list[Any] = []
    place = 0
    for one, features in zip(data.conversations, data.features, strict=True):
        turns = range(place, place + len(one.turns))
        place += len(one.turns)
        if not kept[turns[0]]:
            assembled.append(None)
            continue
        sentences = [
            {
                head.name: by_turn[turn][head.name]
                for head in model.heads
                if head.applies_to(data.turns[turn]) and by_turn[turn]
            }
            for turn in turns
        ]
        assembled.append(DetectedConversation(model, one.turns, sentences, features))
    return assembled


def _train_trees(
    data: TrainingSet, conversations: Sequence[Any], head: Head, plan: HeadPlan, kept: Any
) -> Forest:
    numpy = import_optional("numpy")
    known, shown = data.get_targets(plan)
    rows: list[list[float]] = []
    labels: list[bool] = []
    place = 0
    for one, scored in zip(data.conversations, conversations, strict=True):
        for number in range(len(one.turns)):
            if scored is not None and known[place + number] and kept[place + number]:
                rows.append(scored.make_row(number, head))
                labels.append(bool(shown[place + number]))
        place += len(one.turns)
    table, target = numpy.array(rows, dtype="float32"), numpy.array(labels)
    share = Counter(labels)
    weights = numpy.where(
        target, len(labels) / 2 / max(1, share[True]), len(labels) / 2 / max(1, share[False])
    )
    boosting = (
        import_optional("sklearn.ensemble")
        .GradientBoostingClassifier(
            n_estimators=_TREES,
            learning_rate=0.07,
            max_leaf_nodes=12,
            max_depth=6,
            max_features=0.16,
            subsample=0.7,
            min_samples_leaf=min(15, max(2, share[True] // 4)),
            random_state=_SEED,
        )
        .fit(table, target, sample_weight=weights)
    )
    trees = tuple(_read_tree(one[0].tree_, boosting.learning_rate) for one in boosting.estimators_)
    # The weights balance the classes, so that the trees begin at even odds. No turn is given up before calibration.
    return Forest(0.0, trees, tuple((count, float("-inf")) for count in _CHECKS))


def _read_tree(tree: Any, rate: float) -> Tree:
    values = (tree.value[:, 0, 0] * rate).tolist()
    return Tree(
        [max(-1, feature) for feature in tree.feature.tolist()],
        [float(round(value, 5)) for value in tree.threshold.tolist()],
        tree.children_left.tolist(),
        tree.children_right.tolist(),
        [float(round(value, 5)) for value in values],
    )
