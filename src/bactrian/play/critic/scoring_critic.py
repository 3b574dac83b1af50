"""A critic that is a scoring function."""

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
    """Ranks candidates by the score of the conversation that each would make; higher is better."""

    score: Callable[[Sequence[Turn]], float]
    name: str = "score"

    async def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        """Rank by score; of two equal scores the first candidate wins."""
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
