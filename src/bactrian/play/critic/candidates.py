"""Requests several candidates for a turn: in one request if the model supports it, else in concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

from bactrian.errors import BactrianError, Refused
from bactrian.models.model import Reply, Request
from bactrian.models.seeds import derive_sampling
from bactrian.play.agent import View
from bactrian.records.candidate import Proposal
from bactrian.records.message import Message
from bactrian.records.turn import Speaker
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """The candidates to request."""

    session: str
    call_index: int
    number: int
    """Number of the turn, from 1."""
    round: int
    have: Sequence[int]
    """Indices of the candidates that exist already."""
    notes: Sequence[Message]
    """Feedback on earlier rounds, for this turn only."""
    used: Sequence[Message] = ()
    """The agent's tool calls in this turn, with their results. Candidates make no further calls."""


class Proposer:
    """Asks one agent for ``count`` candidates at a time.

    Each is yielded as soon as it arrives. If a server answers a request for several with a single one, the others
    are requested one by one, concurrently, and so are all later candidates.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._together = count > 1

    async def propose(self, view: View, needed: CandidateRequest) -> AsyncGenerator[Proposal]:
        """Yield the missing candidates, in any order.

        Raises:
            BactrianError: a call failed; all candidates that arrived have been yielded.
        """
        missing = [place for place in range(1, self._count + 1) if place not in needed.have]
        if self._together and len(missing) > 1:
            made = await self._ask_together(view, needed, missing)
            for proposal in made:
                yield proposal
            missing = missing[len(made) :]
            self._together = not missing
        waiting = {asyncio.create_task(self._ask(view, needed, [place])) for place in missing}
        fault: BactrianError | None = None
        try:
            while waiting:
                done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    try:
                        made = task.result()
                    except BactrianError as error:
                        fault = fault or error
                    else:
                        yield made[0]
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
        if fault is not None:
            raise fault

    async def _ask_together(
        self, view: View, needed: CandidateRequest, places: Sequence[int]
    ) -> list[Proposal]:
        """Return the candidates of one request for several; an empty list if the model does not support it."""
        try:
            return await self._ask(view, needed, places)
        except Refused:
            return []  # Some servers refuse ``n``. If the cause is another one, the single requests fail too.

    async def _ask(self, view: View, needed: CandidateRequest, places: Sequence[int]) -> list[Proposal]:
        agent = view.agent
        attempt = (needed.round - 1) * self._count + places[0] - 1
        more = [*needed.used, *needed.notes]
        position = sum(message.role == "assistant" for message in (*view.messages, *needed.used))
        request = Request(
            messages=[*view.question(), *more] if more else view.question(),
            sampling=derive_sampling(agent.sampling, agent.speaker, needed.number, attempt),
            n=len(places),
            response_format=agent.form,
            tools=agent.toolbox.kit.tools if agent.toolbox else (),
            allow_tool_calls=False,
            session=needed.session,
            agent=agent.speaker,
            call_index=needed.call_index,
            replay_index=position,
            attempt=attempt,
        )
        begun = perf_counter()
        reply = await agent.model.reply(request)
        return _proposals(reply, needed, agent.speaker, places, perf_counter() - begun)


def _proposals(
    reply: Reply, needed: CandidateRequest, speaker: Speaker, places: Sequence[int], seconds: float
) -> list[Proposal]:
    # A server may return more than were requested.
    first, *others = [
        Proposal(
            number=needed.number,
            round=needed.round,
            place=place,
            speaker=speaker,
            text=choice.text,
            usage=Usage(),
            seconds=seconds,
            model=reply.model,
            finish="content_filter" if choice.refusal else choice.finish,
            lossy=choice.lossy,
            fingerprint=reply.fingerprint,
            thought=choice.thought,
        )
        for place, choice in zip(places, reply.choices, strict=False)
    ]
    return [replace(first, usage=reply.usage), *others]
