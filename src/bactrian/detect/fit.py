"""Labelled conversations, from which detectors learn, and their files."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import import_module
from itertools import islice
from math import log
from pathlib import Path
from typing import Any, cast

from bactrian.detect.detector import DetectedConversation, DetectorModel, Forest, Head, Tree
from bactrian.detect.features import Features, Gram, LinearWeights, list_grams
from bactrian.detect.loops import LOOP, SHORTEST_LOOP
from bactrian.detect.turn_text import ReadTurn, read_turn
from bactrian.errors import InputError, MissingExtra
from bactrian.files.json_text import parse_json, read_lines
from bactrian.stats.intervals import Proportion


@dataclass(frozen=True)
class LabelledConversation:
    """A conversation whose turns are labelled."""

    id: str
    group: str
    """Author, or another part of the data that cross-validation holds out as a whole."""
    language: str
    said: tuple[tuple[bool, str], ...]
    """For each turn, whether the user says it, and its text."""
    labels: tuple[Mapping[str, bool], ...]
    """For each turn, whether it shows a behaviour; a behaviour that is missing is not labelled."""
    is_ordinary: bool = True
    """False if it was made to be hard; confidences are calibrated on ordinary conversations."""

    @cached_property
    def turns(self) -> tuple[ReadTurn, ...]:
        """The turns, read when they are needed first: that takes most of the time."""
        return tuple(read_turn(text, by_user=by_user) for by_user, text in self.said)

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
    codes = sorted({code for _, row in rows for turn in row["turns"] for code in turn.get("labels") or ()})
    return [
        LabelledConversation(
            id=f"{number} {row.get('id', '')}",
            group=str(row.get("author", "")),
            language=str(row.get("language", "")),
            said=tuple((turn["speaker"] == "user", turn["text"]) for turn in row["turns"]),
            labels=tuple(
                {code: code in turn["labels"] for code in codes} if "labels" in turn else {}
                for turn in row["turns"]
            ),
        )
        for number, row in rows
    ]


def list_codes(conversations: Sequence[LabelledConversation]) -> list[str]:
    """Return the behaviours that some turn shows."""
    return sorted(
        {code for chat in conversations for labels in chat.labels for code, shown in labels.items() if shown}
    )


def hash_conversations(conversations: Sequence[LabelledConversation]) -> str:
    """Return a hash of texts and labels, which a model keeps of its data."""
    digest = hashlib.sha256()
    for chat in conversations:
        for (by_user, text), labels in zip(chat.said, chat.labels, strict=True):
            digest.update(f"{chat.id}\0{by_user}\0{text}\0{sorted(labels.items())}\n".encode())
    return digest.hexdigest()


def _read_row(line: str, where: str) -> dict[str, Any]:
    try:
        row = cast("dict[str, Any]", parse_json(line))
        good = all(
            turn["speaker"] in ("user", "assistant")
            and isinstance(turn["text"], str)
            and all(isinstance(code, str) for code in turn.get("labels", []))
            for turn in row["turns"]
        )
    except (ValueError, KeyError, TypeError):
        good = False
        row = {}
    if not good:
        raise InputError(
            "The line is not a labelled conversation.",
            where=where,
            next='Write {"turns": [{"speaker": "user", "text": "…", "labels": []}, …]}.',
        )
    return row


# Training of a detector on labelled conversations. Needs scikit-learn (the extra ``learn``).
#
# Trees must see sentence scores as they are on new authors: within the training data they come from linear models that
# have not seen the author of the turn (stacking, Wolpert 1992).


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
        self.turns = [turn for chat in conversations for turn in chat.turns]
        self.groups = [chat.group for chat in conversations for _ in chat.turns]
        self.features = [Features(chat.turns) for chat in conversations]
        sentences = [
            (place, sentence) for place, turn in enumerate(self.turns) for sentence in turn.sentences
        ]
        self.owner = numpy.array([place for place, _ in sentences], dtype=int)
        seen: dict[Gram, int] = {}
        rows: list[int] = []
        columns: list[int] = []
        for row, (_, sentence) in enumerate(sentences):
            places = [seen.setdefault(gram, len(seen)) for gram in list_grams(sentence)]
            rows += [row] * len(places)
            columns += places
        self.grams = list(seen)
        ones = numpy.ones(len(rows), dtype="float32")
        self.matrix = sparse.csr_matrix((ones, (rows, columns)), shape=(len(sentences), len(seen)))

    def get_targets(self, plan: HeadPlan) -> tuple[Any, Any]:
        """Return, for each turn, whether it is known and about the head's speaker, and what it shows."""
        numpy = import_optional("numpy")
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
    numpy = import_optional("numpy")
    kept = numpy.array(
        [chat.id not in without for chat in data.conversations for _ in chat.turns],
        dtype=bool,
    )
    columns = _choose_columns(data, kept)
    matrix = _normalize_rows(data.matrix[:, columns])
    vocabulary = {data.grams[column]: place for place, column in enumerate(columns)}
    heads: list[Head] = []
    scores: dict[str, Any] = {}
    for plan in plans:
        known, shown = data.get_targets(plan)
        head, scores_of_head = _train_sentences(data, matrix, plan, known & kept, shown)
        heads.append(head)
        scores[head.name] = scores_of_head
    model = DetectorModel(vocabulary, tuple(heads), {})
    conversations = _assemble(data, model, scores)
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


