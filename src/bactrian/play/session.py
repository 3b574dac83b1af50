"""The loop: a session is played until a rule ends it."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bactrian.errors import ContextFull, Filtered, ModelError
from bactrian.play.agent import View, propose
from bactrian.play.endings import first_ending
from bactrian.play.scene import Decision, Scene
from bactrian.records.ending import Ending, EndingCode
from bactrian.records.events import Chose, Ended, Event, Proposed, Spoke, Started
from bactrian.records.turn import Speaker


async def play(scene: Scene) -> AsyncIterator[Event]:
    """Play a session, from its first turn or from where its stored turns leave off, to its ending.

    Nothing is asked of a model before the event that came before has been taken, so whoever stores a turn when
    it gets the event has it on disk before the next request goes out. A model that fails ends the session as
    ``failed``; nothing else is caught.
    """
    if scene.session.ending is not None and scene.session.ending.final:
        yield Started(scene.session)
        yield Ended(scene.session.ending)
        return
    turns = list(scene.session.turns)
    views = {speaker: View(agent, turns) for speaker, agent in scene.agents.items()}
    prepared = (scene.session.task.specified, scene.session.task.planned)
    calls_before = sum(step is not None for step in prepared)
    yield Started(scene.session)

    while (ending := first_ending(scene.rules, turns)) is None:
        number = len(turns) + 1
        speaker = scene.order.next_speaker(turns)
        agent = scene.agents[speaker]
        try:
            proposals = await propose(
                views[speaker],
                number,
                session=scene.session.id,
                ordinal=calls_before + len(turns),
                n=scene.proposals,
                listener=scene.listener,
            )
        except ModelError as error:
            yield Ended(_unanswered(error, len(turns), speaker), error)
            return
        decision = Decision(0)
        if scene.chooser is not None:
            texts = tuple(choice.text for choice in proposals.choices)
            yield Proposed(number, speaker, texts)
            decision = await scene.chooser.choose(turns, speaker, texts)
            yield Chose(number, decision.index, decision.reason)
        turn = proposals.turn(decision.index, number, agent)
        turns.append(turn)
        for view in views.values():
            view.hear(turn)
        yield Spoke(turn)

    yield Ended(ending)


def _unanswered(error: ModelError, turns: int, speaker: Speaker) -> Ending:
    """The ending of a session whose next turn could not be had."""
    code: EndingCode
    match error:
        case ContextFull():
            code = "token_limit"
        case Filtered():
            code = "refused"
        case _:
            code = "failed"
    return Ending(code, turns, speaker, error.what)
