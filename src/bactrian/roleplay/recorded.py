"""A model that replays the replies of a stored run."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from bactrian.errors import Refused, UnknownModel
from bactrian.models.model import Reply, ReplyChoice, Request, Traits
from bactrian.records.session import Session
from bactrian.records.text import Text
from bactrian.records.turn import Deliberation, Turn, Usage, group_rounds
from bactrian.roleplay.critic import CRITIC, retry_unreadable
from bactrian.store import open_store


class Recorded:
    """Replays the sessions of a run: ``RUN``, or one of them as ``RUN#SESSION``.

    The session with the id of the request answers it; if the run has a single session, that session does.
    """

    def __init__(self, run: str) -> None:
        self.name = f"recorded:{run}"
        self.traits = Traits(priced=False)
        path, _, session = run.partition("#")
        self._path = Path(path).expanduser()
        self._session = session
        self._sessions: dict[str, tuple[Session, Deliberation]] | None = None

    async def reply(self, request: Request) -> Reply:
        """Return the reply recorded at this position.

        Raises:
            StoreError: the run cannot be read.
            UnknownModel: the run does not contain the session.
            ModelError: the session has no reply at this position.
        """
        session, deliberation = await self._find(request.session)
        reply = _deliberated(session, deliberation, request) or _find_reply(session, request)
        if reply is None:
            raise Refused(
                f"Session {session.id} has no more recorded replies for {request.agent!r}.",
                where=self.name,
                next="It ended here; other endings or roles need a model that answers.",
            )
        if request.on_text is not None:
            request.on_text(reply.text)
        return reply

    async def close(self) -> None:
        """Forget the run."""
        self._sessions = None

    async def _find(self, wanted: str) -> tuple[Session, Deliberation]:
        if self._sessions is None:
            async with open_store(self._path, read_only=True) as store:
                self._sessions = {
                    session.id: (session, await store.deliberation(session.id))
                    async for session in store.sessions()
                }
        entry = self._sessions.get(self._session or wanted)
        if entry is None and not self._session and len(self._sessions) == 1:
            (entry,) = self._sessions.values()
        if entry is None:
            raise UnknownModel(
                f"The run has {len(self._sessions)} sessions and none of them is {self._session or wanted!r}.",
                where=self.name,
                next=f"Name one: recorded:{self._path}#{next(iter(self._sessions), 'SESSION')}",
            )
        return entry


def _deliberated(session: Session, known: Deliberation, request: Request) -> Reply | None:
    """Return the reply to a request for proposals, or for a choice among them; None if not found."""
    if any(verdict.kept for verdict in known.verdicts):
        raise Refused(
            f"Session {session.id} was played with a search, which cannot be replayed.",
            next="Export it, or play it without one.",
        )
    if request.agent == CRITIC:
        number = (request.replay_index or 0) + 1
        for verdict in known.verdicts:
            attempt = retry_unreadable(verdict.round, verdict.attempt)
            if (verdict.number, attempt) == (number, request.attempt):
                choice = ReplyChoice(verdict.text, thought=verdict.thought)
                return Reply((choice,), verdict.usage, verdict.model, verdict.text.encode())
        return None
    turns = [turn for turn in session.turns if turn.speaker == request.agent]
    last = list(accumulate(turn.requests for turn in turns))
    """Number of replies up to each turn's final or proposed one."""
    position = _position(request)
    if position + 1 not in last:
        return None  # A reply that called tools, or beyond the end.
    number = turns[last.index(position + 1)].number
    proposals = [proposal for proposal in known.proposals if proposal.number == number]
    width = max((proposal.place for proposal in proposals), default=0)
    wanted = range(request.attempt, request.attempt + request.n)
    proposals = [
        proposal for proposal in proposals if (proposal.round - 1) * width + proposal.place - 1 in wanted
    ]
    if not proposals:
        return None
    choices = tuple(
        ReplyChoice(proposal.text, proposal.finish, proposal.lossy, thought=proposal.thought)
        for proposal in proposals
    )
    return Reply(
        choices,
        sum((proposal.usage for proposal in proposals), Usage()),
        proposals[0].model,
        proposals[0].text.encode(),
    )


def _position(request: Request) -> int:
    """Return how many replies of its agent precede ``request``."""
    if request.replay_index is not None:
        return request.replay_index
    return sum(message.role == "assistant" for message in request.messages)


def _find_reply(session: Session, request: Request) -> Reply | None:
    """Return the session's reply at the position of ``request``; None if not found."""
    if request.agent in ("task_specifier", "task_planner"):
        specifier = request.agent == "task_specifier"
        text = session.task.specified if specifier else session.task.planned
        usage = session.preparation if specifier else Usage()
        return None if text is None else Reply((ReplyChoice(Text(text)),), usage, session.id)
    replies = [reply for turn in session.turns if turn.speaker == request.agent for reply in _replies(turn)]
    position = _position(request)
    return replies[position] if position < len(replies) else None


def _replies(turn: Turn) -> list[Reply]:
    """Return the replies that called tools, and the final one."""
    replies: list[Reply] = []
    usage = turn.usage
    for first, *others in group_rounds(turn.uses):
        call = first.call
        calls = tuple(use.call.wanted for use in (first, *others))
        choice = ReplyChoice(call.text, "tool_calls", calls=calls, thought=call.thought)
        replies.append(Reply((choice,), call.usage, call.model))
        usage = replace(
            usage,
            prompt=usage.prompt - call.usage.prompt,
            completion=usage.completion - call.usage.completion,
            cached=usage.cached - call.usage.cached,
        )
    choice = ReplyChoice(turn.text, turn.finish, turn.lossy, thought=turn.thought)
    return [*replies, Reply((choice,), usage, turn.model, turn.text.encode())]
