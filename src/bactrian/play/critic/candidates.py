"""Getting several candidates for a turn: in one request where the model can, else in as many at once."""

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
    """Which candidates are wanted."""

    session: str
    call_index: int
    number: int
    """Of the turn, from 1."""
    round: int
    have: Sequence[int]
    """Places of those that are there already."""
    notes: Sequence[Message]
    """What was said about the rounds before; for this turn only."""
    used: Sequence[Message] = ()
    """The agent's calls of tools for this turn, and their results. Candidates make no further ones."""


class Proposer:
    """Asks one agent for ``count`` candidates at a time.

    Each is given out as soon as it is paid for. A server that answers a request for several with one is asked for
    the others singly, and from then on for all of them, at once.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._together = count > 1

    async def propose(self, view: View, wanted: CandidateRequest) -> AsyncGenerator[Proposal]:
        """Give the candidates that are missing, in no certain order.

        Raises:
            BactrianError: a call failed; all that were answered have been given.
        """
        missing = [place for place in range(1, self._count + 1) if place not in wanted.have]
        if self._together and len(missing) > 1:
            made = await self._ask_together(view, wanted, missing)
            for proposal in made:
                yield proposal
            missing = missing[len(made) :]
            self._together = not missing
        waiting = {asyncio.create_task(self._ask(view, wanted, [place])) for place in missing}
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
        self, view: View, wanted: CandidateRequest, places: Sequence[int]
    ) -> list[Proposal]:
        """As many as the model gives at once; none if it knows no such request."""
        try:
            return await self._ask(view, wanted, places)
        except Refused:
            return []  # Some servers refuse ``n``. If that is not what it was, the single requests will tell.

    async def _ask(self, view: View, wanted: CandidateRequest, places: Sequence[int]) -> list[Proposal]:
        agent = view.agent
        attempt = (wanted.round - 1) * self._count + places[0] - 1
        more = [*wanted.used, *wanted.notes]
        position = sum(message.role == "assistant" for message in (*view.messages, *wanted.used))
        request = Request(
            messages=[*view.question(), *more] if more else view.question(),
            sampling=derive_sampling(agent.sampling, agent.speaker, wanted.number, attempt),
            n=len(places),
            response_format=agent.form,
            tools=agent.toolbox.kit.tools if agent.toolbox else (),
            allow_tool_calls=False,
            session=wanted.session,
            agent=agent.speaker,
            call_index=wanted.call_index,
            replay_index=position,
            attempt=attempt,
        )
        begun = perf_counter()
        reply = await agent.model.reply(request)
        return _proposals(reply, wanted, agent.speaker, places, perf_counter() - begun)


def _proposals(
    reply: Reply, wanted: CandidateRequest, speaker: Speaker, places: Sequence[int], seconds: float
) -> list[Proposal]:
    # A server may give more than it was asked for.
    first, *others = [
        Proposal(
            number=wanted.number,
            round=wanted.round,
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
