"""Records of a run beside its sessions: calls, lists, progress, failures, marks, commands and outlines."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from bactrian._version import __version__
from bactrian.records.session import Kind
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class Call:
    """One model call, answered or failed."""

    session: str
    agent: str
    ordinal: int
    """0-based position among the session's calls; a repeated call has the same position."""
    model: str
    """The model as the endpoint named it; the user's name for it if the call failed."""
    seconds: float
    raw: bytes = b""
    """The raw bytes of the reply; after a failure, up to 2 KB of the response."""
    error: str | None = None
    """The error; None if the model answered."""
    usage: Usage | None = None
    """After a failure what it is estimated to have cost; None if it was refused, or nothing is known."""


@dataclass(frozen=True, slots=True)
class ItemList:
    """The items of an axis that are known so far."""

    id: str
    items: tuple[str, ...]
    complete: bool
    """False while items are missing; generation stops early if no call returns new items."""
    usage: Usage
    calls: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a session."""

    id: str
    ending: str | None
    turns: int | None
    """Number of turns at its ending; None if it has not ended."""
    prompt: int | None
    """Total tokens; None if it has not ended."""
    completion: int | None
    cached: int | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A session that failed, with the response to its last failed call."""

    session: str
    turns: int
    """Number of turns so far."""
    reason: str
    error: str | None
    """The error of its last failed call; None if no call failed."""
    raw: bytes
    """Up to 2 KB of the response to that call."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A name that a person gave to a session, such as ``good`` or ``look-again``."""

    session: str
    """The session's id."""
    mark: str
    """The name. A session has a mark once."""
    note: str
    """What the person wrote about it; may be empty."""
    created: float
    """Seconds since 1970 when the mark was set or its note changed."""


@dataclass(frozen=True, slots=True)
class Command:
    """One call of ``play`` or ``generate``, with the options that the run does not store elsewhere.

    Keys are never among the options.
    """

    verb: str
    """``play`` or ``generate``."""
    session: str
    """The id of the session that ``play`` made; empty for ``generate``."""
    options: Mapping[str, Any]
    """JSON values by name of the option."""
    version: str
    """The version of this program."""
    created: float
    """Seconds since 1970."""

    @classmethod
    def begin(cls, verb: str, options: Mapping[str, Any], session: str = "") -> Command:
        """Return the record of a command that begins now."""
        return cls(verb, session, options, __version__, time.time())


@dataclass(frozen=True, slots=True)
class Outline:
    """A session without its turns."""

    row: int
    """Its position in the run, from 1; later sessions have higher ones."""
    id: str
    assistant: str
    """Names of the roles."""
    user: str
    original_task: str
    specified_task: str | None
    language: str | None
    models: Mapping[str, str]
    """Model names by agent."""
    kind: Kind
    ending: str | None
    """Code; None while the session is unfinished."""
    turns: int
    """Number of stored turns."""
    created: float
    """Seconds since 1970 when the session began."""
    mark: str | None
    """``red-team`` for a session made to study misuse."""

    @property
    def final(self) -> bool:
        """False if turns may still be added."""
        return self.ending is not None and self.ending not in ("failed", "stopped")


class SpokenText(NamedTuple):
    """The text of a turn, with its cost."""

    session: str
    """The session's id."""
    number: int
    speaker: str
    text: str
    prompt: int
    """Tokens of the turn, as in :class:`~bactrian.records.usage.Usage`."""
    completion: int
    cached: int
