"""The state of a running session, the order of its speakers, and the strategies that make a turn."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Protocol

from bactrian.detect.loops import is_repetition
from bactrian.errors import BadReply
from bactrian.models.model import Reply
from bactrian.protocol.markers import find_instruction
from bactrian.records.events import Called, Chose, Proposed, Returned, Spoke
from bactrian.records.session import Session
from bactrian.records.text import Text
from bactrian.records.turn import Message, Speaker, ToolCall, ToolResult, Turn, Usage, Use, group_rounds
from bactrian.roleplay.agent import Agent, Listener, View, ask_agent, build_user_format, make_turn
from bactrian.roleplay.critic import SessionCritic
from bactrian.roleplay.endings import Rule, default_endings
from bactrian.roleplay.tools import Toolbox

# The order of speakers. Policies depend on the turns only, so that a resumed session needs no further state.


_NEXT = re.compile(r"^[*_#> \t]*next[*_]*[ \t]*:[*_ \t]*(?P<name>[^\n]+)$", re.IGNORECASE | re.MULTILINE)
_TO = re.compile(r"^[*_#> \t]*to[*_]*[ \t]*:[*_ \t]*(?P<name>[^\n]+)$", re.IGNORECASE | re.MULTILINE)
_EDGES = " \t*_.\"'`<>[]"


class SpeakerOrder(Protocol):
    """A policy that chooses the next speaker from the turns so far."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent that speaks after ``turns``."""
        ...


@dataclass(frozen=True, slots=True)
class Alternate:
    """Two agents alternate; the AI user begins (paper, equation 1)."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent that did not speak last."""
        return "assistant" if turns and turns[-1].speaker == "user" else "user"


@dataclass(frozen=True, slots=True)
class RoundRobin:
    """All agents speak in a fixed order, again and again."""

    agents: tuple[Speaker, ...]

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent after the one that spoke last."""
        if not turns:
            return self.agents[0]
        return self.agents[(self.agents.index(turns[-1].speaker) + 1) % len(self.agents)]


@dataclass(frozen=True, slots=True)
class Moderated:
    """A moderator speaks between all others and names the next one in a line ``Next: ROLE``.

    If the moderator names no agent, the one that has been silent for longest speaks.
    """

    moderator: Speaker
    roles: Mapping[Speaker, str]
    """Role by agent, the moderator's too, in the default order of speakers."""

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the moderator, or the agent that it named."""
        if not turns or turns[-1].speaker != self.moderator:
            return self.moderator
        named = [match["name"] for match in _NEXT.finditer(turns[-1].text)]
        others = [name for name in self.roles if name != self.moderator]
        return (_found(named[-1], self.roles, others) if named else None) or _longest_silent(others, turns)


@dataclass(frozen=True, slots=True)
class ReplyTo:
    """The agent that a turn addresses answers: by a line ``To: ROLE``, or by ``@ROLE``.

    If none is addressed, the previous speaker answers; at the beginning, the next agent in the list.
    """

    roles: Mapping[Speaker, str]

    def next_speaker(self, turns: Sequence[Turn]) -> Speaker:
        """Return the agent that the last turn addresses."""
        names = list(self.roles)
        if not turns:
            return names[0]
        last = turns[-1]
        others = [name for name in names if name != last.speaker]
        lines = [match["name"] for match in _TO.finditer(last.text)]
        addressed = (
            _found(lines[-1], self.roles, others) if lines else _mentioned(last.text, self.roles, others)
        )
        if addressed is not None:
            return addressed
        before = next((turn.speaker for turn in reversed(turns) if turn.speaker != last.speaker), None)
        return before or names[(names.index(last.speaker) + 1) % len(names)]


def _found(written: str, roles: Mapping[Speaker, str], among: Sequence[Speaker]) -> Speaker | None:
    """Return the agent with this role or name; None if not found."""
    wanted = written.strip(_EDGES).casefold()
    return next((name for name in among if wanted in (roles[name].casefold(), name.casefold())), None)


def _mentioned(text: str, roles: Mapping[Speaker, str], among: Sequence[Speaker]) -> Speaker | None:
    """Return the agent that is mentioned first with an ``@``; None if not found."""
    lower = text.casefold()
    places = {
        name: min(
            (at for word in (roles[name], name) if (at := lower.find(f"@{word.casefold()}")) >= 0),
            default=len(lower),
        )
        for name in among
    }
    first = min(places, key=lambda name: places[name])
    return first if places[first] < len(lower) else None


def _longest_silent(among: Sequence[Speaker], turns: Sequence[Turn]) -> Speaker:
    last = {turn.speaker: turn.number for turn in turns}
    return min(among, key=lambda name: last.get(name, 0))


@dataclass(frozen=True, slots=True)
class Scene:
    """A session to play: its agents, the order of speakers, and the endings."""

    session: Session
    """With its stored turns, if it is resumed."""
    agents: Mapping[Speaker, Agent]
    order: SpeakerOrder = Alternate()
    rules: tuple[Rule, ...] = default_endings()
    critic: SessionCritic | None = None
    """The critic that chooses each turn among several proposals; None if agents speak their model's first reply."""
    listener: Listener | None = None


