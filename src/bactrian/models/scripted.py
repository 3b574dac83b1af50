"""A model that replies from a script, for tests and demonstrations without network or weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, cast, get_args

from pydantic import ConfigDict, Strict, TypeAdapter, ValidationError

from bactrian.errors import ContextFull, InputError, Refused, explain_os_errors
from bactrian.files.json_text import parse_json
from bactrian.models.model import Reply, Request, Traits, make_choice
from bactrian.models.text_tools import add_tools_as_text
from bactrian.records.turn import Finish, Usage


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One reply of a script. A plain string is short for a reply with that text."""

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid")

    text: str = ""
    finish: Finish = "stop"
    delay: Annotated[float, Strict()] = 0.0  # Seconds before the reply; neither "3" nor True in a file
    error: str | None = None  # If set, the call fails with this message


# A sequence contains alternatives, for requests of several replies.
ScriptLine = str | ScriptedReply | Sequence[str | ScriptedReply]
Lines = Sequence[ScriptLine]


class Scripted:
    """A model that replies from a list in the order of a session's calls, or from one list per agent.

    With a mapping, each agent (``task_specifier``, ``user``, ``assistant`` …) has its own list. The next line is
    derived from the request, so that one script serves any number of sessions at once, and a resumed session continues
    at the right line. If a line is a list of alternatives, a request for several replies returns as many as there are,
    and a repeated request returns the next one. A critic needs one such line per turn. With ``window``, requests longer
    than that many tokens (four bytes each) raise :class:`~bactrian.errors.ContextFull`. A script calls tools in plain
    text, see :mod:`~bactrian.models.text_tools`.

    Example:
        >>> import bactrian as bt
        >>> model = bt.Scripted({"user": ["<CAMEL_TASK_DONE>"]})
        >>> bt.play("Choose a tea", model=model, specify=False).ending.code
        'task_done'
    """

    def __init__(
        self,
        lines: str | Lines | Mapping[str, str | Lines],
        *,
        name: str = "scripted",
        window: int | None = None,
    ) -> None:
        self.name = name
        self.traits = Traits(priced=False)
        # A text is a sequence of texts, too: without this, it would be played letter by letter.
        self._lines: Lines | Mapping[str, Lines] = (
            {agent: _as_lines(agent_lines) for agent, agent_lines in lines.items()}
            if isinstance(lines, Mapping)
            else _as_lines(lines)
        )
        self._window = window

    def for_agent(self, agent: str) -> Scripted:
        """Return the same script for ``agent`` alone; a script with lines for each agent stays as it is.

        Example:
            >>> user = bt.Scripted(["<CAMEL_TASK_DONE>"]).for_agent("user")
            >>> len(bt.play("Choose a tea", model=user, specify=False).turns)
            1
        """
        if isinstance(self._lines, Mapping):
            return self
        return Scripted({agent: self._lines}, name=self.name, window=self._window)

    async def reply(self, request: Request) -> Reply:
        """Return the next line of the script.

        Example:
            >>> import asyncio
            >>> from bactrian.models.model import Request
            >>> asyncio.run(bt.Scripted(["Sencha."]).reply(Request(messages=()))).text
            'Sencha.'

        Raises:
            ModelError: the script has no line left for this call, or the line is an error.
        """
        return await add_tools_as_text(self._reply, request)

    async def _reply(self, request: Request) -> Reply:
        prompt = sum(_count_tokens(message.text) for message in request.messages)
        room = request.sampling.max_tokens or 0
        if self._window is not None and prompt + room > self._window:
            raise ContextFull(
                f"The request needs {prompt + room} tokens with room for its reply; "
                f"the window has {self._window}.",
                where=self.name,
            )
        lines = self._find_lines(request)
        line = lines[0]
        if line.delay:
            await asyncio.sleep(line.delay)
        if line.error is not None:
            raise Refused(line.error, where=self.name)
        choices = tuple(make_choice(line.text, line.finish) for line in lines)
        if request.on_text is not None:
            request.on_text(choices[0].text)
        return Reply(
            choices=choices,
            usage=Usage(prompt, sum(_count_tokens(choice.text) for choice in choices), estimated=True),
            model=self.name,
            raw=choices[0].text.encode(),
        )

    async def close(self) -> None:
        """Do nothing: there is nothing to release.

        Example:
            >>> import asyncio
            >>> asyncio.run(model.close())
        """

    def _find_lines(self, request: Request) -> list[ScriptedReply]:
        lines, position = self._lines, request.call_index
        if isinstance(lines, Mapping):
            lines = lines.get(request.agent, ())
            answered = sum(message.role == "assistant" for message in request.messages)
            position = answered if request.replay_index is None else request.replay_index
        if position >= len(lines):
            agents = f" Its agents: {', '.join(self._lines)}." if isinstance(self._lines, Mapping) else ""
            raise Refused(
                f"The script has no line {position + 1} for {request.agent}; it has {len(lines)}.{agents}",
                where=self.name,
                next="Add the line, or let the conversation end before it; `bactrian help models.md` lists all agents.",
            )
        line = lines[position]
        if isinstance(line, (str, ScriptedReply)):
            alternatives = [line] * request.n
        else:
            alternatives = line[request.attempt : request.attempt + request.n]
        if not alternatives:
            raise Refused(
                f"Line {position + 1} of {request.agent} has no alternative {request.attempt + 1}.",
                where=self.name,
                next="Add it to the script.",
            )
        return [ScriptedReply(reply) if isinstance(reply, str) else reply for reply in alternatives]


