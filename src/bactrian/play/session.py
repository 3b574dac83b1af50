"""The loop: a session is played until a rule ends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing

from bactrian.errors import ContextFull, Filtered, ModelError, Stopped
from bactrian.play.agent import View, speak
from bactrian.play.critic.candidates import Proposer
from bactrian.play.endings import first_ending
from bactrian.play.scene import Scene
from bactrian.play.turns.beam_search import search_turns
from bactrian.play.turns.chosen import TurnContext, choose_turn
from bactrian.play.turns.with_tools import ToolTurnContext, speak_with_tools
from bactrian.records.ending import Ending, EndingCode
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.turn import Speaker, Turn


async def play_session(scene: Scene) -> AsyncGenerator[Event]:
    """Play a session, from its first turn or from where its stored turns leave off, to its ending.

    Nothing is asked of a model before the event that came before has been taken, so whoever stores a turn, a proposal
    or a verdict when it gets the event has it on disk before the next request goes out. A model that fails ends the
    session as ``failed``; nothing else is caught.
    """
    if scene.session.ending is not None and scene.session.ending.final:
        yield Started(scene.session)
        yield Ended(scene.session.ending)
        return
    course = _SessionState(scene)
    yield Started(scene.session)

    while (ending := first_ending(scene.rules, course.turns)) is None:
        speaker = scene.order.next_speaker(course.turns)
        try:
            if (way := course.take_turn(speaker)) is None:
                spoke = Spoke(await course.speak(speaker))
                course.add_turn(spoke.turn)
                yield spoke
                continue
            async with aclosing(way) as events:
                async for event in events:
                    if isinstance(event, Spoke):
                        course.add_turn(event.turn)
                    yield event
        except ModelError as error:
            yield Ended(_unanswered(error, len(course.turns), speaker), error)
            return

    yield Ended(ending)


class _SessionState:
    """Where a session stands while it is played."""

    def __init__(self, scene: Scene) -> None:
        session = scene.session
        self._scene = scene
        self.turns = list(session.turns)
        self._views = {speaker: View(agent, self.turns) for speaker, agent in scene.agents.items()}
        critique = scene.critique
        self._proposers = {name: Proposer(critique.proposals) for name in critique.of} if critique else {}
        prepared = (session.task.specified, session.task.planned)
        self._asked = sum(step is not None for step in prepared) + sum(turn.requests for turn in self.turns)
        self._pending = session.pending

    def add_turn(self, turn: Turn) -> None:
        """All hear a turn."""
        self.turns.append(turn)
        self._asked += turn.requests
        self._pending = ()
        for view in self._views.values():
            view.hear(turn)

    def speak(self, speaker: Speaker) -> Awaitable[Turn]:
        """The next turn, where nothing but one request leads to it."""
        return speak(
            self._views[speaker],
            len(self.turns) + 1,
            session=self._scene.session.id,
            call_index=self._asked,
            listener=self._scene.listener,
        )

    def take_turn(self, speaker: Speaker) -> AsyncGenerator[Event] | None:
        """What leads to the next turn, and the turn; None if nothing but one request does."""
        scene, critique, view = self._scene, self._scene.critique, self._views[speaker]
        if critique is not None and critique.searches:
            return search_turns(scene, critique, self.turns, self._asked - len(self.turns))
        if (toolbox := view.agent.toolbox) is not None:
            place = ToolTurnContext(scene.session.id, self._asked, len(self.turns) + 1, self._pending)
            return speak_with_tools(toolbox, view, place, scene.listener)
        if critique is not None and (proposer := self._proposers.get(speaker)) is not None:
            stage = TurnContext(scene.session.id, self._asked, self.turns, view)
            return choose_turn(critique, proposer, stage)
        return None


def _unanswered(error: ModelError, turns: int, speaker: Speaker) -> Ending:
    """The ending of a session whose next turn could not be had."""
    code: EndingCode
    match error:
        case ContextFull():
            code = "token_limit"
        case Filtered():
            code = "refused"
        case Stopped():
            code = "stopped"
        case _:
            code = "failed"
    return Ending(code, turns, speaker, error.what)
