"""Loads the tools that a command, a recipe or a society names."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from types import MappingProxyType

from bactrian.errors import InputError
from bactrian.play.tools.functions import FunctionTool, load_functions
from bactrian.play.tools.mcp import open_server
from bactrian.play.tools.stdout import divide_output
from bactrian.play.tools.toolbox import Runnable, Toolbox
from bactrian.recipes.schema import ToolsSpec
from bactrian.records.tool import Toolkit

DEFAULT_LIMITS = Toolkit(())
"""Default limits on an agent's tools."""


@asynccontextmanager
async def open_tools(
    wanted: Mapping[str, ToolsSpec],
    own: Mapping[str, Sequence[Callable[..., object] | Runnable]] = MappingProxyType({}),
) -> AsyncGenerator[dict[str, Toolbox]]:
    """Load the tools of each agent and start their servers. Agents share what they have in common.

    ``own`` are further functions by agent.

    Raises:
        InputError: a file, a function in it or a server cannot be used, or two tools of an agent have the same name.
        MissingExtra: the optional part ``mcp`` is not installed.
    """
    functions: dict[str, Sequence[Runnable]] = {}
    servers: dict[str, Sequence[Runnable]] = {}
    async with AsyncExitStack() as stack:
        if any(one.python for one in wanted.values()):
            stack.enter_context(divide_output())
        for one in wanted.values():
            for file in one.python:
                if file not in functions:
                    functions[file] = load_functions(file)
            for command in one.mcp:
                if command not in servers:
                    servers[command] = await stack.enter_async_context(open_server(command))
        yield {
            agent: build_toolbox(
                [
                    *(tool for file in one.python for tool in functions[file]),
                    *(tool for command in one.mcp for tool in servers[command]),
                    *own.get(agent, ()),
                ],
                Toolkit((), one.rounds, one.seconds, one.characters),
                agent=agent,
            )
            for agent, one in wanted.items()
        }


def build_toolbox(
    tools: Iterable[Runnable | Callable[..., object]],
    limits: Toolkit = DEFAULT_LIMITS,
    *,
    agent: str = "assistant",
) -> Toolbox:
    """Make the toolbox of ``agent`` from Python functions or loaded tools.

    Only the numbers in ``limits`` are used.

    Raises:
        InputError: a function cannot be a tool, two tools have the same name, or no tool is given.
    """
    by_name: dict[str, Runnable] = {}
    for given in tools:
        one: Runnable = given if isinstance(given, Runnable) else FunctionTool(given)
        if one.tool.name in by_name:
            raise InputError(
                f"The {agent} has two tools named {one.tool.name!r}.",
                where="tools",
                next="Rename one, or take only some of a file: FILE.py:NAME,NAME.",
            )
        by_name[one.tool.name] = one
    if not by_name:
        raise InputError(
            f"The {agent} has tools, and none is named.",
            where="tools",
            next='For example python = "tools.py"',
        )
    return Toolbox(replace(limits, tools=tuple(one.tool for one in by_name.values())), by_name)