TurnEvent = Proposed | Chose | Called | Returned | Spoke
"""The events of a turn; the last one is ``Spoke``."""


class SessionState:
    """The state of a session while it is played."""

    def __init__(self, scene: Scene) -> None:
        session = scene.session
        self.scene = scene
        self.turns = list(session.turns)
        """The turns so far, the oldest first."""
        self.speaker: Speaker = ""
        """The agent whose turn it is."""
        self.call_index = sum(step is not None for step in (session.task.specified, session.task.planned))
        """Number of requests for the turns so far, without repetitions and proposals."""
        self.call_index += sum(turn.requests for turn in self.turns)
        self.pending = session.pending
        """Stored tool calls of the next turn, in a session that was interrupted."""
        self._views = {speaker: View(agent, self.turns) for speaker, agent in scene.agents.items()}

    @property
    def number(self) -> int:
        """Number of the next turn, from 1."""
        return len(self.turns) + 1

    @property
    def view(self) -> View:
        """The conversation from the speaker's side."""
        return self._views[self.speaker]

    def add_turn(self, turn: Turn) -> None:
        """Append a turn, and add it to the views of all agents."""
        self.turns.append(turn)
        self.call_index += turn.requests
        self.pending = ()
        for view in self._views.values():
            view.hear(turn)


class TurnStrategy(Protocol):
    """Produces the next turn."""

    def take_turn(self, state: SessionState) -> AsyncGenerator[TurnEvent]:
        """Yield the events of the next turn, the turn last; a search may yield several turns.

        No request is sent before the caller asks for the next event. Stored events of an interrupted turn are yielded
        again instead of being requested again.

        Raises:
            ModelError: a model does not answer, or its answer cannot be used.
        """
        ...


# A turn made by one request.


class Plain:
    """The agent speaks its model's first reply."""

    async def take_turn(self, state: SessionState) -> AsyncGenerator[Spoke]:
        """Yield the turn."""
        yield await self.speak(state)

    async def speak(self, state: SessionState) -> Spoke:
        """Ask the model once; twice if its first reply is empty. The loop awaits this: a generator costs more."""
        view, number, scene = state.view, state.number, state.scene
        begun = perf_counter()
        reply, usage = await ask_agent(
            view,
            number,
            session=scene.session.id,
            call_index=state.call_index,
            listener=scene.listener,
        )
        return Spoke(make_turn(view.agent, number, reply, usage=usage, seconds=perf_counter() - begun))


# Turns of a model that repeats whatever it sees: the built-in one, on ideas other than the paper's example.
#
# Such a model continues its own earlier turns as a list. So it sees nothing but what was said to it last, it
# opens each instruction in another way, and a useless reply is requested again. Measured in
# docs/performance.md.


ATTEMPTS = 3
"""Requests for a turn; the last reply is spoken whatever it says."""


class Fresh:
    """The agent speaks its model's first reply that says something new."""

    async def take_turn(self, state: SessionState) -> AsyncGenerator[Spoke]:
        """Yield the turn."""
        scene, agent, begun = state.scene, state.view.agent, perf_counter()
        view, used = _shorten(state.view, state.turns), Usage()
        turn: Turn | None = None
        for attempt in range(ATTEMPTS):
            if turn is not None and scene.listener is not None:
                scene.listener.restart(agent.speaker, "says nothing new")
            reply, usage = await ask_agent(
                view,
                state.number,
                session=scene.session.id,
                call_index=state.call_index,
                attempt=attempt,
                listener=scene.listener,
            )
            used += usage
            turn = make_turn(agent, state.number, reply, usage=used, seconds=perf_counter() - begun)
            if not _is_useless(turn, state.turns):
                break
        assert turn is not None
        yield Spoke(turn)


def _is_useless(turn: Turn, before: list[Turn]) -> bool:
    """Return True for a repetition, and for an assistant that gives instructions, which would end the session."""
    if turn.speaker == "assistant" and find_instruction(turn.text):
        return True
    return is_repetition([*before, turn])


def _shorten(view: View, turns: list[Turn]) -> View:
    """Return the view with the last message only; the AI user also keeps the question that opened the conversation."""
    agent, (system, *heard) = view.agent, view.messages
    last = heard[-1].text
    if agent.opening is not None and len(heard) > 1:
        last = Text(f"{last}\n{agent.opening}")
    if agent.speaker == "user" and agent.form is not None:
        said = [turn.text for turn in turns if turn.speaker == "user"]
        agent = replace(agent, form=build_user_format(small=True, plain=True, used=said))
    short = View(agent)
    short.messages = [system, Message("user", last)]
    return short


# A turn with tool calls: the agent calls tools and receives the results until a reply calls nothing.


_CONCURRENCY = 16
"""Concurrent tool calls of one reply; further ones wait."""


