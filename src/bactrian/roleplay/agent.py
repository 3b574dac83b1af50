"""An agent, its view of the conversation, and its requests to a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from bactrian.errors import EmptyReply
from bactrian.models.model import History, Model, Reply, Request, ResponseFormat, derive_sampling
from bactrian.protocol.markers import read_instruction, read_solution
from bactrian.protocol.pack import render_prompt
from bactrian.records.session import HUMAN, Role
from bactrian.records.text import Text
from bactrian.records.turn import Instruction, Message, Sampling, Solution, Speaker, Turn, Usage, to_messages
from bactrian.roleplay.tools import Toolbox

EMPTY_TWICE = "with nothing, twice."
"""Ends the message about a model that says nothing; a grader counts this as a wrong reply."""
MORE_ROOM = (
    "Its thoughts took up the whole reply: raise max_tokens, or lower reasoning_effort, of its parameters"
)
_ROOM_FOR_THOUGHTS = 8
"""Times the usual length: 256 tokens are enough for a specified task, and a reasoning model thinks for longer."""
BROKE_OFF = "broke off"  # What a reply did that is asked for again, because the connection failed.


@dataclass(frozen=True, slots=True)
class Agent:
    """One side of the conversation."""

    speaker: Speaker
    role: Role
    system: Text  # Its system prompt: the inception prompt of its side.
    model: Model
    sampling: Sampling = Sampling()
    opening: Text | None = None  # The first user message; only for the agent that speaks first.
    form: ResponseFormat | None = None  # The required form of its turns; None for free text.
    among: bool = False
    """True in a group chat: messages name their speakers, and those between two of its turns are merged."""
    hears: frozenset[Speaker] | None = None  # The agents whose turns it hears, besides its own; None for all.
    toolbox: Toolbox | None = None  # The tools that it may call during its turn.
    language: str | None = None
    """The session's language; its protocol markers are recognised besides the English ones."""

    def read(self, text: str) -> Instruction | Solution | None:
        """Parse ``text`` by the protocol of the agent's side; None if it does not match or there is no side."""
        match self.speaker:
            case "user":
                return read_instruction(text, self.language)
            case "assistant":
                return read_solution(text, self.language)
            case _:
                return None


class Listener(Protocol):
    """Receives the text of a turn while it is generated. With a listener, replies are streamed."""

    def hear(self, speaker: Speaker, piece: str) -> None:
        """Receive the next piece of text from ``speaker``."""
        ...

    def restart(self, speaker: Speaker, why: str = BROKE_OFF) -> None:
        """Discard the pieces of this turn: ``speaker`` is asked again, and ``why`` says what the reply did."""
        ...


class View:
    """The conversation as messages for one agent: its own turns are the assistant's, all others are the user's.

    Messages are only appended, so that a server's prefix cache stays valid for all but the newest message.
    """

    __slots__ = ("agent", "messages")

    def __init__(self, agent: Agent, turns: Sequence[Turn] = ()) -> None:
        self.agent = agent
        begin = [Message("system", agent.system)]
        # In a group chat, the last message may change.
        self.messages: list[Message] = begin if agent.among else History(begin)
        if agent.opening is not None:
            self.messages.append(Message("user", agent.opening))
        for turn in turns:
            self.hear(turn)

    def hear(self, turn: Turn) -> None:
        """Append a turn, the agent's own or another's."""
        if self.agent.among:
            self._hear_among_others(turn)
            return
        if turn.speaker == self.agent.speaker:
            in_text = self.agent.toolbox is not None and self.agent.toolbox.in_text
            self.messages += to_messages(turn.uses) if turn.uses and not in_text else []
            self.messages.append(Message("assistant", turn.text))
        else:
            self.messages.append(Message("user", turn.text))

    def question(self) -> list[Message]:
        """Return the messages of the agent's next request; the last one is from the user."""
        if self.agent.among and self.messages[-1].role != "user":
            return [*self.messages, _say_your_turn()]
        return self.messages

    def _hear_among_others(self, turn: Turn) -> None:
        """Append another agent's turn; consecutive ones are merged because servers require alternating roles."""
        agent, last = self.agent, self.messages[-1]
        if turn.speaker == agent.speaker:
            self.messages += [] if last.role == "user" else [_say_your_turn()]
            self.messages += [*to_messages(turn.uses), Message("assistant", turn.text)]
        elif agent.hears is None or turn.speaker in agent.hears:
            text = f"{turn.role}: {turn.text}"
            if last.role == "user":
                self.messages[-1] = Message("user", Text(f"{last.text}\n\n{text}"))
            else:
                self.messages.append(Message("user", Text(text)))


