"""Several servers of the same model: a conversation stays at the one that has it in its prefix cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from bactrian.errors import TryAgain
from bactrian.models.model import Model, Reply, Request, get_traits

# Requests in flight up to which a conversation stays at its server: this many times the mean, and these more
_TIMES, _MORE = 1.25, 2
_PAUSE = 10.0  # Seconds for which a server that fails is left alone; they double with each failure in a row
_LONGEST_PAUSE = 320.0
_REMEMBERED = 50_000  # Conversations whose server is remembered; the oldest ones have ended


@dataclass(slots=True, eq=False)
class _Server:
    """One of the servers, and what is known about it."""

    model: Model
    in_flight: int = 0
    conversations: int = 0  # That began or moved here
    failures: int = 0  # In a row
    out_since: float = float("-inf")
    out_until: float = float("-inf")

    def is_up(self, now: float) -> bool:
        """Return True if it may be asked: after a failure, by one request at a time until it answers."""
        return now >= self.out_until and not (self.failures and self.in_flight)

    def fail(self, begun: float, now: float) -> None:
        """Leave it alone for a while. What was in flight when it failed says nothing new."""
        if begun >= self.out_since:
            self.out_since = now
            self.out_until = now + min(_LONGEST_PAUSE, _PAUSE * 2**self.failures)
            self.failures += 1

    def answer(self, begun: float) -> None:
        """Count it as up again, if it was asked after its last failure."""
        if begun >= self.out_since:
            self.failures = 0


class Replicas:
    """Sends each conversation to one of ``models``, which are the same model at several servers.

    A new conversation goes to the server with the fewest requests in flight. It stays there while that server has at
    most 1.25 times as many as the mean, and two more; otherwise it moves. A server that refuses connections or answers
    5xx is left alone for ten seconds, twice as long each time, and its conversations move at once. Where no server is
    left, the fault is raised.
    """

    def __init__(
        self, name: str, models: Sequence[Model], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.models = tuple(models)
        self.traits = get_traits(models[0])
        self._servers = [_Server(model) for model in models]
        self._homes: dict[tuple[str, str], _Server] = {}
        self._clock = clock

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``; raises what the models raise."""
        tried: list[_Server] = []
        while True:
            begun = self._clock()
            server = self._choose(request, tried, begun)
            server.in_flight += 1
            try:
                reply = await server.model.reply(request)
                server.answer(begun)
                return reply
            except TryAgain as fault:
                # Too many requests (429) are not the server's fault.
                if not (fault.status >= 500 if fault.status else not fault.overload):
                    raise
                now = self._clock()
                server.fail(begun, now)
                tried.append(server)
                if not any(each.is_up(now) for each in self._servers if each not in tried):
                    raise
            finally:
                server.in_flight -= 1
            if request.on_restart is not None:
                request.on_restart()

    def _choose(self, request: Request, tried: Collection[_Server], now: float) -> _Server:
        """Return the server of a conversation, or another one if it is out or has too much to do."""
        up = [each for each in self._servers if each not in tried and each.is_up(now)]
        if not up:
            return min(self._servers, key=lambda each: each.out_until)
        conversation = request.session, request.agent
        home = self._homes.pop(conversation, None)
        bound = _TIMES * sum(each.in_flight for each in up) / len(up) + _MORE
        if home is None or home not in up or home.in_flight > bound:
            home = min(up, key=lambda each: (each.in_flight, each.conversations))
            home.conversations += 1
        self._homes[conversation] = home
        if len(self._homes) > _REMEMBERED:
            del self._homes[next(iter(self._homes))]
        return home

    async def close(self) -> None:
        """Close the models."""
        for model in self.models:
            await model.close()
