"""Collects the events of a session into a session, for the Python API."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from bactrian.errors import BactrianError, ContextFull, ModelError
from bactrian.records.ending import Ending
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.session import Session
from bactrian.records.turn import Turn


class SessionCollector:
    """Builds a session from its events."""

    def __init__(self) -> None:
        self._begun: Session | None = None
        self._turns: list[Turn] = []
        self._ending: Ending | None = None
        self.error: Exception | None = None
        """What failed, once the session has ended."""

    @property
    def session(self) -> Session | None:
        """The session so far; None if it has not begun."""
        if self._begun is None:
            return None
        return replace(self._begun, turns=tuple(self._turns), ending=self._ending)

    def add(self, event: Event) -> None:
        """Add the next event."""
        match event:
            case Started(session):
                self._begun, self._turns = session, list(session.turns)
            case Spoke(turn):
                self._turns.append(turn)
            case Ended(ending, error):
                self._ending, self.error = ending, error
            case _:
                pass

    async def collect(self, events: AsyncGenerator[Event]) -> Session:
        """Consume and close ``events``, and return the session.

        Raises:
            BactrianError: the session failed before its first turn.
        """
        async with aclosing(events):
            async for event in events:
                self.add(event)
                if isinstance(event, Ended) and (not self._turns or self._begun is None):
                    raise_failure(event)
        session = self.session
        if session is None:
            raise BactrianError("The session did not begin.", next="Report this.")
        return session


def raise_failure(event: Event) -> None:
    """Raise if ``event`` ends a session by a fault; ignore all other events.

    Raises:
        ModelError: a model failed, or the first request does not fit the context window.
    """
    if isinstance(event, Ended) and event.ending.code == "failed":
        raise event.error or ModelError(event.ending.evidence)
    if isinstance(event, Ended) and event.ending.code == "token_limit" and not event.ending.turn:
        raise ContextFull(
            f"The session has no turns: {event.ending.evidence.partition(chr(10))[0]}",
            next="Use a model with a larger window, or a shorter idea.",
        )
