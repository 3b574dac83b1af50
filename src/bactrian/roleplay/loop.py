"""The loop: a session is played until a rule ends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from bactrian.errors import ContextFull, Filtered, ModelError, Stopped
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.session import Ending
from bactrian.records.text import clean_text
from bactrian.roleplay.endings import find_ending
from bactrian.roleplay.turns import Scene, SessionState, speak


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
    state = SessionState(scene)
    while (ending := find_ending(scene.rules, state.turns)) is None:
        state.speaker = scene.order.next_speaker(state.turns)
        strategy = scene.strategies.get(state.speaker)
        try:
            if strategy is None:  # One request makes the turn: the events of a generator would cost more.
                turn = await speak(state)
                state.add_turn(turn)
                yield Spoke(turn)
                continue
            async with aclosing(strategy.take_turn(state)) as events:
                async for event in events:
                    if isinstance(event, Spoke):
                        state.add_turn(event.turn)
                    yield event
        except ModelError as error:
            codes = {ContextFull: "token_limit", Filtered: "refused", Stopped: "stopped"}
            code = next((code for kind, code in codes.items() if isinstance(error, kind)), "failed")
            evidence = clean_text(error.report if code == "failed" else error.what)
            yield Ended(Ending(code, len(state.turns), state.speaker, evidence), error)
            return
    yield Ended(ending)
