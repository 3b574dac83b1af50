"""The sandboxed Python process in which an embodied agent acts, as a tool."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from bactrian.errors import SandboxError
from bactrian.play.embodied.blocks import NAME, SCHEMA, read_code
from bactrian.play.embodied.kept_files import MOST_BYTES, KeptFiles
from bactrian.play.tools.functions import run_in_thread
from bactrian.play.tools.toolbox import BadArguments, Runnable, ToolFailed
from bactrian.prompts.engine import render_prompt
from bactrian.records.tool import Tool
from bactrian.sandbox.artefacts import Artefact
from bactrian.sandbox.limits import Limits
from bactrian.sandbox.session import Action, BlockOutcome, SandboxSession

_CPU = 3600.0
"""Seconds of CPU time of all blocks of a session; a block has its own limit."""
_CALLS = 200
"""Actions of one block."""
_SHOWN = 200
"""Characters of an action's arguments and result in the record."""


class Workbench:
    """Runs blocks of Python one after another. Names stay between blocks; actions are the agent's tools."""

    def __init__(self, actions: Sequence[Runnable], seconds: float, files: KeptFiles) -> None:
        self._actions = actions
        self._seconds = seconds
        self._files = files
        self._session: SandboxSession | None = None
        self._lock = asyncio.Lock()
        self._blocks = 0
        self._acted: list[str] = []
        self.lost = False
        """True if names of earlier blocks are gone, and the agent has not been told."""
        self.tool = Tool(NAME, describe_actions([one.tool for one in actions]), SCHEMA)

    async def run(self, arguments: str) -> str:
        """Run a block and return what came of it.

        Raises:
            BadArguments: there is no code.
            ToolFailed: the block raised an exception or reached a limit. The message says so.
        """
        code = read_code(arguments)
        if code is None:
            raise BadArguments("code: Input should be a string")
        async with self._lock:
            loop = asyncio.get_running_loop()
            try:
                text, held = await run_in_thread(lambda: self._run(code, loop))
            except asyncio.CancelledError:
                # Its thread still uses the session, so the next block needs another one.
                self.close()
                raise
        if not held:
            raise ToolFailed(text)
        return text

    def close(self) -> None:
        """End the process. The next block begins a new one."""
        session, self._session = self._session, None
        self.lost = self.lost or session is not None
        if session is not None:
            session.close()

    def _run(self, code: str, loop: asyncio.AbstractEventLoop) -> tuple[str, bool]:
        """Return the text for the agent, and whether the block ended well."""
        if self._session is not None and self._session.ended:
            self.close()
        if self._session is None:
            limits = Limits(cpu=_CPU, wall=self._seconds)
            actions = {one.tool.name: self._make_action(one, loop) for one in self._actions}
            self._session = SandboxSession(limits, actions, files=self._files.read())
        session = self._session
        lost, self.lost, self._acted = self.lost, False, []
        self._blocks += 1
        try:
            outcome = session.run(code, f"block_{self._blocks}.py", cpu=self._seconds)
            found = self._files.save(session.collect(MOST_BYTES))
        except SandboxError as error:
            return str(error), False
        if session.ended:
            self.lost = True
        note = [render_prompt("embodied_restarted")] if lost else []
        return "\n".join([*note, *_describe(outcome, self._acted, found)]), outcome.ending == "ok"

    def _make_action(self, one: Runnable, loop: asyncio.AbstractEventLoop) -> Action:
        """Return the function that the sandboxed code reaches by the tool's name. Its arguments may be anything."""
        names = list(cast("Mapping[str, object]", one.tool.parameters.get("properties", {})))

        def act(*arguments: object, **keywords: object) -> object:
            if len(self._acted) >= _CALLS:
                raise RuntimeError(f"a block may take {_CALLS} actions")
            if len(arguments) > len(names):
                raise TypeError(f"{one.tool.name} takes {len(names)} arguments")
            given = dict(zip(names, arguments, strict=False))
            if twice := given.keys() & keywords.keys():
                raise TypeError(f"{one.tool.name} got {', '.join(map(str, twice))} twice")
            asked = json.dumps({**given, **keywords})
            result = "failed"
            try:
                answer = asyncio.wait_for(one.run(asked), self._seconds)
                result = asyncio.run_coroutine_threadsafe(answer, loop).result()
            finally:
                self._acted.append(f"{one.tool.name} {_shorten(asked)}: {_shorten(result)}")
            return _read_result(result)

        return act


def describe_actions(tools: Sequence[Tool]) -> str:
    """Return the action space: each action with its arguments and its description."""
    lines = [
        f"- {one.name}({', '.join(_list_arguments(one.parameters))}): {one.description}" for one in tools
    ]
    return "\n".join(lines) or render_prompt("embodied_no_actions")


def _list_arguments(schema: Mapping[str, Any]) -> list[str]:
    required = schema.get("required", ())
    properties: Mapping[str, Any] = schema.get("properties", {})
    return [
        f"{name}: {about.get('type', 'any')}" + ("" if name in required else " = …")
        for name, about in properties.items()
    ]


def _read_result(text: str) -> object:
    """Return the value of a result that is a JSON object, list or number; other text as it is."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, str) else value


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]} …"


def _describe(outcome: BlockOutcome, acted: Sequence[str], files: Sequence[Artefact]) -> list[str]:
    """Return the lines that tell the agent what came of a block."""
    lines = [text.rstrip() for text in (outcome.stdout, outcome.stderr) if text.strip()]
    if outcome.ending != "ok":
        said = outcome.trace.strip() or f"{outcome.error} {outcome.text}".strip()
        lines.append(said if outcome.ending == "error" else f"{outcome.ending}: {said}")
    lines += [f"[action] {one}" for one in acted]
    for one in files:
        kept = "" if one.content is not None else ", too large to keep"
        lines.append(f"[file] {one.name} ({one.size:,} bytes{kept})")
    return lines or [render_prompt("embodied_no_output")]