def _assemble(
    data: TrainingSet, model: DetectorModel, scores: Mapping[str, Any]
) -> list[DetectedConversation]:
    """Return the conversations with the stacked scores of their sentences."""
    by_turn: list[dict[str, list[float]]] = [{} for _ in data.turns]
    for head in model.heads:
        owners: list[int] = data.owner.tolist()
        for turn, score in zip(owners, scores[head.name].tolist(), strict=True):
            if head.applies_to(data.turns[turn]):
                by_turn[turn].setdefault(head.name, []).append(score)
    rest = iter(by_turn)
    return [
        DetectedConversation(model, chat.turns, list(islice(rest, len(chat.turns))), features)
        for chat, features in zip(data.conversations, data.features, strict=True)
    ]


def _train_trees(
    data: TrainingSet, conversations: Sequence[DetectedConversation], head: Head, plan: HeadPlan, kept: Any
) -> Forest:
    numpy = import_optional("numpy")
    known, shown = data.get_targets(plan)
    turns = [(chat, number) for chat in conversations for number in range(len(chat.turns))]
    used: list[int] = numpy.flatnonzero(known & kept).tolist()
    rows = [turns[index][0].make_row(turns[index][1], head) for index in used]
    labels: list[bool] = shown[used].tolist()
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
    trees = tuple(_read_tree(row[0].tree_, boosting.learning_rate) for row in boosting.estimators_)
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


# Scores of conversations by models that have not seen their authors, and calibration on them.


PREVALENCE = 1 / 30
"""Share of turns that show a behaviour in ordinary conversations, for which confidences are calibrated."""
LEASTS = tuple(step / 20 for step in range(6, 17))
"""Confidences from which on turns might be found. The chosen one costs no more than"""
_COST = 0.02
"""of the highest F1 on held-out turns, for a precision that is as high as this allows, up to"""
_PRECISE = 0.9
"""where :data:`PREVALENCE` of the turns show the behaviour."""
_FEW, _PARTS = 3, 5
_FEW_FOUND = 30
"""Turns that must be found, for others to be given up early."""
_GIVEN_UP = 0.003
"""Share of the turns that are found in the end and are below a check."""


@dataclass(frozen=True, slots=True)
class HeldOutScore:
    """The score of a labelled turn by a model that has not seen its group."""

    conversation: str
    """Its id."""
    is_ordinary: bool
    """False if the conversation was made to be hard."""
    number: int
    head: str
    behaviour: str
    sums: tuple[float, ...]
    """Log odds at each check of the trees, and at the end."""
    is_target: bool
    """True if the head should have scored it high."""

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
    return Fold(
        held_out,
        model,
        tuple(score for chat in part for score in score_conversation(model, chat)),
    )


