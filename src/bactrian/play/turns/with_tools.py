"""A turn in whose course an agent uses tools: it calls, is told the results, and goes on until it speaks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import perf_counter

from bactrian.errors import BadReply
from bactrian.models.model import Reply
from bactrian.play.agent import Listener, View, ask_agent, make_turn
from bactrian.play.tools.toolbox import Toolbox
from bactrian.records.events import Called, Returned, Spoke
from bactrian.records.text import Text
from bactrian.records.tool import ToolCall, ToolResult, Use, group_rounds, to_messages
from bactrian.records.usage import Usage

_AT_ONCE = 16
"""Calls of one reply that run at the same time; more than that wait for a place."""


@dataclass(frozen=True, slots=True)
class ToolTurnContext:
    """Where a session stands when an agent with tools is to speak."""

    session: str
    call_index: int
    number: int
    """Of the turn, from 1."""
    pending: Sequence[Use] = ()
    """What was used for this turn before the session broke off."""


async def speak_with_tools(
    toolbox: Toolbox, view: View, place: ToolTurnContext, listener: Listener | None = None
) -> AsyncGenerator[Called | Returned | Spoke]:
    """Have an agent say a turn, with tools.

    All calls of a reply are given before the first of them is made, and each result as soon as it is there. A
    pending call that has a result is not made again; one that has none is.

    Raises:
        ModelError: the model does not answer, or calls tools when it may not any more.
    """
    uses = list(place.pending)
    for use in uses:
        yield Called(use.call)
        if use.result is not None:
            yield Returned(use.result)
    while True:
        async with aclosing(_finished(toolbox, uses)) as results:
            async for result in results:
                yield Returned(result)
        done = len(group_rounds(uses))
        allow_tool_calls = done < toolbox.kit.rounds
        begun = perf_counter()
        reply, usage = await ask_agent(
            view,
            place.number,
            session=place.session,
            call_index=place.call_index + done,
            used=to_messages(uses),
            allow_tool_calls=allow_tool_calls,
            listener=listener,
        )
        seconds = perf_counter() - begun
        if not allow_tool_calls or not reply.choices[0].calls:
            break
        for call in _calls(reply, view.agent.speaker, place.number, done + 1, usage, seconds):
            yield Called(call)
            uses.append(Use(call))
    if not reply.text.strip() and reply.choices[0].calls:
        raise BadReply(
            f"The model called tools {done + 1} times for turn {place.number} and said nothing.",
            where=view.agent.model.name,
            next="Allow more rounds of tools, or try another model.",
            sample=reply.raw,
        )
    usage = sum((use.call.usage for use in uses), usage)
    turn = make_turn(view.agent, place.number, reply, usage=usage, seconds=seconds + _seconds(uses))
    yield Spoke(replace(turn, uses=tuple(uses)))


async def _finished(toolbox: Toolbox, uses: list[Use]) -> AsyncGenerator[ToolResult]:
    """Make the calls among ``uses`` that have no result, all at once, and put their results there."""
    room = asyncio.Semaphore(_AT_ONCE)

    async def made(call: ToolCall) -> ToolResult:
        async with room:
            return await toolbox.call(call)

    places = {
        asyncio.create_task(made(use.call)): place for place, use in enumerate(uses) if use.result is None
    }
    waiting = set(places)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=places.__getitem__):
                place = places[task]
                uses[place] = replace(uses[place], result=task.result())
                yield task.result()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _calls(
    reply: Reply, speaker: str, number: int, round_: int, usage: Usage, seconds: float
) -> list[ToolCall]:
    choice = reply.choices[0]
    first, *others = [
        ToolCall(
            number=number,
            round=round_,
            place=place,
            speaker=speaker,
            wanted=wanted if wanted.id else replace(wanted, id=f"call_{number}_{round_}_{place}"),
            text=Text(""),
            usage=Usage(),
            seconds=0.0,
            model=reply.model,
        )
        for place, wanted in enumerate(choice.calls, start=1)
    ]
    return [replace(first, text=choice.text, usage=usage, seconds=seconds), *others]


def _seconds(uses: Sequence[Use]) -> float:
    """Seconds of the replies that called, and of the slowest tool of each."""
    return sum(
        group[0].call.seconds + max(use.result.seconds if use.result else 0.0 for use in group)
        for group in group_rounds(uses)
    )
