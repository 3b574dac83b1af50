"""A turn made by one request."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from time import perf_counter

from bactrian.play.agent import ask_agent, make_turn
from bactrian.play.turns.state import SessionState
from bactrian.records.events import Spoke


class Plain:
    """The agent speaks its model's first reply."""

    async def take_turn(self, state: SessionState) -> AsyncGenerator[Spoke]:
        """Yield the turn."""
        yield await self.speak(state)

    async def speak(self, state: SessionState) -> Spoke:
        """Ask the model once; twice if its first reply is empty. The loop awaits this: a generator costs more."""
        view, number, scene = state.view, state.number, state.scene
        begun = perf_counter()
        reply, usage = await ask_agent(
            view,
            number,
            session=scene.session.id,
            call_index=state.call_index,
            listener=scene.listener,
        )
        return Spoke(make_turn(view.agent, number, reply, usage=usage, seconds=perf_counter() - begun))