def split_by_group(conversations: Sequence[LabelledConversation]) -> list[list[LabelledConversation]]:
    """Return the conversations of each group; in five parts if there are fewer than three groups."""
    parts: defaultdict[str, list[LabelledConversation]] = defaultdict(list)
    few = len({chat.group for chat in conversations}) < _FEW
    for number, chat in enumerate(conversations):
        parts[str(number % _PARTS) if few else chat.group].append(chat)
    return [parts[name] for name in sorted(parts)]


def score_conversation(model: DetectorModel, conversation: LabelledConversation) -> list[HeldOutScore]:
    """Score the labelled turns of a conversation."""
    detected = DetectedConversation(model, conversation.turns)
    scored: list[HeldOutScore] = []
    for head in model.heads:
        targets = conversation.list_targets(head.behaviour)
        for index, (turn, target) in enumerate(zip(conversation.turns, targets, strict=True)):
            if target is not None and head.applies_to(turn):
                scored.append(
                    HeldOutScore(
                        conversation.id,
                        conversation.is_ordinary,
                        index + 1,
                        head.name,
                        head.behaviour,
                        tuple(head.forest.add_up(detected.make_row(index, head))),
                        target,
                    )
                )
    return scored


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
    numpy = import_optional("numpy")
    ordinary = [score for score in scores if score.is_ordinary]
    use = ordinary if len({score.is_target for score in ordinary}) > 1 else list(scores)
    values = numpy.array([score.score for score in use])
    shown = numpy.array([score.is_target for score in use])
    # A loop takes several void turns in a row: a single one may be found more readily.
    prevalence = PREVALENCE * (SHORTEST_LOOP if use and use[0].behaviour == LOOP else 1)
    weights = numpy.where(shown, prevalence / max(1, shown.sum()), (1 - prevalence) / max(1, (~shown).sum()))
    fitted = (
        import_optional("sklearn.linear_model")
        .LogisticRegression(C=100.0)
        .fit(values[:, None], shown, sample_weight=weights * len(use))
    )
    slope, intercept = float(fitted.coef_[0][0]), float(fitted.intercept_[0])
    # Where scores tell nothing, nothing is found.
    threshold = float(values.max()) + 1
    if slope > 0:
        thresholds = [(log(least / (1 - least)) - intercept) / slope for least in LEASTS]
        threshold = _choose_threshold(values, shown, weights, thresholds)
    above = [score for score in scores if score.score >= threshold]
    return replace(
        head,
        calibration=(slope, intercept),
        threshold=threshold,
        forest=replace(head.forest, checks=_choose_checks(head.forest, [score.sums for score in above])),
    )


def _choose_threshold(values: Any, shown: Any, weights: Any, thresholds: Sequence[float]) -> float:
    figures: list[tuple[float, float]] = []  # F1 and weighted precision
    for threshold in thresholds:
        above = values >= threshold
        weight = weights[above].sum()
        f1 = 2 * (above & shown).sum() / (above.sum() + shown.sum())
        figures.append((f1, weights[above & shown].sum() / weight if weight else 0.0))
    least = max(f1 for f1, _ in figures) - _COST
    allowed = [number for number, (f1, _) in enumerate(figures) if f1 >= least]
    best = max(allowed, key=lambda number: (min(_PRECISE, figures[number][1]), figures[number][0]))
    return thresholds[best]


def _choose_checks(forest: Forest, sums: Sequence[tuple[float, ...]]) -> tuple[tuple[int, float], ...]:
    """Return the checks of a forest: below them were hardly any of the turns that are found in the end."""
    if len(sums) < _FEW_FOUND:
        return ()
    given_up = int(_GIVEN_UP * len(sums))
    lowest = [sorted(column)[given_up] for column in zip(*sums, strict=True)]
    return tuple((count, low) for (count, _), low in zip(forest.checks, lowest, strict=False))


# Training of a user's own behaviour, from labelled conversations, with figures on what was left out.


LEAST = 8
"""Fewest turns that show a behaviour, and that do not, from which one is learned."""


@dataclass(frozen=True, slots=True)
class LearnedModel:
    """A model, and how right it is on conversations that it was not trained on."""

    model: DetectorModel
    conversations: int
    groups: int
    """Parts that were left out in turn: authors, or five parts."""
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
    parts = split_by_group(conversations)
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