def _as_lines(lines: str | Lines) -> Lines:
    return (lines,) if isinstance(lines, str) else lines


def read_script(path: Path) -> Scripted:
    """Read a script from a JSON file: a list of replies, or an object with one such list per agent.

    A reply is a string, or an object with ``text``, ``finish``, ``delay`` (seconds) and ``error``, or a list of
    alternatives.

    Raises:
        InputError: the file cannot be read or is not a script.
    """
    with explain_os_errors("The script cannot be read", path, "Check the path."):
        content = path.read_bytes()
    try:
        return Scripted(_read_lines(parse_json(content)), name=f"scripted:{path}")
    except (ValueError, TypeError) as error:
        reason = (
            f"line {error.lineno}, column {error.colno} is not JSON"
            if isinstance(error, json.JSONDecodeError)
            else "it is not text in UTF-8"
            if isinstance(error, UnicodeDecodeError)
            else str(error)
        )
        raise InputError(
            f"This is not a script: {reason}.",
            where=str(path),
            next='A script is a JSON list of replies, or an object such as {"user": [...], "assistant": [...]}.',
        ) from error


_REPLY = TypeAdapter(ScriptedReply)
_FIELDS = "text, finish, delay, error"


def _read_lines(content: Any) -> Lines | dict[str, Lines]:
    """Return the lines of a script. Raises TypeError with the position of the first that is none."""
    if isinstance(content, dict):
        lists = cast("dict[str, Any]", content)
        return {agent: _read_list(lines, f" of {agent!r}") for agent, lines in lists.items()}
    return _read_list(content, "")


def _read_list(content: Any, whose: str) -> Lines:
    if not isinstance(content, list):
        raise TypeError(f"the value{whose} is not a list" if whose else "it is neither a list nor an object")
    lines: list[ScriptLine] = []
    for number, line in enumerate(cast("list[Any]", content), start=1):
        position = f"reply {number}{whose}"
        if isinstance(line, list):
            lines.append([_read_reply(reply, position) for reply in cast("list[Any]", line)])
        else:
            lines.append(_read_reply(line, position))
    return lines


def _read_reply(reply: Any, position: str) -> str | ScriptedReply:
    if isinstance(reply, str):
        return reply
    if not isinstance(reply, dict):
        raise TypeError(f"{position} is neither a text nor an object with {_FIELDS}")
    try:
        return _REPLY.validate_python(reply)
    except ValidationError as error:
        first = error.errors()[0]
        name = first["loc"][0]
        if first["type"] == "unexpected_keyword_argument":
            raise TypeError(f"{position} has the key {name!r}, and a reply has only {_FIELDS}") from None
        if first["type"] == "literal_error":
            raise TypeError(f"{name!r} in {position} is not one of {', '.join(get_args(Finish))}") from None
        raise TypeError(
            f"{name!r} in {position} is not a {'number' if name == 'delay' else 'text'}"
        ) from None


def _count_tokens(text: str) -> int:
    return len(text.encode()) // 4 + 1
