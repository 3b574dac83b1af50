"""Collects the events of a session into a session, for the Python API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace
from typing import TypeVar

from bactrian.errors import BactrianError, ContextFull, ModelError
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.session import Ending, Session
from bactrian.records.turn import Turn


class SessionCollector:
    """Builds a session from its events."""

    def __init__(self) -> None:
        self._begun: Session | None = None
        self._turns: list[Turn] = []
        self._ending: Ending | None = None
        self.error: Exception | None = None  # What failed, once the session has ended

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


# Events from a task of their own, so that a caller may leave them at any time.


_Item = TypeVar("_Item")


async def yield_from_task(items: AsyncGenerator[_Item]) -> AsyncGenerator[_Item]:
    """Yield ``items``, which are produced in a task, each one when it is asked for.

    A caller that breaks out of its loop leaves closing to the event loop. At its end, the event loop closes all
    asynchronous generators at once, and those that wait for each other fail. It ends tasks before that, in order.
    """
    asked: asyncio.Queue[asyncio.Future[_Item | None]] = asyncio.Queue()

    async def produce() -> None:
        async with aclosing(items):
            while True:
                answer = await asked.get()
                try:
                    item = await anext(items, None)
                except Exception as error:  # noqa: BLE001  the caller gets it
                    if not answer.done():
                        answer.set_exception(error)
                    return
                if not answer.done():
                    answer.set_result(item)
                if item is None:
                    return

    task = asyncio.create_task(produce())
    try:
        while True:
            answer = asyncio.get_running_loop().create_future()
            asked.put_nowait(answer)
            done, _ = await asyncio.wait([task, answer], return_when=asyncio.FIRST_COMPLETED)
            if answer not in done:
                break
            item = answer.result()
            if item is None:
                break
            yield item
    finally:
        task.cancel()
        if not task.done():
            await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
