"""The loop: a session is played until a rule ends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from bactrian.errors import ContextFull, Filtered, ModelError, Stopped
from bactrian.play.agent import View, speak
from bactrian.play.critique import Stage, deliberate
from bactrian.play.endings import first_ending
from bactrian.play.proposing import Proposer
from bactrian.play.scene import Scene
from bactrian.play.search import explore
from bactrian.play.tools import Place, speak_with_tools
from bactrian.records.ending import Ending, EndingCode
from bactrian.records.events import Called, Chose, Ended, Event, Proposed, Returned, Spoke, Started
from bactrian.records.tool import Use
from bactrian.records.turn import Speaker


async def play(scene: Scene) -> AsyncGenerator[Event]:
    """Play a session, from its first turn or from where its stored turns leave off, to its ending.

    Nothing is asked of a model before the event that came before has been taken, so whoever stores a turn, a proposal
    or a verdict when it gets the event has it on disk before the next request goes out. A model that fails ends the
    session as ``failed``; nothing else is caught.
    """
    if scene.session.ending is not None and scene.session.ending.final:
        yield Started(scene.session)
        yield Ended(scene.session.ending)
        return
    turns = list(scene.session.turns)
    views = {speaker: View(agent, turns) for speaker, agent in scene.agents.items()}
    critique = scene.critique
    proposers = {name: Proposer(critique.proposals) for name in critique.of} if critique else {}
    prepared = (scene.session.task.specified, scene.session.task.planned)
    asked = sum(step is not None for step in prepared) + sum(turn.requests for turn in turns)
    pending = scene.session.pending
    yield Started(scene.session)

    while (ending := first_ending(scene.rules, turns)) is None:
        speaker = scene.order.next_speaker(turns)
        if critique is not None and critique.searches:
            way = explore(scene, critique, turns, asked - len(turns))
        else:
            stage = Stage(scene.session.id, asked, turns, views[speaker])
            way = _next_turn(scene, stage, proposers.get(speaker), pending)
        try:
            async with aclosing(way) as events:
                async for event in events:
                    if isinstance(event, Spoke):
                        turns.append(event.turn)
                        asked += event.turn.requests
                        pending = ()
                        for view in views.values():
                            view.hear(event.turn)
                    yield event
        except ModelError as error:
            yield Ended(_unanswered(error, len(turns), speaker), error)
            return

    yield Ended(ending)


async def _next_turn(
    scene: Scene, stage: Stage, proposer: Proposer | None, pending: Sequence[Use]
) -> AsyncGenerator[Proposed | Chose | Called | Returned | Spoke]:
    """What leads to the next turn, and the turn."""
    if (toolbox := stage.view.agent.toolbox) is not None:
        place = Place(stage.session, stage.ordinal, stage.number, pending)
        async with aclosing(speak_with_tools(toolbox, stage.view, place, scene.listener)) as events:
            async for event in events:
                yield event
        return
    if scene.critique is None or proposer is None:
        yield Spoke(
            await speak(
                stage.view,
                stage.number,
                session=stage.session,
                ordinal=stage.ordinal,
                listener=scene.listener,
            )
        )
        return
    async with aclosing(deliberate(scene.critique, proposer, stage)) as events:
        async for event in events:
            yield event


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
