"""Recording of calls."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from bactrian.errors import ModelError
from bactrian.models.model import Model, Reply, Request
from bactrian.models.wrappers.base import Wrapper
from bactrian.records.run import Call
from bactrian.records.text import clean_text
from bactrian.records.usage import Usage


class Recorder(Wrapper):
    """Passes every call to ``model``, including failed ones, to ``sink`` before the caller sees the result.

    The innermost wrapper: inside ``Retry`` it sees each attempt. With ``failures_only`` it records only failed calls,
    because the others are stored as turns.
    """

    def __init__(
        self,
        model: Model,
        sink: Callable[[Call], Awaitable[None]],
        *,
        failures_only: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(model)
        self._sink = sink
        self._failures_only = failures_only
        self._clock = clock

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``; raises the errors of the wrapped model and of the sink."""
        started = self._clock()
        place = (request.session, request.agent, request.call_index)
        try:
            reply = await self._model.reply(request)
        except ModelError as error:
            seconds = self._clock() - started
            usage = Usage(*error.spent, estimated=True) if any(error.spent) else None
            said = clean_text(str(error))
            await self._sink(Call(*place, self.name, seconds, raw=error.sample, error=said, usage=usage))
            raise
        if self._failures_only:
            return reply
        seconds = self._clock() - started
        await self._sink(Call(*place, reply.model, seconds, raw=reply.raw, usage=reply.usage))
        return reply
