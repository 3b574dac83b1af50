"""From what a command, a recipe or a society says about tools to the tools themselves, ready to be called."""

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
"""What an agent may do with its tools unless it is told otherwise."""


@asynccontextmanager
async def open_tools(
    wanted: Mapping[str, ToolsSpec],
    own: Mapping[str, Sequence[Callable[..., object] | Runnable]] = MappingProxyType({}),
) -> AsyncGenerator[dict[str, Toolbox]]:
    """Load what is wanted, by agent, and run its servers. What two agents have in common is there once.

    ``own`` are functions that an agent of ``wanted`` has besides.

    Raises:
        InputError: a file, a function in it or a server cannot be used, or two tools of an agent have the same name.
        MissingExtra: the package's part ``mcp`` is not installed.
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
    """Make the toolbox of ``agent``: of Python functions as they are, or of tools that were loaded.

    Of ``limits`` only the numbers count.

    Raises:
        InputError: a function cannot be a tool, two tools have the same name, or there is none.
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
