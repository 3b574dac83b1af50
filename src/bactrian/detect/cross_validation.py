"""Scores of conversations by models that have not seen their authors, and calibration on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

from bactrian.detect.loops import LOOP, SHORTEST_LOOP
from bactrian.detect.model import DetectorModel
from bactrian.detect.training import (
    BUILT_IN,
    HeadPlan,
    LabelledConversation,
    TrainingSet,
    import_optional,
    train_model,
)

PREVALENCE = 1 / 30
"""Share of turns that show a behaviour in ordinary conversations, for which confidences are calibrated."""
LEAST = 0.45
"""Confidence from which on a turn is found. F1 is highest at half its best value (0.4), precision further up."""
_FEW, _PARTS = 3, 5


@dataclass(frozen=True, slots=True)
class HeldOutScore:
    """The score of a labelled turn by a model that has not seen its group."""

    conversation: LabelledConversation
    number: int
    head: str
    behaviour: str
    score: float
    is_target: bool
    """True if the head should have scored it high."""


@dataclass(frozen=True, slots=True)
class Fold:
    """Conversations that were held out, and the model that has not seen them."""

    held_out: tuple[LabelledConversation, ...]
    model: DetectorModel
    scores: tuple[HeldOutScore, ...]


def cross_validate(
    data: TrainingSet,
    parts: Iterable[Sequence[LabelledConversation]],
    plans: Sequence[HeadPlan] = BUILT_IN,
) -> Iterator[Fold]:
    """Hold out each of ``parts`` in turn, train on all other conversations, and score what was held out."""
    for part in parts:
        model = train_model(data, plans, frozenset(one.id for one in part))
        scores = tuple(score for one in part for score in score_conversation(model, one))
        yield Fold(tuple(part), model, scores)


def split_by_group(conversations: Sequence[LabelledConversation]) -> list[list[LabelledConversation]]:
    """Return the conversations of each group; in five parts if there are fewer than three groups."""
    parts: defaultdict[str, list[LabelledConversation]] = defaultdict(list)
    few = len({one.group for one in conversations}) < _FEW
    for place, one in enumerate(conversations):
        parts[str(place % _PARTS) if few else one.group].append(one)
    return [parts[name] for name in sorted(parts)]


def score_conversation(model: DetectorModel, conversation: LabelledConversation) -> list[HeldOutScore]:
    """Score the labelled turns of a conversation."""
    detected = model.detect(conversation.turns)
    scored: list[HeldOutScore] = []
    for head in model.heads:
        targets = conversation.list_targets(head.behaviour)
        for turn in detected.score(head, whole=True):
            target = targets[turn.turn - 1]
            if target is not None:
                scored.append(
                    HeldOutScore(conversation, turn.turn, head.name, head.behaviour, turn.score, target)
                )
    return scored


def calibrate_model(model: DetectorModel, scores: Sequence[HeldOutScore]) -> DetectorModel:
    """Give every head its confidences and its threshold, from held-out scores of ordinary conversations.

    Turns are weighted so that :data:`PREVALENCE` of them show the behaviour. The threshold is the score at
    which the confidence is :data:`LEAST`, not the one at which F1 was highest: that one depends on a few turns.
    """
    return replace(
        model,
        heads=tuple(
            replace(head, **_calibrate([one for one in scores if one.head == head.name]))
            for head in model.heads
        ),
    )


def _calibrate(scores: Sequence[HeldOutScore]) -> dict[str, Any]:
    numpy = import_optional("numpy")
    ordinary = [one for one in scores if one.conversation.is_ordinary]
    use = ordinary if len({one.is_target for one in ordinary}) > 1 else list(scores)
    values = numpy.array([one.score for one in use])
    shown = numpy.array([one.is_target for one in use])
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
    threshold = (log(LEAST / (1 - LEAST)) - intercept) / slope if slope > 0 else float(values.max()) + 1
    return {"calibration": (slope, intercept), "threshold": threshold}
