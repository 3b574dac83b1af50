"""Protocols for writing and reading a run, independent of the database."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Protocol

from bactrian.records.candidate import Decision, Deliberation, Proposal
from bactrian.records.ending import Ending
from bactrian.records.finding import Confirmation
from bactrian.records.run import Call, Command, Failure, ItemList, Mark, Outline, Progress, SpokenText, Vote
from bactrian.records.session import Session
from bactrian.records.tool import ToolCall, ToolResult
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage

Rows = tuple[int, int]
"""A slice of a run: the row before its first one, and its last row."""


class RunWriter(Protocol):
    """Writes a run. Each method returns when the data is on disk, and writing the same thing twice stores it once.

    Every method raises StoreError if the data cannot be written, or if the run was opened for reading only.
    """

    async def begin(self, session: Session) -> Session:
        """Store ``session`` unless its id is known. Return the stored session with turns and ending."""
        ...

    async def save_task(self, session: Session) -> None:
        """Store the specified and the planned task of ``session``, and what they cost."""
        ...

    async def add_turn(self, session: str, turn: Turn) -> None:
        """Store a turn of the session with this id."""
        ...

    async def add_proposal(self, session: str, proposal: Proposal) -> None:
        """Store a candidate for a turn of the session with this id."""
        ...

    async def add_decision(self, session: str, decision: Decision) -> None:
        """Store a decision on the candidates for a turn of the session with this id."""
        ...

    async def add_tool_call(self, session: str, call: ToolCall) -> None:
        """Store a tool call of the session with this id."""
        ...

    async def add_tool_result(self, session: str, result: ToolResult) -> None:
        """Store the result of a tool call that is stored already."""
        ...

    async def add_confirmation(self, confirmation: Confirmation) -> None:
        """Store a judge's answer about a finding."""
        ...

    async def add_mark(self, mark: Mark) -> None:
        """Store a mark of a session that is stored, or replace the note of the same mark."""
        ...

    async def remove_mark(self, session: str, mark: str) -> None:
        """Remove a mark of the session with this id; do nothing if the session does not have it."""
        ...

    async def add_vote(self, vote: Vote) -> None:
        """Store a vote on solutions of a session that is stored, or replace the one of the same voter on the pair."""
        ...

    async def add_command(self, command: Command) -> None:
        """Store a command that works on the run."""
        ...

    async def add_call(self, call: Call) -> None:
        """Store a call to a model, answered or not."""
        ...

    async def save_list(self, items: ItemList) -> None:
        """Store a list of items, or replace its shorter version."""
        ...

    async def freeze(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """Store what the run is made from, unless it is stored already. Return what is stored."""
        ...

    async def extend(self, recipe: Mapping[str, Any]) -> dict[str, Any]:
        """Replace what the run is made from by the same with a larger limit, and return what is stored."""
        ...

    async def end(self, session: str, ending: Ending, usage: Usage = ...) -> None:
        """Store the ending of the session with this id, and what the session used in all.

        A final ending is never replaced.
        """
        ...

    async def reopen(self, session: str) -> None:
        """Remove the ending of the session with this id if it stopped at its limit of messages."""
        ...


class RunReader(Protocol):
    """Reads a run. Every method raises StoreError if the run cannot be read."""

    @property
    def path(self) -> Path:
        """The file of the run."""
        ...

    @property
    def source(self) -> Path:
        """The file that is read: the run, or a temporary copy of it that exists while the store is open."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[RunReader]:
        """Return the run as it is now, however long the reading takes and whatever is written meanwhile.

        The log of later writes cannot be cleaned up while it is open, so close it soon.
        """
        ...

    async def is_open(self) -> bool:
        """Return True if a process writes the run, or was killed while it did."""
        ...

    async def session(self, session_id: str) -> Session | None:
        """Return the session with this id and its stored turns; None if not found.

        Raises:
            StoreError: the session cannot be read, or a turn of it is damaged.
        """
        ...

    async def outlines(
        self, after: int = 0, limit: int = 1000, ids: Sequence[str] | None = None
    ) -> list[Outline]:
        """Return the next sessions after row ``after`` without their turns; only those of ``ids`` if given."""
        ...

    async def texts(self, ids: Sequence[str]) -> list[SpokenText]:
        """Return what was said in the sessions ``ids``: session by session, in order. Checksums are not checked."""
        ...

    async def find_touched(self, after: int) -> tuple[int, list[str]]:
        """Return the last row of the turns, and the ids of the sessions with turns after row ``after``."""
        ...

    def sessions(self, rows: Rows | None = None) -> AsyncIterator[Session]:
        """Return all sessions, or those of one slice, in the order of their start; a hundred at a time in memory."""
        ...

    async def slices(self, size: int) -> list[Rows]:
        """Return the present sessions, in slices of at most ``size`` that can be read at the same time."""
        ...

    async def deliberation(self, session: str, *, after: int = 0) -> Deliberation:
        """Return the proposals and decisions of the session with this id, for the turns behind turn ``after``."""
        ...

    async def confirmations(self, judge: str) -> list[Confirmation]:
        """Return all answers of the judge with this name."""
        ...

    async def marks(self, session: str | None = None) -> list[Mark]:
        """Return the marks of all sessions, or of the session with this id, in the order of their first setting."""
        ...

    async def votes(self) -> list[Vote]:
        """Return all votes in the order in which they were first given."""
        ...

    async def commands(self) -> list[Command]:
        """Return the commands that worked on the run, the oldest first."""
        ...

    async def list_created(self) -> dict[str, float]:
        """Return when each session began, in seconds since 1970, by its id; the oldest first."""
        ...

    async def recipe(self) -> dict[str, Any] | None:
        """Return what the run is made from; None if it was not made from a recipe."""
        ...

    async def item_list(self, list_id: str) -> ItemList | None:
        """Return the list of items with this id, as far as it is known; None if not found."""
        ...

    def item_lists(self) -> AsyncIterator[ItemList]:
        """Return all lists of items in the order in which they began, a hundred at a time."""
        ...

    def progress(self) -> AsyncIterator[Progress]:
        """Return the state of every session, by its id. Reads an index and not the sessions themselves."""
        ...

    async def list_imported(self) -> frozenset[str]:
        """Return the ids of the sessions that were imported and not made in this run."""
        ...

    def failures(self) -> AsyncIterator[Failure]:
        """Return the sessions that failed and were not resumed, in the order in which they began."""
        ...

    async def mean_seconds(self) -> float | None:
        """Return the mean seconds of the last thousand turns that a model made; None if there are none."""
        ...

    async def count_spent(self) -> dict[str, Usage]:
        """Return the usage of the run by agent.

        Agents are ``user``, ``assistant``, ``critic``, ``task_specifier`` (with the planner) and ``lister``.

        Reads the row of every turn, which takes seconds for a million.
        """
        ...


class Store(RunReader, RunWriter, Protocol):
    """A run that can be read and written."""
