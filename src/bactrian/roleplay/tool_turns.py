"""A turn with tool calls: the agent calls tools and receives the results until a reply calls nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import replace
from time import perf_counter
from typing import Any, TypeVar

from bactrian.errors import BadReply
from bactrian.models.model import Reply
from bactrian.records.events import Called, Returned, Spoke
from bactrian.records.text import Text
from bactrian.records.turn import ToolCall, ToolResult, Turn, Usage, Use, group_rounds
from bactrian.roleplay.agent import ask_agent, make_turn
from bactrian.roleplay.tools import Toolbox
from bactrian.roleplay.turns import SessionState

_Result = TypeVar("_Result")
_CONCURRENCY = 16  # Tool calls of one reply that run at a time; further ones wait.


class WithTools:
    """The agent may call tools before it speaks."""

    async def take_turn(self, state: SessionState) -> AsyncGenerator[Called | Returned | Spoke]:
        """Ask the model until its reply calls nothing; that reply is the turn."""
        loop = ToolLoop(state)
        async with aclosing(loop.run()) as events:
            async for event in events:
                yield event
        yield Spoke(loop.turn())


class ToolLoop:
    """An agent's replies that call tools, up to the one that speaks."""

    def __init__(self, state: SessionState) -> None:
        toolbox = state.view.agent.toolbox
        assert toolbox is not None
        self.uses = list(state.pending)  # The tool calls of this turn so far.
        self._toolbox = toolbox
        self._state = state
        self._reply: Reply | None = None
        self._usage = Usage()
        self._seconds = 0.0

    async def run(self, *, asks: bool = True) -> AsyncGenerator[Called | Returned]:
        """Yield all calls of a reply before the first of them runs, and each result as soon as it arrives.

        In a resumed turn, the stored events are yielded again, and only the calls without a result run again. With
        ``asks=False``, the stored events are all.

        Raises:
            ModelError: the model does not answer, or calls tools after its last round.
        """
        for use in self.uses:
            yield Called(use.call)
            if use.result is not None:
                yield Returned(use.result)
        if not asks:
            return
        state, view, toolbox = self._state, self._state.view, self._toolbox
        while True:
            async with aclosing(_finish(toolbox, self.uses)) as results:
                async for result in results:
                    yield Returned(result)
            done = len(group_rounds(self.uses))
            allow_tool_calls = done < toolbox.kit.rounds
            begun = perf_counter()
            reply, self._usage = await ask_agent(
                view,
                state.number,
                session=state.scene.session.id,
                call_index=state.call_index + done,
                used=toolbox.write_messages(self.uses, last=not allow_tool_calls),
                allow_tool_calls=allow_tool_calls,
                listener=state.scene.listener,
            )
            reply = toolbox.read_calls(reply) if allow_tool_calls else reply
            self._reply, self._seconds = reply, perf_counter() - begun
            if not allow_tool_calls or not reply.choices[0].calls:
                break
            for call in self._list_calls(reply, done + 1):
                yield Called(call)
                self.uses.append(Use(call))
        if not reply.text.strip() and reply.choices[0].calls:
            raise BadReply(
                f"The model called tools {done + 1} times for turn {state.number} and said nothing.",
                where=view.agent.model.name,
                next="Allow more rounds of tools, or try another model.",
                sample=reply.raw,
            )

    @property
    def usage(self) -> Usage:
        """Tokens of the replies that called tools."""
        return sum((use.call.usage for use in self.uses), Usage())

    @property
    def seconds(self) -> float:
        """Time of the replies that called tools, and of the slowest tool of each."""
        return sum(
            group[0].call.seconds + max(use.result.seconds if use.result else 0.0 for use in group)
            for group in group_rounds(self.uses)
        )

    def turn(self) -> Turn:
        """Make the turn of the final reply, with the usage and time of all replies."""
        turn = self.draft()
        return replace(
            turn,
            text=self._toolbox.finish_text(turn.text, self.uses),
            usage=self.usage + turn.usage,
            seconds=turn.seconds + self.seconds,
            uses=tuple(self.uses),
        )

    def draft(self) -> Turn:
        """Make a turn of the final reply, with its own usage and time only."""
        assert self._reply is not None
        agent, number = self._state.view.agent, self._state.number
        return make_turn(agent, number, self._reply, usage=self._usage, seconds=self._seconds)

    def _list_calls(self, reply: Reply, round_: int) -> list[ToolCall]:
        """Return the calls of a reply. The first one carries the text, the cost and the thoughts of the reply."""
        choice, number = reply.choices[0], self._state.number
        calls = [
            ToolCall(
                number,
                round_,
                position,
                self._state.speaker,
                wanted if wanted.id else replace(wanted, id=f"call_{number}_{round_}_{position}"),
                Text(""),
                Usage(),
                0.0,
                reply.model,
            )
            for position, wanted in enumerate(choice.calls, start=1)
        ]
        about = {"text": choice.text, "usage": self._usage, "seconds": self._seconds}
        return [replace(calls[0], **about, thought=choice.thought), *calls[1:]]


async def _finish(toolbox: Toolbox, uses: list[Use]) -> AsyncGenerator[ToolResult]:
    """Run the calls among ``uses`` that have no result, concurrently, and store the results in ``uses``."""
    room = asyncio.Semaphore(_CONCURRENCY)

    async def run_call(call: ToolCall) -> ToolResult:
        async with room:
            return await toolbox.call(call)

    open_calls = [position for position, use in enumerate(uses) if use.result is None]
    works = [run_call(uses[position].call) for position in open_calls]
    async with aclosing(run_together(works)) as results:
        async for index, task in results:
            position = open_calls[index]
            uses[position] = replace(uses[position], result=task.result())
            yield task.result()


async def run_together(
    works: Sequence[Coroutine[Any, Any, _Result]],
) -> AsyncGenerator[tuple[int, asyncio.Task[_Result]]]:
    """Run ``works`` concurrently; yield each that ends, with its index. Closing it cancels the others."""
    indices = {asyncio.create_task(work): index for index, work in enumerate(works)}
    waiting = set(indices)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=indices.__getitem__):
                yield indices[task], task
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
