"""From what a command, a recipe or a society says about tools to the tools themselves, ready to be called."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from bactrian.errors import InputError
from bactrian.play.functions import load_functions
from bactrian.play.toolbox import Runnable, Toolbox
from bactrian.recipes.schema import Tools
from bactrian.records.tool import Toolkit


@asynccontextmanager
async def open_tools(wanted: Mapping[str, Tools]) -> AsyncGenerator[dict[str, Toolbox]]:
    """Load what is wanted, by agent. What two agents have in common is loaded once.

    Raises:
        InputError: a file or a function in it cannot be used, or two tools of an agent have the same name.
    """
    loaded: dict[str, Sequence[Runnable]] = {}
    for one in wanted.values():
        for given in one.python:
            if given not in loaded:
                loaded[given] = load_functions(given)
    yield {
        agent: _toolbox(agent, one, [tool for given in one.python for tool in loaded[given]])
        for agent, one in wanted.items()
    }


def _toolbox(agent: str, wanted: Tools, tools: Iterable[Runnable]) -> Toolbox:
    by_name: dict[str, Runnable] = {}
    for tool in tools:
        if tool.tool.name in by_name:
            raise InputError(
                f"The {agent} has two tools named {tool.tool.name!r}.",
                where="tools",
                next="Rename one, or take only some of a file: FILE.py:NAME,NAME.",
            )
        by_name[tool.tool.name] = tool
    if not by_name:
        raise InputError(
            f"The {agent} has tools, and none is named.",
            where="tools",
            next='For example python = "tools.py"',
        )
    kit = Toolkit(
        tuple(tool.tool for tool in by_name.values()), wanted.rounds, wanted.seconds, wanted.characters
    )
    return Toolbox(kit, by_name)
