"""Tools of MCP servers: programs that speak the Model Context Protocol over their standard input and output."""

from __future__ import annotations

import asyncio
import re
import shlex
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from pydantic_core import from_json, to_json

from bactrian.errors import InputError, MissingExtra
from bactrian.models.openai.lenient_json import is_object
from bactrian.play.tools.toolbox import BadArguments, ToolFailed
from bactrian.records.tool import Tool

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

_CONNECT = 60.0
"""Seconds until a server must have listed its tools; npx or uvx may have to download it first."""
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool of a running server."""

    tool: Tool
    client: Client
    name: str
    """The server's name for it; endpoints allow fewer characters."""

    async def run(self, arguments: str) -> str:
        """Call the tool. Return the text of its result, with a note instead of images and sound.

        Raises:
            BadArguments: the arguments are not a JSON object.
            ToolFailed: the server reports a failure.
            Exception: the server has ended, or violates the protocol.
        """
        try:
            given = from_json(arguments)
        except ValueError as error:
            raise BadArguments(str(error)) from None
        if not is_object(given):
            raise BadArguments("they are not a JSON object")
        result = await self.client.call_tool(self.name, given)
        text = _text(result)
        if result.is_error:
            raise ToolFailed(text)
        return text


@asynccontextmanager
async def open_server(command: str) -> AsyncGenerator[list[ServerTool]]:
    """Start the server of a command line, keep it running within the context, and yield its tools.

    It receives only the common environment variables (``PATH``, ``HOME`` …), so that no key leaks into it.

    Raises:
        InputError: it cannot be started, or is not an MCP server.
        MissingExtra: the optional part ``mcp`` is not installed.
    """
    if find_spec("mcp") is None:
        raise MissingExtra("mcp", "An MCP server")
    words = _words(command)
    ready: asyncio.Future[list[ServerTool]] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()
    # A separate task, because the library wraps exceptions raised within its contexts in exception groups.
    keeper = asyncio.create_task(_keep(words, ready, over))
    try:
        yield await ready
    except _Unusable as fault:
        raise InputError(
            f"The MCP server cannot be used: {fault}.",
            where=command,
            next="Run the command by itself to see what it says.",
        ) from fault
    finally:
        over.set()
        await keeper


class _Unusable(Exception):
    """The server cannot be used; the message says why."""


async def _keep(words: Sequence[str], ready: asyncio.Future[list[ServerTool]], over: asyncio.Event) -> None:
    """Run a server until ``over`` is set; ``ready`` receives its tools or the error."""
    from mcp import Client, MCPError, StdioServerParameters, stdio_client

    program, *arguments = words
    process = StdioServerParameters(command=program, args=arguments)
    # The server's log goes to standard error, like this program's progress.
    transport = stdio_client(process, errlog=sys.__stderr__ or sys.stderr)
    try:
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(_CONNECT):
                client = await stack.enter_async_context(Client(transport))
                tools = await _listed(client)
            if not ready.done():
                ready.set_result(tools)
            await over.wait()
    except (OSError, MCPError, ExceptionGroup) as error:
        if not ready.done():  # Later, each call reports the error itself.
            slow = isinstance(error, TimeoutError)
            ready.set_exception(_Unusable("it took too long" if slow else _reason(error)))


async def _listed(client: Client) -> list[ServerTool]:
    found: list[ServerTool] = []
    cursor: str | None = None
    while True:
        page = await client.list_tools(cursor=cursor)
        for tool in page.tools:
            name = _NO_NAME.sub("_", tool.name)[:_LONGEST_NAME]
            declared = Tool(name, tool.description or tool.title or tool.name, tool.input_schema)
            found.append(ServerTool(declared, client, tool.name))
        cursor = page.next_cursor
        if cursor is None:
            return found


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InputError(
            f"The command line cannot be read: {error}.", where=command, next="Check its quotes."
        ) from error
    if not words:
        raise InputError(
            "The command line of an MCP server is empty.",
            where="--mcp",
            next='For example --mcp "uvx some-server"',
        )
    return words


def _text(result: CallToolResult) -> str:
    parts = [_part(block) for block in result.content]
    if not parts and result.structured_content is not None:
        return to_json(result.structured_content, fallback=str).decode()
    return "\n".join(parts)


def _part(block: Any) -> str:
    """Return the text of a piece of content; for an image or a sound, its type."""
    if block.type == "text":
        return block.text
    if block.type == "resource" and hasattr(block.resource, "text"):
        return block.resource.text
    kind = getattr(block, "mime_type", None)
    return f"[{block.type}{f', {kind}' if kind else ''}]"


def _reason(error: Exception) -> str:
    if isinstance(error, ExceptionGroup):
        return _reason(cast("ExceptionGroup[Exception]", error).exceptions[0])
    return str(error).rstrip(".") or type(error).__name__
