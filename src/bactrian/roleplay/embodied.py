"""The toolbox of an embodied agent: it calls by fenced blocks of Python, and its files are copied to the run."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from bactrian.errors import BactrianError, SandboxError, explain_os_errors
from bactrian.models.model import Reply
from bactrian.protocol import fences
from bactrian.protocol.pack import render_prompt
from bactrian.records.session import Session
from bactrian.records.text import Text, clean_text, shorten_line, to_file_name
from bactrian.records.turn import Invocation, Message, Tool, Toolkit, Use, group_rounds
from bactrian.roleplay.picture_tool import FileTool
from bactrian.roleplay.tools import BadArguments, Runnable, Threads, Toolbox, ToolFailed
from bactrian.sandbox.programs import Action, BlockOutcome, SandboxSession, choose_tier
from bactrian.sandbox.tiers import Artefact, Limits
from bactrian.store.locations import MOST_FILES, name_files_folder

# The sandboxed Python process in which an embodied agent acts, as a tool.


_Answer = TypeVar("_Answer")
_CPU = 3600.0  # Seconds of CPU time of all blocks of a session; a block has its own limit.
_CALLS = 200  # Actions of one block.
_SHOWN = 200  # Characters of an action's arguments and result in the record.


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
        self.lost = False  # True if names of earlier blocks are gone, and the agent has not been told.
        self.tool = Tool(
            fences.PYTHON_TOOL, describe_actions([action.tool for action in actions]), fences.PYTHON_SCHEMA
        )

    async def run(self, arguments: str) -> str:
        """Run a block and return what came of it.

        Raises:
            BadArguments: there is no code.
            ToolFailed: the block raised an exception or reached a limit. The message says so.
        """
        code = fences.read_code(arguments)
        if code is None:
            raise BadArguments("code: Input should be a string")
        async with self._lock:
            loop = asyncio.get_running_loop()
            try:
                text, held = await Threads().run(lambda: self._run(code, loop))
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
            actions = {action.tool.name: self._make_action(action, loop) for action in self._actions}
            self._session = SandboxSession(limits, actions, files=self._files.read())
            savers = [action.tool.name for action in self._actions if isinstance(action, FileTool)]
            if savers:
                self._session.run(_SAVER + "".join(f"{name} = _save({name})\n" for name in savers))
        session = self._session
        lost, self.lost, self._acted = self.lost, False, []
        self._blocks += 1
        try:
            outcome = session.run(code, f"block_{self._blocks}.py", cpu=self._seconds)
            files = self._files.save(session.collect(MOST_BYTES))
        except SandboxError as error:
            return str(error), False
        if session.ended:
            self.lost = True
        note = [render_prompt("embodied_restarted")] if lost else []
        return "\n".join([*note, *_describe(outcome, self._acted, files)]), outcome.ending == "ok"

    def _make_action(self, tool: Runnable, loop: asyncio.AbstractEventLoop) -> Action:
        """Return the function that the sandboxed code reaches by the tool's name. Its arguments may be anything."""
        names = list(cast("Mapping[str, object]", tool.tool.parameters.get("properties", {})))

        def act(*arguments: object, **keywords: object) -> object:
            if len(self._acted) >= _CALLS:
                raise RuntimeError(f"a block may take {_CALLS} actions")
            if len(arguments) > len(names):
                raise TypeError(f"{tool.tool.name} takes {len(names)} arguments")
            named = dict(zip(names, arguments, strict=False))
            if twice := named.keys() & keywords.keys():
                raise TypeError(f"{tool.tool.name} got {', '.join(map(str, twice))} twice")
            asked = json.dumps({**named, **keywords})
            result = "failed"
            try:
                if isinstance(tool, FileTool):
                    made = await_in(loop, tool.make_file(asked))
                    result = f"{made.name}, {made.about}"
                    return made.name, made.content
                result = await_in(loop, tool.run(asked))
                return _read_result(result)
            finally:
                shown = (shorten_line(text, _SHOWN) for text in (asked, result))
                self._acted.append(f"{tool.tool.name} {': '.join(shown)}")

        def await_in(loop: asyncio.AbstractEventLoop, answer: Coroutine[Any, Any, _Answer]) -> _Answer:
            return asyncio.run_coroutine_threadsafe(asyncio.wait_for(answer, self._seconds), loop).result()

        return act


# Runs in the sandbox: what makes a file gives its name and content, which are written there.
_SAVER = """
def _save(make):
    def save(*arguments, **keywords):
        name, content = make(*arguments, **keywords)
        with open(name, "wb") as file:
            file.write(content)
        return name
    return save
"""


