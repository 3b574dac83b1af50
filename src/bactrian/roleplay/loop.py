"""The loop: a session is played until a rule ends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from bactrian.errors import ContextFull, Filtered, ModelError, Stopped
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.session import Ending, EndingCode
from bactrian.records.text import clean_text
from bactrian.records.turn import Speaker
from bactrian.roleplay.endings import find_ending
from bactrian.roleplay.proposals import BeamSearch, Chosen
from bactrian.roleplay.turns import Fresh, Plain, Scene, SessionState, TurnStrategy, WithTools


async def play_session(scene: Scene) -> AsyncGenerator[Event]:
    """Play a session to its ending, from its first turn or from its last stored one.

    The next request is sent only when the caller asks for the next event. A caller that stores each event when it
    arrives has it on disk before the next request. A model that fails ends the session as ``failed``; no other
    exception is caught.
    """
    yield Started(scene.session)
    if scene.session.ending is not None and scene.session.ending.final:
        yield Ended(scene.session.ending)
        return
    state, strategies = SessionState(scene), pick_strategies(scene)
    while (ending := find_ending(scene.rules, state.turns)) is None:
        state.speaker = scene.order.next_speaker(state.turns)
        strategy = strategies[state.speaker]
        try:
            if isinstance(strategy, Plain):
                spoke = await strategy.speak(state)
                state.add_turn(spoke.turn)
                yield spoke
                continue
            async with aclosing(strategy.take_turn(state)) as events:
                async for event in events:
                    if isinstance(event, Spoke):
                        state.add_turn(event.turn)
                    yield event
        except ModelError as error:
            yield Ended(_explain_failure(error, len(state.turns), state.speaker), error)
            return
    yield Ended(ending)


def pick_strategies(scene: Scene) -> dict[Speaker, TurnStrategy]:
    """Return the turn strategy of each agent.

    A search decides for all agents at once. A critic's strategy lets the agent use its tools before it proposes.
    """
    critic = scene.critic
    if critic is not None and critic.settings.searches:
        return dict.fromkeys(scene.agents, BeamSearch(critic))
    strategies: dict[Speaker, TurnStrategy] = {}
    for speaker, agent in scene.agents.items():
        if critic is not None and speaker in critic.of:
            strategies[speaker] = Chosen(critic)
        else:
            with_tools = agent.toolbox is not None
            strategies[speaker] = WithTools() if with_tools else Fresh() if agent.repeats else Plain()
    return strategies


def _explain_failure(error: ModelError, turns: int, speaker: Speaker) -> Ending:
    """Return the ending of a session whose model failed."""
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
    return Ending(code, turns, speaker, clean_text(error.what))
