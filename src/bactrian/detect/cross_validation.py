"""Scores of conversations by models that have not seen their authors, and calibration on them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import log
from typing import Any

from bactrian.detect.conversation import DetectedConversation
from bactrian.detect.labelled import LabelledConversation
from bactrian.detect.loops import LOOP, SHORTEST_LOOP
from bactrian.detect.model import DetectorModel, Head
from bactrian.detect.training import (
    BUILT_IN,
    HeadPlan,
    TrainingSet,
    import_optional,
    train_model,
)
from bactrian.detect.trees import Forest

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
    held_out = tuple(one.id for one in part)
    model = train_model(data, plans, frozenset(held_out))
    return Fold(held_out, model, tuple(score for one in part for score in score_conversation(model, one)))


def split_by_group(conversations: Sequence[LabelledConversation]) -> list[list[LabelledConversation]]:
    """Return the conversations of each group; in five parts if there are fewer than three groups."""
    parts: defaultdict[str, list[LabelledConversation]] = defaultdict(list)
    few = len({one.group for one in conversations}) < _FEW
    for place, one in enumerate(conversations):
        parts[str(place % _PARTS) if few else one.group].append(one)
    return [parts[name] for name in sorted(parts)]


def score_conversation(model: DetectorModel, conversation: LabelledConversation) -> list[HeldOutScore]:
    """Score the labelled turns of a conversation."""
    detected = DetectedConversation(model, conversation.turns)
    scored: list[HeldOutScore] = []
    for head in model.heads:
        targets = conversation.list_targets(head.behaviour)
        for place, (turn, target) in enumerate(zip(conversation.turns, targets, strict=True)):
            if target is not None and head.applies_to(turn):
                scored.append(
                    HeldOutScore(
                        conversation.id,
                        conversation.is_ordinary,
                        place + 1,
                        head.name,
                        head.behaviour,
                        tuple(head.forest.add_up(detected.make_row(place, head))),
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
            _calibrate(head, [one for one in scores if one.head == head.name]) for head in model.heads
        ),
    )


def _calibrate(head: Head, scores: Sequence[HeldOutScore]) -> Head:
    numpy = import_optional("numpy")
    ordinary = [one for one in scores if one.is_ordinary]
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
    threshold = float(values.max()) + 1
    if slope > 0:
        thresholds = [(log(least / (1 - least)) - intercept) / slope for least in LEASTS]
        threshold = _choose_threshold(values, shown, weights, thresholds)
    found = [one for one in scores if one.score >= threshold]
    return replace(
        head,
        calibration=(slope, intercept),
        threshold=threshold,
        forest=replace(head.forest, checks=_choose_checks(head.forest, [one.sums for one in found])),
    )


def _choose_threshold(values: Any, shown: Any, weights: Any, thresholds: Sequence[float]) -> float:
    figures: list[tuple[float, float]] = []
    for threshold in thresholds:
        found = values >= threshold
        right = (found & shown).sum()
        weight = weights[found].sum()
        figures.append(
            (
                2 * right / (found.sum() + shown.sum()),
                weights[found & shown].sum() / weight if weight else 0.0,
            )
        )
    least = max(f1 for f1, _ in figures) - _COST
    allowed = [place for place, (f1, _) in enumerate(figures) if f1 >= least]
    best = max(allowed, key=lambda place: (min(_PRECISE, figures[place][1]), figures[place][0]))
    return thresholds[best]


def _choose_checks(forest: Forest, found: Sequence[tuple[float, ...]]) -> tuple[tuple[int, float], ...]:
    """Return the checks of a forest: below them were hardly any of the turns that are found in the end."""
    if len(found) < _FEW_FOUND:
        return ()
    given_up = int(_GIVEN_UP * len(found))
    lowest = [sorted(column)[given_up] for column in zip(*found, strict=True)]
    return tuple((count, low) for (count, _), low in zip(forest.checks, lowest, strict=False))
