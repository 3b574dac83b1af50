"""Where a session stands, and the one method that every way to the next turn has."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from bactrian.play.agent import View
from bactrian.play.scene import Scene
from bactrian.records.events import Called, Chose, Proposed, Returned, Spoke
from bactrian.records.turn import Speaker, Turn

TurnEvent = Proposed | Chose | Called | Returned | Spoke
"""What happens on the way to a turn, and the turn."""


class SessionState:
    """Where a session stands while it is played."""

    def __init__(self, scene: Scene) -> None:
        session = scene.session
        self.scene = scene
        self.turns = list(session.turns)
        """What was said, the oldest first."""
        self.speaker: Speaker = ""
        """Whose turn it is."""
        self.call_index = sum(step is not None for step in (session.task.specified, session.task.planned))
        """How many requests were made for what was said, repetitions and proposals not counted."""
        self.call_index += sum(turn.requests for turn in self.turns)
        self.pending = session.pending
        """The tools that were used for the next turn before the session was interrupted."""
        self._views = {speaker: View(agent, self.turns) for speaker, agent in scene.agents.items()}

    @property
    def number(self) -> int:
        """Of the next turn, from 1."""
        return len(self.turns) + 1

    @property
    def view(self) -> View:
        """The conversation as the speaker sees it."""
        return self._views[self.speaker]

    def add_turn(self, turn: Turn) -> None:
        """Let all agents hear a turn."""
        self.turns.append(turn)
        self.call_index += turn.requests
        self.pending = ()
        for view in self._views.values():
            view.hear(turn)


class TurnStrategy(Protocol):
    """A way to the next turn."""

    def take_turn(self, state: SessionState) -> AsyncGenerator[TurnEvent]:
        """Yield what leads to the next turn, and at last the turn; a search may yield several turns.

        Nothing is asked of a model before the event that came before has been taken. What an interrupted session has
        stored of the turn is yielded again and not asked for again.

        Raises:
            ModelError: a model does not answer, or its answer cannot be used.
        """
        ...
