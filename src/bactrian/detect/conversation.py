"""A conversation as a model sees it: a row of numbers for each turn, its scores, and what they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

from bactrian.detect.features import Features
from bactrian.detect.model import DetectorModel, Head
from bactrian.detect.reasons import explain_feature
from bactrian.detect.turns import ReadTurn

_REASONS = 3
"""Reasons given for a finding."""


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
        self._features = features or Features(turns)
        self._sentences = dict(enumerate(sentences))
        self._own: dict[int, list[float]] = {}
        self._joined: dict[tuple[int, tuple[int, ...]], list[float]] = {}
        self._scores: dict[tuple[str, int], float] = {}

    def describe(self, place: int) -> Mapping[str, float]:
        """Return the features of the turn at ``place``."""
        return self._features.describe(place)

    def make_row(self, place: int, head: Head) -> list[float]:
        """Return the columns of :meth:`DetectorModel.list_columns` for the turn at ``place``."""
        key = place, head.neighbours
        if key not in self._joined:
            row = list(self._make_own(place))
            for offset in head.neighbours:
                other = place + offset
                if 0 <= other < len(self.turns):
                    row += self.model.select_shared(self._make_own(other))
                    row.append(1.0)
                else:
                    row += self.model.no_neighbour
            self._joined[key] = row
        return self._joined[key]

    def _make_own(self, place: int) -> list[float]:
        """Return the columns of the turn alone."""
        if place not in self._own:
            scores = self.score_sentences(place)
            self._own[place] = [*self.model.summarize(scores), *self.describe(place).values()]
        return self._own[place]

    def score_sentences(self, place: int) -> Mapping[str, Sequence[float]]:
        """Return the scores of the sentences of the turn at ``place``, by head."""
        if place not in self._sentences:
            self._sentences[place] = self.model.score_sentences(self.turns[place])
        return self._sentences[place]

    def score(self, head: Head, place: int) -> float:
        """Return the log odds that the turn at ``place`` shows the head's behaviour."""
        key = head.name, place
        if key not in self._scores:
            self._scores[key] = head.forest.score(self.make_row(place, head))
        return self._scores[key]

    def is_shown(self, head: Head, place: int) -> bool:
        """Return True if the score reaches the head's threshold."""
        return self.score(head, place) >= head.threshold

    def explain(self, head: Head, place: int) -> tuple[str, str]:
        """Return why the turn at ``place`` is found, in words, and the sentence that shows it most."""
        columns = self.model.list_columns(head)
        reasons: dict[str, None] = {}
        row = self.make_row(place, head)
        added = [(more, column) for column, more in head.forest.explain(row).items() if more > 0]
        for _, column in sorted(added, key=itemgetter(0), reverse=True):
            if len(reasons) == _REASONS:
                break
            if reason := _explain_column(columns[column], row[column], head):
                reasons[reason] = None
        scores = self.score_sentences(place).get(head.name, [])
        sentences = self.turns[place].sentences
        quote = sentences[scores.index(max(scores))].text if scores else ""
        return "; ".join(reasons), quote


def _explain_column(column: str, value: float, head: Head) -> str | None:
    """Return in words what a column says; None if it says little to a reader."""
    if " " in column:
        return None
    if column.startswith(head.name):
        return "worded like other cases" if value > 0 else None
    return explain_feature(column, value)
