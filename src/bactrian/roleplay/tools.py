"""The tools of an agent. Calls have a time limit, print nothing into the data, and never fail the session."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from time import perf_counter
from types import MappingProxyType
from typing import Any, Protocol, TextIO, cast, runtime_checkable

from bactrian.models.model import Reply
from bactrian.protocol.pack import render_prompt
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Message, Problem, Tool, ToolCall, Toolkit, ToolResult, Use, to_messages


class BadArguments(Exception):
    """The arguments of a call do not fit its tool. The message is sent to the model."""


class ToolFailed(Exception):
    """A tool reports that it failed. The message is sent to the model."""


@runtime_checkable
class Runnable(Protocol):
    """A tool that can be called: a Python function, or one of an MCP server."""

    @property
    def tool(self) -> Tool:
        """The tool's name, description and schema."""
        ...

    async def run(self, arguments: str) -> str:
        """Call the tool with ``arguments``, a JSON object.

        Raises:
            BadArguments: they do not fit.
            Exception: any other failure.
        """
        ...


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of an agent, with their descriptions and limits."""

    kit: Toolkit
    tools: Mapping[str, Runnable]  # By name.

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The tools that a request names."""
        return self.kit.tools

    @property
    def in_text(self) -> bool:
        """True if the text of a turn includes its calls and results."""
        return False

    def describe(self) -> str:
        """Return an addition to the system prompt; empty for none."""
        return ""

    def read_calls(self, reply: Reply) -> Reply:
        """Return ``reply`` with the calls that its text contains."""
        return reply

    def write_messages(self, uses: Sequence[Use], *, last: bool) -> list[Message]:  # noqa: ARG002
        """Return the calls and results of an unfinished turn; ``last`` if no more calls are allowed."""
        return to_messages(uses)

    def finish_text(self, text: Text, uses: Sequence[Use]) -> Text:  # noqa: ARG002
        """Return the text of a turn with calls."""
        return text

    async def call(self, call: ToolCall) -> ToolResult:
        """Call a tool. A failure becomes its result."""
        begun = perf_counter()
        text, problem = await self._outcome(call)
        seconds = perf_counter() - begun
        text = clean_text(text) or render_prompt("tool_empty")
        most = self.kit.characters
        cut = len(text) > most
        if cut:
            note = render_prompt("tool_cut", most=f"{most:,}", length=f"{len(text):,}")
            text = f"{text[:most]}\n{note}"
        return ToolResult(
            call.number,
            call.round,
            call.place,
            call.speaker,
            call.wanted.name,
            Text(text),
            problem,
            seconds,
            cut,
        )

    async def _outcome(self, call: ToolCall) -> tuple[str, Problem | None]:
        """Return the text for the model, and the kind of failure or None."""
        name = call.wanted.name
        tool = self.tools.get(name)
        if tool is None:
            return render_prompt("tool_unknown", name=repr(name), names=", ".join(self.tools)), "unknown"
        work = asyncio.ensure_future(tool.run(call.wanted.arguments))
        try:
            await asyncio.wait({work}, timeout=self.kit.seconds)
        except asyncio.CancelledError:
            work.cancel()
            raise
        if not work.done():
            work.add_done_callback(_forget)
            work.cancel()
            return render_prompt("tool_late", name=name, seconds=f"{self.kit.seconds:g}"), "timeout"
        if work.cancelled():
            return render_prompt("tool_cancelled", name=name), "failed"
        match work.exception():
            case None:
                return work.result(), None
            case BadArguments() as error:
                return render_prompt("tool_bad_arguments", name=name, problem=str(error)), "arguments"
            case ToolFailed() as error:
                return str(error), "failed"
            case error:
                kind = type(error).__name__
                problem = f"{kind}: {error}" if str(error) else kind
                return render_prompt("tool_failed", name=name, problem=problem), "failed"


def _forget(work: asyncio.Future[str]) -> None:
    """Retrieve the exception of an abandoned call, so that it is not logged."""
    if not work.cancelled():
        work.exception()


NO_TOOLS: Mapping[str, Toolbox] = MappingProxyType({})  # The toolbox of agents without tools.


# Redirects what tools print to standard error, because standard output is for data.


_in_tool: ContextVar[bool] = ContextVar("in_tool", default=False)


class _Divided:
    """A stream that writes to standard output, or to standard error in the task or thread of a tool."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if _in_tool.get() else self._out, name)


@contextmanager
def divide_output() -> Generator[None]:
    """Separate the output of tools from the program's within the context."""
    out = sys.stdout
    sys.stdout = cast("TextIO", _Divided(out))
    try:
        yield
    finally:
        sys.stdout = out


@contextmanager
def redirect_to_stderr() -> Generator[None]:
    """Redirect output to standard error within the context, including tasks and threads started there."""
    token = _in_tool.set(True)
    try:
        yield
    finally:
        _in_tool.reset(token)