def _say_your_turn() -> Message:
    return Message("user", Text(render_prompt("group_your_turn")))


async def ask_agent(
    view: View,
    number: int,
    *,
    session: str,
    call_index: int,
    used: Sequence[Message] = (),
    allow_tool_calls: bool = True,
    attempt: int = 0,
    listener: Listener | None = None,
) -> tuple[Reply, Usage]:
    """Ask the agent's model for turn ``number``. Return its reply and the usage so far.

    ``used`` are the agent's tool calls in this turn; ``attempt`` is the number of earlier replies for it. An empty
    reply is requested once more with another seed; the usage of both is added.

    Raises:
        ModelError: the model does not answer, or returns two empty replies.
    """
    agent = view.agent
    request = Request(
        messages=[*view.question(), *used] if used else view.question(),
        sampling=derive_sampling(agent.sampling, agent.speaker, number, attempt),
        response_format=agent.form,
        tools=agent.toolbox.offered if agent.toolbox else (),
        allow_tool_calls=allow_tool_calls,
        session=session,
        agent=agent.speaker,
        call_index=call_index,
        attempt=attempt,
        on_text=partial(listener.hear, agent.speaker) if listener else None,
        on_restart=partial(listener.restart, agent.speaker) if listener else None,
    )
    reply = await agent.model.reply(request)
    usage = reply.usage
    if not _says_something(reply, request):
        again = derive_sampling(agent.sampling, agent.speaker, number, attempt, retry=True)
        reply = await agent.model.reply(replace(request, sampling=make_room_for_thoughts(again, reply)))
        usage += reply.usage
        if not _says_something(reply, request):
            fault = EmptyReply(
                f"The model answered turn {number} {EMPTY_TWICE}",
                where=agent.model.name,
                next=(MORE_ROOM if is_all_thought(reply) else "Try another model or other sampling")
                + "; the session can be resumed.",
                sample=reply.raw,
            )
            fault.spent = usage.prompt, usage.completion
            raise fault
    return reply, usage


def is_all_thought(reply: Reply) -> bool:
    """Return True if the model's thoughts took up the whole length of the reply."""
    choice = reply.choices[0]
    return bool(choice.thought) and choice.finish == "length" and not choice.text.strip()


def make_room_for_thoughts(sampling: Sampling, reply: Reply) -> Sampling:
    """Return ``sampling`` for the request after ``reply``: longer if that was all thought, else unchanged."""
    if sampling.max_tokens is None or not is_all_thought(reply):
        return sampling
    return replace(sampling, max_tokens=sampling.max_tokens * _ROOM_FOR_THOUGHTS)


def make_turn(agent: Agent, number: int, reply: Reply, *, usage: Usage, seconds: float) -> Turn:
    """Make the turn that speaks ``reply``; ``usage`` and ``seconds``, 0 of a person, cover all requests for it."""
    choice = reply.choices[0]
    return Turn(
        number=number,
        speaker=agent.speaker,
        role=agent.role.name,
        text=choice.text,
        said=agent.read(choice.text),
        usage=usage,
        seconds=0.0 if reply.model == HUMAN else seconds,
        first_token=reply.first_token,
        model=reply.model,
        finish="content_filter" if choice.refusal else choice.finish,
        lossy=choice.lossy,
        fingerprint=reply.fingerprint,
        thought=choice.thought,
    )


def _says_something(reply: Reply, request: Request) -> bool:
    """Return False for a reply without text; tool calls count as text only if there are tools."""
    first = reply.choices[0]
    return (
        bool(first.text.strip() or (first.calls and request.tools))
        or first.refusal
        or first.finish == "content_filter"
    )
