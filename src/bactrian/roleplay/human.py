"""A human participant: an agent whose replies come from a source of lines instead of a model."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from bactrian.errors import Stopped
from bactrian.models.model import Reply, ReplyChoice, Request
from bactrian.protocol.markers import (
    DONE,
    read_instruction,
    read_solution,
    write_instruction,
    write_solution,
)
from bactrian.records.session import HUMAN
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Decision, Speaker, Usage
from bactrian.roleplay.critic import CriticQuestion

STOP = "stop"  # The word that ends the session.
_DONE = "done"


class LineSource(Protocol):
    """The source of a person's input: a terminal, a pipe, a page."""

    async def ask(self, prompt: str) -> str:
        """Return the person's answer to ``prompt``.

        Raises:
            Stopped: the person ended the session.
            Left: the input ended without an answer; the session can be resumed.
        """
        ...

    async def edit(self, prompt: str, text: str) -> str:
        """Return ``text`` as the person edited it. Raises what :meth:`ask` raises."""
        ...


class Human:
    """Answers requests with a person's input.

    A person need not know the protocol: missing markers are added, and ``done`` stands for the done token. ``stop``
    ends the session.
    """

    name = HUMAN

    def __init__(self, source: LineSource) -> None:
        self.source = source

    async def reply(self, request: Request) -> Reply:
        """Ask the person until the answer is not empty."""
        text = ""
        while not text:
            text = format_line(await self.source.ask(_PROMPTS.get(request.agent, _PROMPT)), request.agent)
        return Reply((ReplyChoice(Text(text)),), Usage(), HUMAN)

    async def close(self) -> None:
        """Do nothing: no resources are held."""


_PROMPT = "Your message, or stop:"
_PROMPTS = {
    "user": "Your instruction, or done, or stop:",
    "assistant": "Your solution, or stop:",
}


def format_line(line: str, speaker: Speaker | str) -> str:
    """Return ``line`` as a turn of ``speaker`` in the protocol's format; empty if the line is empty.

    Raises:
        Stopped: the line is ``stop``.
    """
    text = clean_text(line).strip()
    if text.lower() == STOP:
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


# A human critic.


_OWN_MESSAGE = "Your own message (a backslash at its end continues it):"


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
        position, instead, feedback, reason = made
        first = question.proposals[0]
        yield Decision(
            number=first.number,
            round=first.round,
            attempt=len(question.answers) + 1,
            speaker=first.speaker,
            chooser=self.name,
            text=Text(clean_text(line)),
            place=position,
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
                text = format_line(rest or await self.source.ask(_OWN_MESSAGE), first.speaker)
                return (None, text, "", "") if text else None
            case "edit" if rest.strip() in proposals:
                proposal = proposals[rest.strip()]
                edited = await self.source.edit(f"Proposal {proposal.place} as you want it:", proposal.text)
                text = format_line(edited, first.speaker)
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
