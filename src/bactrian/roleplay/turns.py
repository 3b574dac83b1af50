"""The state of a running session, the order of its speakers, and how a turn is made."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Protocol

from bactrian.records.events import Called, Chose, Proposed, Returned, Spoke
from bactrian.records.session import Session, count_requests
from bactrian.records.turn import Speaker, Turn
from bactrian.roleplay.agent import Agent, Listener, View, ask_agent, make_turn
from bactrian.roleplay.endings import Rule, default_endings


class SpeakerOrder(Protocol):
    """Chooses the next speaker from the turns so far only, so that a resumed session needs no further state."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent that speaks after ``turns``."""
        ...


@dataclass(frozen=True, slots=True)
class Alternate:
    """Two agents alternate; the AI user begins (paper, equation 1)."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent that did not speak last."""
        return "assistant" if turns and turns[-1].speaker == "user" else "user"


TurnEvent = Proposed | Chose | Called | Returned | Spoke  # The last event of a turn is ``Spoke``.


class TurnStrategy(Protocol):
    """Produces the next turn otherwise than by one request: with tools, by a choice, by a search."""

    def take_turn(self, state: SessionState) -> AsyncGenerator[TurnEvent]:
        """Yield the events of the next turn, the turn last; a search may yield several turns.

        No request is sent before the caller asks for the next event. Stored events of an interrupted turn are yielded
        again instead of being requested again.

        Raises:
            ModelError: a model does not answer, or its answer cannot be used.
        """
        ...


@dataclass(frozen=True, slots=True)
class Scene:
    """A session to play: its agents, the order of speakers, and the endings."""

    session: Session  # With its stored turns, if it is resumed.
    agents: Mapping[Speaker, Agent]
    order: SpeakerOrder = Alternate()
    rules: tuple[Rule, ...] = default_endings()
    strategies: Mapping[Speaker, TurnStrategy] = field(default_factory=dict[Speaker, TurnStrategy])
    """How each agent makes its turns; an agent without a strategy speaks its model's first reply."""
    listener: Listener | None = None


class SessionState:
    """The state of a session while it is played."""

    def __init__(self, scene: Scene) -> None:
        session = scene.session
        self.scene = scene
        self.turns = list(session.turns)  # The turns so far, the oldest first.
        self.speaker: Speaker = ""  # The agent whose turn it is.
        self.call_index = count_requests(session)
        self.pending = session.pending  # Stored tool calls of the next turn, in an interrupted session.
        self._views = {speaker: View(agent, self.turns) for speaker, agent in scene.agents.items()}

    @property
    def number(self) -> int:
        """Number of the next turn, from 1."""
        return len(self.turns) + 1

    @property
    def view(self) -> View:
        """The conversation from the speaker's side."""
        return self._views[self.speaker]

    def add_turn(self, turn: Turn) -> None:
        """Append a turn, and add it to the views of all agents."""
        self.turns.append(turn)
        self.call_index += turn.requests
        self.pending = ()
        for view in self._views.values():
            view.hear(turn)


async def speak(state: SessionState) -> Turn:
    """Ask the speaker's model, and once more if its first reply is empty, and return the turn."""
    view, number, scene = state.view, state.number, state.scene
    begun = perf_counter()
    reply, usage = await ask_agent(
        view, number, session=scene.session.id, call_index=state.call_index, listener=scene.listener
    )
    return make_turn(view.agent, number, reply, usage=usage, seconds=perf_counter() - begun)
