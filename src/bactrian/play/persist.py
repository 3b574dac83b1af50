"""Stores the events of a session while it is played."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing

from bactrian.errors import EmptyReply, ModelError
from bactrian.records.events import Called, Chose, Ended, Event, Proposed, Returned, Spoke, Started
from bactrian.records.run import Call
from bactrian.records.usage import Usage
from bactrian.store import RunWriter

_NOTHING = Usage()


async def persist_events(
    events: AsyncGenerator[Event], session: str, store: RunWriter
) -> AsyncGenerator[Event]:
    """Yield ``events``, each one after it is on disk, and close them at the end.

    The next request is sent when the next event is requested, so a finished turn is durable before that.
    """
    used = _NOTHING
    undecided = _NOTHING
    """Tokens of proposals, decisions and tool calls for the unfinished turn; a finished turn includes its own."""
    async with aclosing(events):
        async for event in events:
            match event:
                case Spoke(turn):
                    used, undecided = used + turn.usage, _NOTHING
                    await store.add_turn(session, turn)
                case Started(begun):
                    used = begun.usage
                case Proposed(proposal):
                    undecided += proposal.usage
                    await store.add_proposal(session, proposal)
                case Chose(verdict):
                    undecided += verdict.usage
                    await store.add_decision(session, verdict)
                case Called(call):
                    undecided += call.usage
                    await store.add_tool_call(session, call)
                case Returned(result):
                    await store.add_tool_result(session, result)
                case Ended(_, ModelError(endpoint_wide=True)):
                    pass  # The fault is the endpoint's: the session stays open, and a later run resumes it.
                case Ended(ending, error):
                    if isinstance(error, EmptyReply):  # Its calls were answered, and no turn includes them.
                        spent = Usage(*error.spent)
                        used += spent
                        call = Call(session, ending.speaker, 0, "", 0.0, error.sample, error.what, spent)
                        await store.add_call(call)
                    await store.end(session, ending, used + undecided)
            yield event
