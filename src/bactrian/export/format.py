"""The definition of an export format."""

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
"""Data that a format may need besides a session."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A session, with the data named in :attr:`Format.needs`."""

    session: Session
    choices: Sequence[Preference] = ()
    """The choices between proposals, in the order of their turns."""
    findings: Sequence[Finding] | None = None
    """Findings in its turns; None if behaviours were not detected."""


@dataclass(frozen=True, slots=True)
class ExportContext:
    """Options of the export that a format may need."""

    run: str
    """Name of the run."""
    prompts: SystemPrompts
    side: Speaker = "assistant"
    """The agent whose messages a model is to learn."""
    thoughts: bool = False
    """True to include thoughts of reasoning models."""
    plain: bool = False
    """True to leave out the system prompt and the words of the protocol."""
    notes: Counter[str] = field(default_factory=Counter[str])
    """Notes for the reader on changes that the format made to rows, with their number."""


Add = Callable[[Sample], int]
"""Writes a sample and returns its number of rows: 0 if nothing in it fits the format."""


@dataclass(frozen=True, slots=True)
class Format:
    """An export format."""

    name: str
    open: Callable[[Path, ExportContext], AbstractContextManager[Add]]
    """Opens a file or a folder for samples. The output is complete when the context exits."""
    suffix: str = ".jsonl"
    """File suffix; empty for a folder."""
    kinds: frozenset[Kind] = frozenset(("role-play", "translation"))
    """Kinds of sessions that it supports."""
    needs: frozenset[Need] = frozenset()
    """Data that its samples need besides the session."""
    sides: bool = False
    """True if the output depends on the side to learn."""
    tools: bool = False
    """True if it includes tool calls."""
    thoughts: bool = False
    """True if it supports thoughts of reasoning models."""
    plain: bool = False
    """True if it can leave out the system prompt and the words of the protocol."""
    layout: str | None = None
    """Path of a ``{part}`` within the folder, for a format that is always a folder."""
    manifest_inside: bool = True
    """False if readers treat every file in the folder as data."""
    finish: Callable[[Path, Mapping[str, Any]], None] | None = None
    """Completes the folder after the manifest is known."""

    def locate(self, target: Path, part: str, *, divided: bool) -> Path:
        """Return the path to which ``part`` of the data is written."""
        if self.layout is not None:
            return target / self.layout.format(part=part)
        return target / f"{part}{self.suffix}" if divided else target
