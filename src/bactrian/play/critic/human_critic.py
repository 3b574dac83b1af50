"""A human critic."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from time import perf_counter

from bactrian.errors import Stopped
from bactrian.play.critic.choosing import CriticQuestion
from bactrian.play.human import HUMAN, STOP, LineSource, write_as_said
from bactrian.records.candidate import Decision
from bactrian.records.text import Text, clean_text

_OWN = "Your own message (a backslash at its end continues it):"


@dataclass(frozen=True, slots=True)
class HumanCritic:
    """Lets a person choose a proposal, edit one, write another, ask for better ones, or stop."""

    source: LineSource
    name: str = HUMAN

    async def choose(self, question: CriticQuestion) -> AsyncGenerator[Decision]:
        """Ask the person until the answer is valid."""
        begun = perf_counter()
        places = [proposal.place for proposal in question.proposals]
        prompt = _prompt(places, feedback=question.feedback)
        line = (await self.source.ask(prompt)).strip()
        while (made := await self._read(line, question)) is None:
            line = (await self.source.ask(f"{_explain(line, places)}\n{prompt}")).strip()
        place, instead, feedback, reason = made
        first = question.proposals[0]
        yield Decision(
            number=first.number,
            round=first.round,
            attempt=len(question.heard) + 1,
            speaker=first.speaker,
            chooser=self.name,
            text=Text(clean_text(line)),
            place=place,
            reason=reason,
            feedback=feedback,
            instead=None if instead is None else Text(instead),
            seconds=perf_counter() - begun,
            model=HUMAN,
        )

    async def _read(
        self, line: str, question: CriticQuestion
    ) -> tuple[int | None, str | None, str, str] | None:
        """Return index, own text, feedback and reason of an answer; None if it is not valid."""
        if line.lower() == STOP:
            raise Stopped("The person said stop.")
        proposals = {str(proposal.place): proposal for proposal in question.proposals}
        first = question.proposals[0]
        word, _, rest = line.partition(" ")
        match word.lower():
            case "write":
                text = write_as_said(
                    rest or await self.source.ask("Your own message (a backslash at its end continues it):"),
                    first.speaker,
                )
                return (None, text, "", "") if text else None
            case "edit" if rest.strip() in proposals:
                proposal = proposals[rest.strip()]
                text = write_as_said(
                    await self.source.edit(f"Proposal {proposal.place} as you want it:", proposal.text),
                    first.speaker,
                )
                if text == proposal.text.strip():
                    return proposal.place, None, "", ""
                return (None, text, "", f"An edit of {proposal.place}") if text else None
            case "again" if question.feedback and rest.strip():
                return first.place, None, rest.strip(), ""
            case _ if word in proposals:
                return proposals[word].place, None, "", rest.strip()
            case _:
                return None


def _explain(line: str, places: Sequence[int]) -> str:
    """Return what is wrong with an answer."""
    word, _, rest = line.partition(" ")
    number = rest.strip() if word.lower() == "edit" else word
    if number.isdecimal():
        return f"There is no proposal {number}."
    match word.lower():
        case "":
            return "Nothing was chosen."
        case "edit":
            return f"Which one? For example: edit {places[0]}"
        case "write":
            return "Nothing was written."
        case "again":
            return "Say what would be better: again SHORTER" if rest == "" else "No further round is left."
        case _:
            return f"{word!r} is not an answer. For example: {places[0]} it is shorter"


def _prompt(places: Sequence[int], *, feedback: bool) -> str:
    numbers = ", ".join(map(str, places))
    again = ", again WHAT WOULD BE BETTER" if feedback else ""
    return f"{numbers} (and why), edit N, write{again}, or stop:"