def describe_actions(tools: Sequence[Tool]) -> str:
    """Return the action space: each action with its arguments and its description."""
    lines = [
        f"- {tool.name}({', '.join(_list_arguments(tool.parameters))}): {tool.description}" for tool in tools
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


def _describe(outcome: BlockOutcome, acted: Sequence[str], files: Sequence[Artefact]) -> list[str]:
    """Return the lines that tell the agent what came of a block."""
    lines = [text.rstrip() for text in (outcome.stdout, outcome.stderr) if text.strip()]
    if outcome.ending != "ok":
        trace = outcome.trace.strip() or f"{outcome.error} {outcome.text}".strip()
        lines.append(trace if outcome.ending == "error" else f"{outcome.ending}: {trace}")
    lines += [f"[action] {action}" for action in acted]
    for file in files:
        kept = "" if file.content is not None else ", too large to keep"
        lines.append(f"[file] {file.name} ({file.size:,} bytes{kept})")
    return lines or [render_prompt("embodied_no_output")]


_BLOCKS = 8  # Blocks of one reply that run separately.
_START = 30.0  # Seconds for the start of a sandbox.


@dataclass(frozen=True, slots=True)
class Body(Toolbox):
    """Runs the Python that an agent writes. Every model can use it: it needs no tool calls of the model's own."""

    bench: Workbench
    files: KeptFiles

    @property
    def offered(self) -> tuple[Tool, ...]:
        """No tools: the system prompt describes the actions."""
        return ()

    @property
    def in_text(self) -> bool:
        """True: a turn's text contains its actions and results."""
        return True

    def resume(self, session: Session, run: Path | None) -> None:
        """Resume a session that may have turns; files are stored beside ``run``, if there is one."""
        self.bench.lost = bool(session.pending) or any(turn.uses for turn in session.turns)
        self.files.resume(None if run is None else name_files_folder(run, session.id))

    def describe(self) -> str:
        """Return what the system prompt says about the actions."""
        return render_prompt("embodied_hands", actions=self.kit.tools[0].description)

    def read_calls(self, reply: Reply) -> Reply:
        """Return ``reply`` with a call for each block of Python."""
        first, *others = reply.choices
        explanation, blocks = fences.split_blocks(first.text, _BLOCKS)
        if not blocks:
            return reply
        calls = tuple(
            Invocation("", fences.PYTHON_TOOL, json.dumps({"code": clean_text(code)})) for code in blocks
        )
        return replace(reply, choices=(replace(first, text=Text(explanation), calls=calls), *others))

    def write_messages(self, uses: Sequence[Use], *, last: bool) -> list[Message]:
        """Return the replies of this turn and their results as plain messages."""
        messages: list[Message] = []
        for group in group_rounds(uses):
            messages.append(Message("assistant", Text(fences.write_actions(group))))
            messages.append(Message("user", Text(f"{fences.RESULTS}\n{fences.write_results(group)}")))
        if last and messages:
            note = render_prompt("embodied_last")
            messages[-1] = Message("user", Text(f"{messages[-1].text}\n\n{note}"))
        return messages

    def finish_text(self, text: Text, uses: Sequence[Use]) -> Text:
        """Return the turn's text with the record of what was done."""
        return fences.insert_record(text, fences.write_record(uses))


@asynccontextmanager
async def open_body(tools: Toolbox | None, limits: Toolkit) -> AsyncGenerator[Body]:
    """Open the body of an agent whose actions are ``tools``; None for Python's standard library alone.

    ``limits`` contains the seconds of one block and the replies that may act in one turn.

    Raises:
        SandboxError: this computer has no sandbox.
    """
    await Threads().run(choose_tier)
    files = KeptFiles()
    bench = Workbench(list(tools.tools.values()) if tools else [], limits.seconds, files)
    kit = replace(limits, tools=(bench.tool,), seconds=limits.seconds * _BLOCKS + _START)
    try:
        yield Body(kit, {fences.PYTHON_TOOL: bench}, bench, files)
    finally:
        bench.close()


# The files that an embodied agent makes, copied from its sandbox to a folder beside the run.


MOST_BYTES = 16 << 20  # Bytes of all files together that are copied.


class KeptFiles:
    """Copies the files of a session.

    Names come from the sandboxed program: each becomes one safe file name, and no folder is made for it.
    """

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._known: dict[str, bytes | None] = {}

    def resume(self, folder: Path | None) -> None:
        """Store files in ``folder``, and read those of an interrupted session in it; with None, keep them in memory."""
        self._folder = folder
        if folder is not None and folder.is_dir():
            paths = [path for path in sorted(folder.iterdir()) if path.is_file() and not path.is_symlink()]
            self._known = {path.name: path.read_bytes() for path in paths[:MOST_FILES]}

    def read(self) -> dict[str, bytes]:
        """Return the files so far, to put them into a new sandbox."""
        return {name: content for name, content in self._known.items() if content is not None}

    def save(self, files: Iterable[Artefact]) -> list[Artefact]:
        """Copy the files that are new or have changed, and return these.

        Raises:
            BactrianError: the folder cannot be written.
        """
        changed = [
            file
            for file in files
            if file.name not in self._known or self._known[file.name] != file.content or file.content is None
        ]
        room = MOST_FILES - len(self._known)
        for file in changed:
            if file.name not in self._known:
                room -= 1
            if room < 0 or file.content is None:
                continue
            self._known[file.name] = file.content
            if self._folder is not None:
                self._write(self._folder, to_file_name(file.name), file.content)
        return changed

    def _write(self, folder: Path, name: str, content: bytes) -> None:
        stage = folder / f".{name[:100]}.part"
        again = "Make room, and run the same command again."
        with explain_os_errors("A file of the agent cannot be kept", folder / name, again, BactrianError):
            folder.mkdir(parents=True, exist_ok=True)
            handle = os.open(stage, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
            with open(handle, "wb") as file:  # noqa: PTH123 - by its descriptor
                file.write(content)
            stage.replace(folder / name)
