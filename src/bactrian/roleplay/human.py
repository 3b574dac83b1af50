"""A human participant: an agent whose replies come from a source of lines instead of a model."""

from __future__ import annotations

from typing import Protocol

from bactrian.errors import Stopped
from bactrian.models.model import Reply, ReplyChoice, Request
from bactrian.protocol.markers import DONE, read_instruction, read_solution, write_instruction, write_solution
from bactrian.records.session import HUMAN
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Speaker, Usage

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
        prompt = _MODERATION if request.response_format else _PROMPTS.get(request.agent, _PROMPT)
        text = ""
        while not text:
            text = format_line(await self.source.ask(prompt), request.agent)
        return Reply((ReplyChoice(Text(text)),), Usage(), HUMAN)

    async def close(self) -> None:
        """Do nothing: no resources are held."""


CONTINUED = "(a backslash at its end continues it)"
_PROMPT = f"Your message {CONTINUED}, or stop:"
_MODERATION = f"{_PROMPT[:-1]}. Its last line is Next: ROLE, or {DONE} at the end:"
_PROMPTS = {
    "user": f"Your instruction {CONTINUED}, or done, or stop:",
    "assistant": f"Your solution {CONTINUED}, or stop:",
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
