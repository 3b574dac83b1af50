"""A model that replies from a script, for tests and demonstrations without network or weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

from bactrian.errors import ContextFull, InputError, Refused
from bactrian.files.json_text import parse_json
from bactrian.models.model import Reply, ReplyChoice, Request, Traits
from bactrian.models.text_tools import add_tools_as_text
from bactrian.protocol.thoughts import split_thought
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Finish, Usage


@dataclass(frozen=True, slots=True)
class ScriptedReply:
    """One reply of a script. A plain string is short for a reply with that text."""

    text: str = ""
    finish: Finish = "stop"
    delay: float = 0.0
    """Seconds before the reply."""
    error: str | None = None
    """If set, the call fails with this message."""


Said = str | ScriptedReply | Sequence[str | ScriptedReply]
"""A reply of a script; a sequence contains alternatives, for requests of several replies."""
Lines = Sequence[Said]


_Written = str | ScriptedReply | list[str | ScriptedReply]


class Scripted:
    """A model that replies from a list in the order of a session's calls, or from one list per agent.

    With a mapping, each agent (``task_specifier``, ``user``, ``assistant`` …) has its own list. The next line is
    derived from the request, so that one script serves any number of sessions at once, and a resumed session continues
    at the right line. If a line is a list of alternatives, a request for several replies returns as many as there are,
    and a repeated request returns the next one; a critic needs one such line per turn. With ``window``, requests longer
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
            {agent: _as_lines(own) for agent, own in lines.items()}
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
        choices = tuple(_make_choice(line) for line in lines)
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
        lines = self._lines
        if isinstance(lines, Mapping):
            own = lines.get(request.agent, ())
            position = request.replay_index
            if position is None:
                position = sum(message.role == "assistant" for message in request.messages)
        else:
            own, position = lines, request.call_index
        if position >= len(own):
            raise Refused(
                f"The script has no line {position + 1} for {request.agent}; it has {len(own)}.",
                where=self.name,
                next="Add the line, or let the conversation end before it.",
            )
        said = own[position]
        if isinstance(said, (str, ScriptedReply)):
            return [_to_line(said)] * request.n
        alternatives = said[request.attempt : request.attempt + request.n]
        if not alternatives:
            raise Refused(
                f"Line {position + 1} of {request.agent} has no alternative {request.attempt + 1}.",
                where=self.name,
                next="Add it to the script.",
            )
        return [_to_line(one) for one in alternatives]


def _as_lines(lines: str | Lines) -> Lines:
    return (lines,) if isinstance(lines, str) else lines


def _to_line(said: str | ScriptedReply) -> ScriptedReply:
    return said if isinstance(said, ScriptedReply) else ScriptedReply(said)


def _make_choice(line: ScriptedReply) -> ReplyChoice:
    thought, said = split_thought(line.text)
    text = Text(clean_text(said))
    return ReplyChoice(text, line.finish, lossy=text != said, thought=clean_text(thought))


def read_script(path: Path) -> Scripted:
    """Read a script from a JSON file: a list of replies, or an object with one such list per agent.

    A reply is a string, or an object with ``text``, ``finish``, ``delay`` (seconds) and ``error``, or a list of
    alternatives.

    Raises:
        InputError: the file cannot be read or is not a script.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"The script cannot be read: {error.strerror}.", where=str(path), next="Check the path."
        ) from error
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


_FIELDS: Mapping[str, tuple[type, ...]] = {
    "text": (str,),
    "finish": (str,),
    "delay": (int, float),
    "error": (str, type(None)),
}
"""Types of a reply's values."""


def _read_lines(content: Any) -> list[_Written] | dict[str, list[_Written]]:
    """Return the lines of a script. Raises TypeError with the place of the first that is none."""
    if isinstance(content, dict):
        own = cast("dict[str, Any]", content)
        return {agent: _read_list(lines, f" of {agent!r}") for agent, lines in own.items()}
    return _read_list(content, "")


def _read_list(content: Any, whose: str) -> list[_Written]:
    if not isinstance(content, list):
        raise TypeError(f"the value{whose} is not a list" if whose else "it is neither a list nor an object")
    lines = cast("list[Any]", content)
    return [_read_said(one, f"reply {number}{whose}") for number, one in enumerate(lines, start=1)]


def _read_said(said: Any, place: str) -> _Written:
    if isinstance(said, list):
        return [_read_reply(one, place) for one in cast("list[Any]", said)]
    return _read_reply(said, place)


def _read_reply(said: Any, place: str) -> str | ScriptedReply:
    if isinstance(said, str):
        return said
    if not isinstance(said, dict):
        raise TypeError(f"{place} is neither a text nor an object with {', '.join(_FIELDS)}")
    given = cast("dict[str, Any]", said)
    for name, value in given.items():
        if name not in _FIELDS:
            raise TypeError(f"{place} has the key {name!r}, and a reply has only {', '.join(_FIELDS)}")
        if not isinstance(value, _FIELDS[name]) or isinstance(value, bool):
            raise TypeError(f"{name!r} in {place} is not a {'number' if name == 'delay' else 'text'}")
    if given.get("finish", "stop") not in get_args(Finish):
        raise TypeError(f"'finish' in {place} is not one of {', '.join(get_args(Finish))}")
    return ScriptedReply(**given)


def _count_tokens(text: str) -> int:
    return len(text.encode()) // 4 + 1
