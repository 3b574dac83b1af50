"""A person in the loop: an agent like any other, who waits on a source of lines instead of a model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from bactrian.errors import Stopped
from bactrian.language.protocol import (
    DONE,
    read_instruction,
    read_solution,
    write_instruction,
    write_solution,
)
from bactrian.models.model import Reply, ReplyChoice, Request
from bactrian.play.turns.chosen import ChoiceQuestion
from bactrian.records.candidate import Decision
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Speaker
from bactrian.records.usage import Usage

HUMAN = "human"
"""The name that stands for a person wherever a model's can stand."""
_STOP = "stop"
_DONE = "done"


class LineSource(Protocol):
    """Where a person's words come from: a terminal, a pipe, a page."""

    async def ask(self, prompt: str) -> str:
        """The person's answer to ``prompt``.

        Raises:
            Stopped: the person wants no more of it.
            Left: nobody answers; the session can be taken up again.
        """
        ...

    async def edit(self, prompt: str, text: str) -> str:
        """``text`` as the person changed it. Raises what :meth:`ask` raises."""
        ...


class Human:
    """Answers requests with what a person says.

    A person need not know the protocol: its markers are put around words that lack them, and ``done`` is the done
    token. ``stop`` ends the session.
    """

    name = HUMAN

    def __init__(self, source: LineSource) -> None:
        self.source = source

    async def reply(self, request: Request) -> Reply:
        """Ask the person until there is an answer."""
        text = ""
        while not text:
            text = write_as_said(await self.source.ask(_PROMPTS.get(request.agent, _PROMPT)), request.agent)
        return Reply((ReplyChoice(Text(text)),), Usage(), HUMAN)

    async def close(self) -> None:
        """Nothing to give back."""


_PROMPT = "Your message, or stop:"
_PROMPTS = {
    "user": "Your instruction, or done, or stop:",
    "assistant": "Your solution, or stop:",
}


def write_as_said(line: str, speaker: Speaker | str) -> str:
    """What ``speaker`` says with ``line``, in the form that the protocol has for it; empty if that is nothing.

    Raises:
        Stopped: the line is ``stop``.
    """
    text = clean_text(line).strip()
    if text.lower() == _STOP:
        raise Stopped("The person said stop.")
    if not text:
        return ""
    if speaker == "user":
        if text.lower() in (_DONE, DONE.lower()):
            return DONE
        return text if read_instruction(text) else write_instruction(text)
    if speaker == "assistant":
        return text if read_solution(text) else write_solution(text)
    return text


@dataclass(frozen=True, slots=True)
class HumanCritic:
    """A person who chooses a proposal, mends one, writes another, wants better ones, or stops."""

    source: LineSource
    name: str = HUMAN

    async def choose(self, question: ChoiceQuestion) -> AsyncGenerator[Decision]:
        """Ask the person until the answer can be followed."""
        begun = perf_counter()
        places = [proposal.place for proposal in question.proposals]
        prompt = _ballot(places, feedback=question.feedback)
        while True:
            line = (await self.source.ask(prompt)).strip()
            made = await self._read(line, question)
            if made is not None:
                break
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
        self, line: str, question: ChoiceQuestion
    ) -> tuple[int | None, str | None, str, str] | None:
        """Place, own words, feedback and reason of an answer; None if it cannot be followed."""
        if line.lower() == _STOP:
            raise Stopped("The person said stop.")
        proposals = {str(proposal.place): proposal for proposal in question.proposals}
        first = question.proposals[0]
        word, _, rest = line.partition(" ")
        match word.lower():
            case "write":
                text = write_as_said(rest or await self.source.ask("Your own message:"), first.speaker)
                return (None, text, "", "") if text else None
            case "edit" if rest.strip() in proposals:
                proposal = proposals[rest.strip()]
                text = write_as_said(
                    await self.source.edit(f"Proposal {proposal.place} as you want it:", proposal.text),
                    first.speaker,
                )
                if text == proposal.text.strip():
                    return proposal.place, None, "", ""
                return (None, text, "", f"A better form of {proposal.place}") if text else None
            case "again" if question.feedback and rest.strip():
                return first.place, None, rest.strip(), ""
            case _ if word in proposals:
                return proposals[word].place, None, "", rest.strip()
            case _:
                return None


def _ballot(places: Sequence[int], *, feedback: bool) -> str:
    numbers = ", ".join(map(str, places))
    again = ", again WHAT WOULD BE BETTER" if feedback else ""
    return f"{numbers} (and why), edit N, write{again}, or stop:"
