"""A session as a chat for training, from either side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Any

from bactrian.export.system_prompts import SystemPrompts
from bactrian.language.body import read_body
from bactrian.language.protocol import is_done
from bactrian.models.openai.tool_calls import to_wire_calls
from bactrian.records.message import Message
from bactrian.records.session import Session
from bactrian.records.text import Text
from bactrian.records.tool import to_messages
from bactrian.records.turn import Speaker, Turn
from bactrian.tables.lineage import add_extra

THOUGHT = "reasoning_content"
"""Key of a model's thoughts before a message, as in the chat templates of reasoning models."""


def make_alternating(session: Session) -> tuple[Turn, ...]:
    """Return the turns in strict alternation, up to the first that is missing or out of order."""
    kept: list[Turn] = []
    for number, turn in enumerate(session.turns, start=1):
        if turn.number != number or turn.speaker != ("user" if number % 2 else "assistant"):
            break
        kept.append(turn)
    return tuple(kept)


def list_rounds(session: Session) -> list[tuple[Turn, Turn]]:
    """Return each turn of the AI user with the assistant's next one; what is missing between rounds does not matter."""
    return [
        (asked, answered)
        for asked, answered in pairwise(session.turns)
        if asked.speaker == "user" and answered.speaker == "assistant" and answered.number == asked.number + 1
    ]


def view_from_side(
    session: Session,
    side: Speaker,
    turns: Sequence[Turn],
    prompts: SystemPrompts,
    *,
    tools: bool = False,
    plain: bool = False,
) -> list[Message]:
    """Return these turns as messages for the agent of ``side``, whose own are the assistant's.

    With ``tools``, its tool calls and their results are included. If ``plain``, there is no system prompt, and the
    texts are without the words of the protocol; the AI user's side begins with the task.
    """
    if plain:
        opening = [Message("user", Text(session.task.text))] if side == "user" else []
        bodies = ((turn, read_body(turn)) for turn in turns)
        return opening + [
            Message("assistant" if turn.speaker == side else "user", Text(body)) for turn, body in bodies
        ]
    rendered = prompts.render(session)
    messages = [Message("system", Text(rendered.assistant if side == "assistant" else rendered.user))]
    if side == "user":
        messages.append(Message("user", Text(rendered.opening)))
    for turn in turns:
        own = turn.speaker == side
        messages += to_messages(turn.uses) if own and tools else []
        messages.append(Message("assistant" if own else "user", turn.text))
    return messages


def build_dialogue(
    session: Session,
    side: Speaker,
    prompts: SystemPrompts,
    *,
    tools: bool = False,
    plain: bool = False,
) -> list[Message]:
    """Return the conversation from ``side``: its system prompt, then user and assistant messages in alternation.

    The last message is from ``side``: an unanswered turn is left out, so the AI user's done token ends the chat of its
    own side and is not part of the other's. Empty if ``side`` has no turn. If ``plain``, the chat ends before a turn
    that says nothing besides the words of the protocol.
    """
    turns = list(make_alternating(session))
    if plain:
        turns = list(takewhile(lambda turn: read_body(turn) and not is_done(turn.text), turns))
    while turns and turns[-1].speaker != side:
        turns.pop()
    return view_from_side(session, side, turns, prompts, tools=tools, plain=plain) if turns else []


def to_plain_text(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return messages in the form that most tools read."""
    return [_plain(message) for message in messages]


def add_thoughts(rows: Sequence[dict[str, Any]], session: Session, side: Speaker) -> None:
    """Add the thoughts of ``side`` to its own messages. The other agent's thoughts are not part of its chat."""
    said = (row for row in rows if row["role"] == "assistant" and "tool_calls" not in row)
    own = (turn for turn in session.turns if turn.speaker == side)
    for row, turn in zip(said, own, strict=False):
        if turn.thought:
            row[THOUGHT] = turn.thought


def add_message_extra(rows: list[dict[str, Any]], session: Session, side: Speaker) -> list[dict[str, Any]]:
    """Return the messages of a chat from ``side`` with the keys that those of the imported file had besides."""
    if not session.provenance.extra.keys() - {"0"}:
        return rows
    turns = iter(make_alternating(session))
    opens = side == "user"
    made: list[dict[str, Any]] = []
    for row in rows:
        spoken = row.get("role", row.get("from")) not in ("system", "tool") and "tool_calls" not in row
        if spoken and opens:  # The request to begin is not a turn.
            spoken = opens = False
        turn = next(turns, None) if spoken else None
        made.append(row if turn is None else add_extra(row, session, turn.number))
    return made


def _plain(message: Message) -> dict[str, Any]:
    made: dict[str, Any] = {"role": message.role, "content": str(message.text)}
    if message.calls:
        made["tool_calls"] = to_wire_calls(message.calls)
    if message.answers:
        made["tool_call_id"] = message.answers
    return made
