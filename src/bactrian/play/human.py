"""A person in the loop: an agent like any other, whose replies come from a source of lines instead of a model."""

from __future__ import annotations

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
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Speaker
from bactrian.records.usage import Usage

HUMAN = "human"
"""The name that stands for a person wherever a model's can stand."""
STOP = "stop"
"""What a person says to end the session."""
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
