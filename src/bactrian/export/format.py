"""What a format is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bactrian.export.system_prompts import SystemPrompts
from bactrian.records.candidate import Preference
from bactrian.records.finding import Finding
from bactrian.records.session import Kind, Session
from bactrian.records.turn import Speaker

Need = Literal["choices", "findings"]
"""What can be worked out of a session besides its turns."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A session, with what the format asked for in :attr:`Format.needs`."""

    session: Session
    choices: Sequence[Preference] = ()
    """The choices between proposals, in the order of their turns."""
    findings: Sequence[Finding] | None = None
    """The behaviours that its turns show; None if nobody looked for them."""


@dataclass(frozen=True, slots=True)
class ExportContext:
    """What a format needs to know besides the sessions."""

    run: str
    """Name of the run."""
    prompts: SystemPrompts
    side: Speaker = "assistant"
    """Whose words a model is to learn."""
    thoughts: bool = False
    """True to write what a reasoning model thought before it spoke."""
    notes: Counter[str] = field(default_factory=Counter[str])
    """What a format did to rows that their reader should know, and how often."""


Add = Callable[[Sample], int]
"""Writes a sample. Returns its number of rows: 0 if it holds nothing that the format can carry."""


@dataclass(frozen=True, slots=True)
class Format:
    """A way to write sessions."""

    name: str
    open: Callable[[Path, ExportContext], AbstractContextManager[Add]]
    """Opens a file, or a folder, for samples. What is written is complete when the context is left."""
    suffix: str = ".jsonl"
    """Of its files; empty if it is a folder."""
    kinds: frozenset[Kind] = frozenset(("role-play", "translation"))
    """What it can hold."""
    needs: frozenset[Need] = frozenset()
    """What its samples hold besides the session."""
    sides: bool = False
    """True if it differs by the side that a model is to learn."""
    tools: bool = False
    """True if it holds what agents called in the course of their turns."""
    thoughts: bool = False
    """True if it can hold what a reasoning model thought."""
    layout: str | None = None
    """Where in its folder a ``{part}`` lies, for a format that is a folder however it is divided."""
    manifest_inside: bool = True
    """False if a reader may take every file of its folder for data."""
    finish: Callable[[Path, Mapping[str, Any]], None] | None = None
    """Completes its folder, given the manifest."""

    def locate(self, target: Path, part: str, *, divided: bool) -> Path:
        """Return the path to which ``part`` of the data is written."""
        if self.layout is not None:
            return target / self.layout.format(part=part)
        return target / f"{part}{self.suffix}" if divided else target
