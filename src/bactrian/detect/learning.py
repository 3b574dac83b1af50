"""Training of a user's own behaviour, from labelled conversations, with figures on what was left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bactrian.detect.cross_validation import Fold, calibrate_model, hold_out, split_by_group
from bactrian.detect.labelled import LabelledConversation, hash_conversations
from bactrian.detect.model import DetectorModel
from bactrian.detect.training import HeadPlan, TrainingSet, train_model
from bactrian.errors import InputError
from bactrian.stats.proportion import Proportion

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
    right = found = shown = 0
    for fold in folds:
        others = [score for other in folds if other is not fold for score in other.scores]
        thresholds = {head.name: head.threshold for head in calibrate_model(fold.model, others).heads}
        for one in fold.scores:
            said = one.score >= thresholds[one.head]
            right, found, shown = right + (said and one.is_target), found + said, shown + one.is_target
    model = calibrate_model(train_model(data, plans), [score for fold in folds for score in fold.scores])
    about = {"data": hash_conversations(conversations), "conversations": len(conversations)}
    return LearnedModel(
        replace(model, about=about),
        len(conversations),
        len(parts),
        Proportion(right, found),
        Proportion(right, shown),
    )


def _plan_heads(conversations: Sequence[LabelledConversation], code: str) -> tuple[HeadPlan, ...]:
    """Return a head for each speaker that shows the behaviour."""
    plans: list[HeadPlan] = []
    for speaker in ("assistant", "user"):
        labels = [
            labels[code]
            for one in conversations
            for turn, labels in zip(one.turns, one.labels, strict=True)
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
