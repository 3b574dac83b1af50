"""Writing a session down while it is played."""

from __future__ import annotations

from collections.abc import AsyncIterator

from bactrian.errors import EmptyReply, ModelError
from bactrian.records.events import Called, Chose, Ended, Event, Proposed, Returned, Spoke, Started
from bactrian.records.run import Call
from bactrian.records.usage import Usage
from bactrian.store import RunWriter

_NOTHING = Usage()


async def persist_events(
    events: AsyncIterator[Event], session: str, store: RunWriter
) -> AsyncIterator[Event]:
    """Pass ``events`` on, each one only when it is on disk.

    The next request goes out when the next event is asked for, so a finished turn is durable before that.
    """
    used = _NOTHING
    undecided = _NOTHING
    """Of proposals, verdicts and tool calls for a turn that is not spoken yet; a turn counts what led to it."""
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
                pass  # The session is not at fault: it stays open, for a later run to go on with.
            case Ended(ending, error):
                if isinstance(error, EmptyReply):  # Each call was answered, and no turn counts them.
                    used += Usage(*error.spent)
                    call = Call(
                        session, ending.speaker, 0, "", 0.0, error.sample, error.what, Usage(*error.spent)
                    )
                    await store.add_call(call)
                await store.end(session, ending, used + undecided)
        yield event
