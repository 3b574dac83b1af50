"""The state of a running session, and the protocol of turn strategies."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from bactrian.play.agent import View
from bactrian.play.scene import Scene
from bactrian.records.events import Called, Chose, Proposed, Returned, Spoke
from bactrian.records.turn import Speaker, Turn

TurnEvent = Proposed | Chose | Called | Returned | Spoke
"""The events of a turn; the last one is ``Spoke``."""


class SessionState:
    """The state of a session while it is played."""

    def __init__(self, scene: Scene) -> None:
        session = scene.session
        self.scene = scene
        self.turns = list(session.turns)
        """The turns so far, the oldest first."""
        self.speaker: Speaker = ""
        """The agent whose turn it is."""
        self.call_index = sum(step is not None for step in (session.task.specified, session.task.planned))
        """Number of requests for the turns so far, without repetitions and proposals."""
        self.call_index += sum(turn.requests for turn in self.turns)
        self.pending = session.pending
        """Stored tool calls of the next turn, in a session that was interrupted."""
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


class TurnStrategy(Protocol):
    """Produces the next turn."""

    def take_turn(self, state: SessionState) -> AsyncGenerator[TurnEvent]:
        """Yield the events of the next turn, the turn last; a search may yield several turns.

        No request is sent before the caller asks for the next event. Stored events of an interrupted turn are yielded
        again instead of being requested again.

        Raises:
            ModelError: a model does not answer, or its answer cannot be used.
        """
        ...