class WithTools:
    """The agent may call tools before it speaks."""

    async def take_turn(self, state: SessionState) -> AsyncGenerator[Called | Returned | Spoke]:
        """Ask the model until its reply calls nothing; that reply is the turn."""
        loop = ToolLoop(state)
        async with aclosing(loop.run()) as events:
            async for event in events:
                yield event
        yield Spoke(loop.turn())


class ToolLoop:
    """An agent's replies that call tools, up to the one that speaks."""

    def __init__(self, state: SessionState) -> None:
        self.uses = list(state.pending)
        """The tool calls of this turn so far."""
        self._state = state
        self._reply: Reply | None = None
        self._usage = Usage()
        self._seconds = 0.0

    def replay(self) -> list[Called | Returned]:
        """Return the stored events of an interrupted turn."""
        events: list[Called | Returned] = []
        for use in self.uses:
            events += [Called(use.call), *([Returned(use.result)] if use.result else [])]
        return events

    async def run(self) -> AsyncGenerator[Called | Returned]:
        """Yield all calls of a reply before the first of them runs, and each result as soon as it arrives.

        In a resumed turn, only the calls without a stored result run again.

        Raises:
            ModelError: the model does not answer, or calls tools after its last round.
        """
        for event in self.replay():
            yield event
        state, view = self._state, self._state.view
        toolbox = view.agent.toolbox
        assert toolbox is not None
        while True:
            async with aclosing(_finish(toolbox, self.uses)) as results:
                async for result in results:
                    yield Returned(result)
            done = len(group_rounds(self.uses))
            allow_tool_calls = done < toolbox.kit.rounds
            begun = perf_counter()
            reply, self._usage = await ask_agent(
                view,
                state.number,
                session=state.scene.session.id,
                call_index=state.call_index + done,
                used=toolbox.write_messages(self.uses, last=not allow_tool_calls),
                allow_tool_calls=allow_tool_calls,
                listener=state.scene.listener,
            )
            reply = toolbox.read_calls(reply) if allow_tool_calls else reply
            self._reply, self._seconds = reply, perf_counter() - begun
            if not allow_tool_calls or not reply.choices[0].calls:
                break
            for call in self._calls(reply, done + 1):
                yield Called(call)
                self.uses.append(Use(call))
        if not reply.text.strip() and reply.choices[0].calls:
            raise BadReply(
                f"The model called tools {done + 1} times for turn {state.number} and said nothing.",
                where=view.agent.model.name,
                next="Allow more rounds of tools, or try another model.",
                sample=reply.raw,
            )

    @property
    def usage(self) -> Usage:
        """Tokens of the replies that called tools."""
        return sum((use.call.usage for use in self.uses), Usage())

    @property
    def seconds(self) -> float:
        """Time of the replies that called tools, and of the slowest tool of each."""
        return sum(
            group[0].call.seconds + max(use.result.seconds if use.result else 0.0 for use in group)
            for group in group_rounds(self.uses)
        )

    def turn(self) -> Turn:
        """Make the turn of the final reply, with the usage and time of all replies."""
        turn, toolbox = self.draft(), self._state.view.agent.toolbox
        assert toolbox is not None
        return replace(
            turn,
            text=toolbox.finish_text(turn.text, self.uses),
            usage=self.usage + turn.usage,
            seconds=turn.seconds + self.seconds,
            uses=tuple(self.uses),
        )

    def draft(self) -> Turn:
        """Make a turn of the final reply, with its own usage and time only."""
        assert self._reply is not None
        agent, number = self._state.view.agent, self._state.number
        return make_turn(agent, number, self._reply, usage=self._usage, seconds=self._seconds)

    def _calls(self, reply: Reply, round_: int) -> list[ToolCall]:
        choice, number = reply.choices[0], self._state.number
        first, *others = [
            ToolCall(
                number=number,
                round=round_,
                place=place,
                speaker=self._state.speaker,
                wanted=wanted if wanted.id else replace(wanted, id=f"call_{number}_{round_}_{place}"),
                text=Text(""),
                usage=Usage(),
                seconds=0.0,
                model=reply.model,
            )
            for place, wanted in enumerate(choice.calls, start=1)
        ]
        first = replace(
            first, text=choice.text, usage=self._usage, seconds=self._seconds, thought=choice.thought
        )
        return [first, *others]


async def _finish(toolbox: Toolbox, uses: list[Use]) -> AsyncGenerator[ToolResult]:
    """Run the calls among ``uses`` that have no result, concurrently, and store the results in ``uses``."""
    room = asyncio.Semaphore(_CONCURRENCY)

    async def made(call: ToolCall) -> ToolResult:
        async with room:
            return await toolbox.call(call)

    places = {
        asyncio.create_task(made(use.call)): place for place, use in enumerate(uses) if use.result is None
    }
    waiting = set(places)
    try:
        while waiting:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=places.__getitem__):
                place = places[task]
                uses[place] = replace(uses[place], result=task.result())
                yield task.result()
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
