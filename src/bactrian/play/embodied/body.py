"""The toolbox of an embodied agent: it calls by fenced blocks of Python in its replies."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bactrian.models.model import Reply
from bactrian.play.embodied.blocks import (
    NAME,
    RESULTS,
    insert_record,
    split_blocks,
    write_actions,
    write_record,
    write_results,
)
from bactrian.play.embodied.kept_files import KeptFiles, name_folder
from bactrian.play.embodied.workbench import Workbench
from bactrian.play.tools.functions import run_in_thread
from bactrian.play.tools.toolbox import Toolbox
from bactrian.prompts.engine import render_prompt
from bactrian.records.message import Invocation, Message
from bactrian.records.session import Session
from bactrian.records.text import Text, clean_text
from bactrian.records.tool import Tool, Toolkit, Use, group_rounds
from bactrian.sandbox.run import choose_tier

_BLOCKS = 8
"""Blocks of one reply that run separately."""
_START = 30.0
"""Seconds for the start of a sandbox."""


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
        self.files.resume(None if run is None else name_folder(run, session.id))

    def describe(self) -> str:
        """Return what the system prompt says about the actions."""
        return render_prompt("embodied_hands", actions=self.kit.tools[0].description)

    def read_calls(self, reply: Reply) -> Reply:
        """Return ``reply`` with a call for each block of Python."""
        first, *others = reply.choices
        explanation, blocks = split_blocks(first.text, _BLOCKS)
        if not blocks:
            return reply
        calls = tuple(Invocation("", NAME, json.dumps({"code": clean_text(code)})) for code in blocks)
        return replace(reply, choices=(replace(first, text=Text(explanation), calls=calls), *others))

    def write_messages(self, uses: Sequence[Use], *, last: bool) -> list[Message]:
        """Return the replies of this turn and their results as plain messages."""
        messages: list[Message] = []
        for one in group_rounds(uses):
            messages.append(Message("assistant", Text(write_actions(one))))
            messages.append(Message("user", Text(f"{RESULTS}\n{write_results(one)}")))
        if last and messages:
            note = render_prompt("embodied_last")
            messages[-1] = Message("user", Text(f"{messages[-1].text}\n\n{note}"))
        return messages

    def finish_text(self, text: Text, uses: Sequence[Use]) -> Text:
        """Return the turn's text with the record of what was done."""
        return insert_record(text, write_record(uses))


@asynccontextmanager
async def open_body(tools: Toolbox | None, limits: Toolkit) -> AsyncGenerator[Body]:
    """Open the body of an agent whose actions are ``tools``; None for Python's standard library alone.

    ``limits`` contains the seconds of one block and the replies that may act in one turn.

    Raises:
        SandboxError: this computer has no sandbox.
    """
    await run_in_thread(choose_tier)
    files = KeptFiles()
    bench = Workbench(list(tools.tools.values()) if tools else [], limits.seconds, files)
    kit = replace(limits, tools=(bench.tool,), seconds=limits.seconds * _BLOCKS + _START)
    try:
        yield Body(kit, {NAME: bench}, bench, files)
    finally:
        bench.close()
