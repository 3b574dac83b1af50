"""A function in the critic's place."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass

from bactrian.play.critic.choosing import CriticQuestion
from bactrian.records.candidate import Decision
from bactrian.records.text import Text
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class ScoringCritic:
    """Scores conversations: the higher the score of one so far, the better it is."""

    score: Callable[[Sequence[Turn]], float]
    name: str = "score"

    async def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        """Rank by score; of equals the first is the better."""
        ways = question.ways or {
            one.place: [question.speaker.turn(one, usage=Usage(), seconds=0.0)] for one in question.proposals
        }
        scores = {place: self.score([*question.turns, *way]) for place, way in ways.items()}
        best = sorted(scores, key=lambda place: -scores[place])[: question.keep]
        first = question.proposals[0]
        reason = ", ".join(f"{place}: {scores[place]:g}" for place in scores)
        yield Decision(
            first.number,
            first.round,
            len(question.heard) + 1,
            first.speaker,
            self.name,
            Text(""),
            best[0],
            reason,
            kept=tuple(best) if question.ways else (),
        )
