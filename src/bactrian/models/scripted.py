"""A model that says what a script tells it to, for tests and demonstrations: no network, no weights."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bactrian.errors import ContextFull, InputError, ModelError
from bactrian.models.model import Choice, Reply, Request
from bactrian.records.text import Text, cleaned
from bactrian.records.turn import Finish
from bactrian.records.usage import Usage

if TYPE_CHECKING:
    from pydantic import ValidationError


@dataclass(frozen=True, slots=True)
class Line:
    """One reply of a script. A plain string stands for a line with that text."""

    text: str = ""
    finish: Finish = "stop"
    delay: float = 0.0
    """Seconds before the reply comes."""
    error: str | None = None
    """If given, the call fails with this message."""


Lines = Sequence[str | Line]


class Scripted:
    """Replies from a list in the order of a session's calls, or from one list for each agent.

    With a mapping, an agent (``task_specifier``, ``user``, ``assistant`` …) gets its own first, second, third line.
    Which line comes next is read off the request, so one script serves any number of sessions at once and a resumed
    session goes on where it was. With ``window``, requests longer than that many tokens (four bytes each) raise
    :class:`~bactrian.errors.ContextFull`.
    """

    def __init__(
        self, lines: Lines | Mapping[str, Lines], *, name: str = "scripted", window: int | None = None
    ) -> None:
        self.name = name
        self._lines = lines
        self._window = window

    async def reply(self, request: Request) -> Reply:
        """Say the next line of the script.

        Raises:
            ModelError: the script has no line left for this call, or the line is an error.
        """
        prompt = sum(_tokens(message.text) for message in request.messages)
        room = request.sampling.max_tokens or 0
        if self._window is not None and prompt + room > self._window:
            raise ContextFull(
                f"The request needs {prompt + room} tokens with room for its reply; "
                f"the window has {self._window}.",
                where=self.name,
            )
        line = self._line(request)
        if line.delay:
            await asyncio.sleep(line.delay)
        if line.error is not None:
            raise ModelError(line.error, where=self.name)
        text = Text(cleaned(line.text))
        if request.on_text is not None:
            request.on_text(text)
        return Reply(
            choices=(Choice(text, line.finish, lossy=text != line.text),) * request.n,
            usage=Usage(prompt, _tokens(text) * request.n, estimated=True),
            model=self.name,
            raw=text.encode(),
        )

    async def close(self) -> None:
        """Nothing to give back."""

    def _line(self, request: Request) -> Line:
        lines = self._lines
        if isinstance(lines, Mapping):
            own = lines.get(request.agent, ())
            position = sum(message.role == "assistant" for message in request.messages)
        else:
            own, position = lines, request.ordinal
        if position >= len(own):
            raise ModelError(
                f"The script has no line {position + 1} for {request.agent}; it has {len(own)}.",
                where=self.name,
                next="Add the line, or let the conversation end before it.",
            )
        line = own[position]
        return line if isinstance(line, Line) else Line(line)


def read_script(path: Path) -> Scripted:
    """Read a script from a JSON file: a list of replies, or an object with such a list for each agent.

    A reply is a string, or an object with ``text``, ``finish``, ``delay`` (seconds) and ``error``.

    Raises:
        InputError: the file cannot be read, or is not such a script.
    """
    from pydantic import TypeAdapter, ValidationError

    script = TypeAdapter[list[str | Line] | dict[str, list[str | Line]]](
        list[str | Line] | dict[str, list[str | Line]]
    )
    try:
        return Scripted(script.validate_json(path.read_bytes()), name=f"scripted:{path}")
    except OSError as error:
        raise InputError(
            f"The script cannot be read: {error.strerror}.", where=str(path), next="Check the path."
        ) from error
    except ValidationError as error:
        raise InputError(
            f"Not a script: {_first_problem(error)}.",
            where=str(path),
            next='A script is a JSON list of replies, or an object such as {"user": [...], "assistant": [...]}.',
        ) from error


def _tokens(text: str) -> int:
    return len(text.encode()) // 4 + 1


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    place = " → ".join(str(part) for part in problem["loc"] if isinstance(part, int) or part.islower())
    return f"{problem['msg']}" + (f" (at {place})" if place else "")
