"""A conversation that is played from a page: watched, paused, stopped, and taken over by a person at any turn."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Collection, Coroutine, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from pathlib import Path

from bactrian.errors import BactrianError, Stopped
from bactrian.models.model import Model, Reply, ReplyChoice, Request, Traits, Wrapper
from bactrian.models.open import ModelOptions, load_local, open_model
from bactrian.records.events import Ended, Event, Proposed, Started
from bactrian.records.session import Session
from bactrian.records.text import Text, clean_text
from bactrian.records.turn import Message, Proposal, Speaker, Usage
from bactrian.roleplay.agent import BROKE_OFF
from bactrian.roleplay.critic import CRITIC
from bactrian.roleplay.human import HUMAN, format_line
from bactrian.roleplay.role_play import SessionOrder
from bactrian.roleplay.society import SocietyRun, play_one_society
from bactrian.roleplay.start import play_one

# Agents whose part a person can take.
SEATS: tuple[str, ...] = ("user", "assistant", CRITIC)
_PATIENCE = 5.0  # Seconds that what is no reply, such as a tool, may take to end when the play is stopped
# A critic's line: a number and a reason, a text of one's own, an edited proposal, or what would be better.
_LINE = re.compile(r"(?:(?:edit\s+)?(\d{1,3})\b|(?:write|again)\s+\S).*", re.DOTALL | re.IGNORECASE)
_NUMBERS = re.compile(r"\s*(\d{1,3}(?:\s*[,>]\s*\d{1,3})*)\b[\s.:,-]*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SocietyOrder:
    """A society to play: its conversations, one after another."""

    settings: SocietyRun
    options: ModelOptions
    run: Path


@dataclass(frozen=True, slots=True)
class PersonQuestion:
    """What a person is asked for."""

    agent: str
    # The last message to the agent.
    text: str
    # Those of which a critic chooses one; empty where it ranks lines of a search, which the text shows.
    proposals: tuple[Proposal, ...] = ()
    # True if a critic may ask for better ones.
    may_ask: bool = False

    @property
    def title(self) -> str:
        """Who the person is now."""
        if self.agent == CRITIC:
            return "You are the critic: which message is best?"
        return f"You are {f'the AI {self.agent}' if self.agent in SEATS else self.agent}"


@dataclass(slots=True)
class LiveStage:
    """The state of a played conversation, shared by the models, the page and the streams to browsers."""

    # The data set that stores it.
    data: str
    # Those that take part and could be taken over.
    agents: tuple[str, ...]
    order: SessionOrder | SocietyOrder
    # Agents whose part a person plays.
    taken: set[str] = field(default_factory=set[str])
    # Of a society, by the id of a conversation, the agents that take part in it, by what they are called there.
    seats: Mapping[str, Mapping[str, str]] = field(default_factory=dict[str, Mapping[str, str]])
    # Agents of the society that its file gives to a person.
    people: Collection[str] = ()
    # The id of the conversation that is played, once it began, and of all that were.
    session: str = ""
    sessions: list[str] = field(default_factory=list[str])
    # Why the play ended too early; empty if it did not.
    problem: str = ""
    # What is being asked now.
    question: PersonQuestion | None = None
    # How often the critic of the conversation may be asked for a turn.
    rounds: int = 1
    # Those of the turn that comes next.
    proposals: list[Proposal] = field(default_factory=list[Proposal])
    _task: asyncio.Task[None] | None = None
    # Seats of the conversation that a person has by the society's file.
    _given: set[str] = field(default_factory=set[str])
    # Set once the session began, or failed to.
    _began: asyncio.Event = field(default_factory=asyncio.Event)
    _going: asyncio.Event = field(default_factory=asyncio.Event)
    _halted: asyncio.Event = field(default_factory=asyncio.Event)
    _answer: asyncio.Future[str | None] | None = None
    # The agent and the messages of the question that waits.
    _asked: tuple[str, tuple[Message, ...]] = ("", ())
    _queues: set[asyncio.Queue[tuple[str, str]]] = field(default_factory=set[asyncio.Queue[tuple[str, str]]])

    @property
    def is_paused(self) -> bool:
        """True if the next request waits."""
        return not self._going.is_set()

    @property
    def present(self) -> Collection[str]:
        """Those who take part in the conversation that is played now."""
        return self.seats.get(self.session, self.agents)

    @property
    def is_running(self) -> bool:
        """True until the play ended, failed or was stopped."""
        return self._task is not None and not self._task.done()

    def describe(self) -> dict[str, object]:
        """Return the state of the play as JSON values."""
        question = self.question
        return {
            "running": self.is_running,
            "paused": self.is_paused,
            "taken": sorted(self.taken),
            "asks": question.agent if question else None,
            "title": question.title if question else "",
            "question": question.text[-20_000:] if question else None,
            "may_ask": question is not None and question.may_ask,
            "problem": self.problem,
        }

    async def start(self) -> None:
        """Begin to play, or go on where it was stopped; return once the session began, or failed to."""
        self.problem = ""
        self._began.clear()
        self._halted.clear()
        self.resume()
        self._task = asyncio.create_task(self._play())
        await self._began.wait()

    async def stop(self) -> None:
        """End the play as the word ``stop`` of a person does. Its turns are stored, and the same order resumes it."""
        if self._task is not None:
            self._halted.set()
            await asyncio.wait([self._task], timeout=_PATIENCE)
            await self.interrupt()

    async def interrupt(self) -> None:
        """Interrupt the play, which then has no ending."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _play(self) -> None:
        try:
            async with aclosing(_open_and_play(self.order, self)) as events:
                async for event in events:
                    match event:
                        case Started(session):
                            self._begin(session)
                        case Proposed(proposal):
                            round_ = (proposal.number, proposal.round)
                            self.proposals = [
                                other
                                for other in self.proposals
                                if (other.number, other.round) == round_ and other.place != proposal.place
                            ]
                            self.proposals.append(proposal)
                        case Ended(_, error) if error is not None:
                            self.problem = str(error)
                        case _:
                            pass
                    self.tell("event")
        except BactrianError as error:
            self.problem = str(error)
        finally:
            self._began.set()
            self.tell("state")

    def _begin(self, session: Session) -> None:
        self.session, self.proposals = session.id, []
        self.sessions.append(session.id)
        self.rounds = session.provenance.critic.rounds if session.provenance.critic else 1
        seats = self.seats.get(session.id, {})
        # A seat of the conversation before may be another agent's now.
        self.taken -= self._given
        self._given = {seat for seat, agent in seats.items() if agent in self.people}
        self.taken |= self._given
        self._began.set()

    def subscribe(self) -> asyncio.Queue[tuple[str, str]]:
        """Return a queue of what happens from now on: a kind and a text."""
        queue: asyncio.Queue[tuple[str, str]] = asyncio.Queue(10_000)
        self._queues.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[tuple[str, str]]) -> None:
        """Forget a queue."""
        self._queues.discard(queue)

    def tell(self, kind: str, text: str = "") -> None:
        """Put something into all queues; a browser that does not read loses pieces, but no turn."""
        for queue in self._queues:
            if not queue.full():
                queue.put_nowait((kind, text))

    def hear(self, speaker: Speaker, piece: str) -> None:
        """Receive the next piece of text of ``speaker``."""
        self.tell("piece", f"{speaker}\n{piece}")

    def restart(self, speaker: Speaker, why: str = BROKE_OFF) -> None:  # noqa: ARG002
        """Discard the pieces of this turn."""
        self.tell("restart", speaker)

    def pause(self) -> None:
        """Let the next request wait."""
        self._going.clear()
        self.tell("state")

    def resume(self) -> None:
        """Continue after a pause."""
        self._going.set()
        self.tell("state")

    def take(self, agent: str) -> None:
        """Let a person play the part of ``agent`` from its next turn on."""
        self.taken.add(agent)
        self.tell("state")

    def release(self, agent: str) -> None:
        """Give the part of ``agent`` back to its model; a question that waits is answered by the model."""
        self.taken.discard(agent)
        if self.question is not None and self.question.agent == agent:
            self.answer(None)
        self.tell("state")

    def answer(self, text: str | None) -> bool:
        """Answer the question that waits; return False if none does. None leaves the answer to the model."""
        if self._answer is None or self._answer.done():
            return False
        self._answer.set_result(text)
        return True

    async def ask(self, request: Request) -> str | None:
        """Return what the person answers instead of a model; None if the model is to answer.

        The candidates for one turn are requested together: one answer is for all of them. Others wait for their turn.
        """
        key = (request.agent, tuple(request.messages))
        while self._answer is not None and self._asked != key:
            await asyncio.wait([self._answer])
            await asyncio.sleep(0)  # Whoever asked takes the question away.
        if self._answer is not None:
            return await asyncio.shield(self._answer)
        self._answer, self._asked = asyncio.get_running_loop().create_future(), key
        last = request.messages[-1].text if request.messages else ""
        chooses = request.agent == CRITIC and not _asks_ranking(request)
        offered = tuple(self.proposals) if chooses else ()
        may_ask = bool(offered) and offered[0].round < self.rounds
        self.question = PersonQuestion(request.agent, last, offered, may_ask)
        self.tell("state")
        try:
            return await self._answer
        finally:
            self.question, self._answer = None, None
            self.tell("state")

    async def wait_until_going(self) -> None:
        """Wait while the play is paused."""
        await self._going.wait()

    async def wait_unless_stopped(self, reply: Coroutine[object, object, Reply]) -> Reply:
        """Return the reply. Raises Stopped as soon as a person stops the play."""
        tasks = answer, halt = asyncio.ensure_future(reply), asyncio.ensure_future(self._halted.wait())
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if halt.done():
                raise Stopped("The person said stop.")
            return await answer
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class TakeOver(Wrapper):
    """A model whose part a person can take, and that waits while the play is paused."""

    def __init__(self, model: Model, stage: LiveStage) -> None:
        super().__init__(model)
        self._stage = stage

    @property
    def traits(self) -> Traits:
        """The traits of the model, and whether a person is the critic now."""
        return replace(super().traits, attended=CRITIC in self._stage.taken)

    async def reply(self, request: Request) -> Reply:
        """Ask the person if the part is taken, and the model otherwise.

        Raises:
            Stopped: a person stopped the play.
        """
        return await self._stage.wait_unless_stopped(self._reply(request))

    async def _reply(self, request: Request) -> Reply:
        await self._stage.wait_until_going()
        while request.agent in self._stage.taken:
            line = await self._stage.ask(request)
            if line is None:
                break
            if text := write_reply(line, request):
                return Reply((ReplyChoice(Text(text)),) * request.n, Usage(), HUMAN)
        return await self._model.reply(request)


