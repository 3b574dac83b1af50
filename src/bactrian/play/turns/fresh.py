"""Turns of a model that repeats whatever it sees: the built-in one, on ideas other than the paper's example.

Such a model continues its own earlier turns as a list. So it sees nothing but what was said to it last, it opens each
instruction in another way, and a useless reply is requested again. Measured in docs/performance.md.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace
from time import perf_counter

from bactrian.detect.loops import is_repetition
from bactrian.language.protocol import find_instruction
from bactrian.models.traits import get_traits
from bactrian.play.agent import Agent, View, ask_agent, make_turn
from bactrian.play.response_formats import build_user_format
from bactrian.play.scene import Scene
from bactrian.play.setup_defaults import SMALL_PACK
from bactrian.play.turns.state import SessionState
from bactrian.records.events import Spoke
from bactrian.records.message import Message
from bactrian.records.text import Text
from bactrian.records.turn import Turn
from bactrian.records.usage import Usage

ATTEMPTS = 3
"""Requests for a turn; the last reply is spoken whatever it says."""


class Fresh:
    """The agent speaks its model's first reply that says something new."""

    async def take_turn(self, state: SessionState) -> AsyncGenerator[Spoke]:
        """Yield the turn."""
        scene, agent, begun = state.scene, state.view.agent, perf_counter()
        view, used = _shorten(state.view, state.turns), Usage()
        turn: Turn | None = None
        for attempt in range(ATTEMPTS):
            if turn is not None and scene.listener is not None:
                scene.listener.restart(agent.speaker, "says nothing new")
            reply, usage = await ask_agent(
                view,
                state.number,
                session=scene.session.id,
                call_index=state.call_index,
                attempt=attempt,
                listener=scene.listener,
            )
            used += usage
            turn = make_turn(agent, state.number, reply, usage=used, seconds=perf_counter() - begun)
            if not _is_useless(turn, state.turns):
                break
        assert turn is not None
        yield Spoke(turn)


def is_repetitive(scene: Scene, agent: Agent) -> bool:
    """Return True if ``agent`` needs this strategy."""
    return scene.session.provenance.prompts == SMALL_PACK and get_traits(agent.model).small


def _is_useless(turn: Turn, before: list[Turn]) -> bool:
    """Return True for a repetition, and for an assistant that gives instructions, which would end the session."""
    if turn.speaker == "assistant" and find_instruction(turn.text):
        return True
    return is_repetition([*before, turn])


def _shorten(view: View, turns: list[Turn]) -> View:
    """Return the view with the last message only; the AI user also keeps the question that opened the conversation."""
    agent, (system, *heard) = view.agent, view.messages
    last = heard[-1].text
    if agent.opening is not None and len(heard) > 1:
        last = Text(f"{last}\n{agent.opening}")
    if agent.speaker == "user" and agent.form is not None:
        said = [turn.text for turn in turns if turn.speaker == "user"]
        agent = replace(agent, form=build_user_format(small=True, plain=True, used=said))
    short = View(agent)
    short.messages = [system, Message("user", last)]
    return short