def write_reply(line: str, request: Request) -> str:
    """Return a person's line as the reply of the agent: a turn of the protocol, or a critic's choice.

    A critic's line is read by the critic; in a search it begins with numbers, best first. Empty if it is not valid.
    """
    if request.agent != CRITIC:
        return format_line(line, request.agent)
    line = clean_text(line).strip()
    if not _asks_ranking(request):
        return line if _LINE.fullmatch(line) else ""
    match = _NUMBERS.fullmatch(line)
    return f"Ranking: {match[1]}\n{match[2]}" if match else ""


def _asks_ranking(request: Request) -> bool:
    return request.response_format is not None and request.response_format.name == "ranking"


async def _open_and_play(order: SessionOrder | SocietyOrder, stage: LiveStage) -> AsyncGenerator[Event]:
    """Open the models behind those that a person can replace, and yield the events."""
    names = set((order.settings.chat if isinstance(order, SocietyOrder) else order.setup).models.values())
    inner = {name: open_model(name, order.options) for name in names}
    for model in inner.values():
        await load_local(model)
    objects = {name: TakeOver(model, stage) for name, model in inner.items()}
    options = replace(order.options, objects={**order.options.objects, **objects})
    played = (
        play_one_society(order.settings, options, order.run, stage)
        if isinstance(order, SocietyOrder)
        else play_one(replace(order, options=options), stage)
    )
    async with aclosing(played) as events:
        async for event in events:
            yield event
