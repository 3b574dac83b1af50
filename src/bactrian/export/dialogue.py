"""A session as a chat for training, from either side."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, takewhile
from typing import Any

from bactrian.files.template import compile_template
from bactrian.models.wire import to_wire_calls
from bactrian.protocol.fences import read_body
from bactrian.protocol.markers import is_done
from bactrian.protocol.pack import Pack, find_pack, render_prompt, render_session
from bactrian.records.session import SYSTEM, Session, find_kind
from bactrian.records.text import Text
from bactrian.records.turn import Message, Speaker, Turn, to_messages
from bactrian.tables.tables import add_extra

# The system prompts of a stored session.


@dataclass(frozen=True, slots=True)
class InceptionPrompts:
    """The initial prompts of a session's two agents."""

    user: str  # System prompt of the AI user.
    assistant: str  # System prompt of the AI assistant.
    opening: str  # First message to the AI user.


class SystemPrompts:
    """Renders the prompts of stored sessions again, from their packs and recipe.

    A session stores the hash of its pack. If that pack is neither built in nor ``pack``, or if there was none, as in an
    imported conversation without a system prompt, a short substitute is used; see :meth:`is_known`.
    """

    def __init__(self, recipe: Mapping[str, Any] | None = None, pack: Pack | None = None) -> None:
        self._packs: dict[str, Pack | None] = {pack.hash: pack} if pack else {}
        made_from: Mapping[str, Any] = recipe["recipe"] if recipe else {}
        self._answer: Mapping[str, Any] | None = made_from.get("answer")

    def is_known(self, session: Session, side: Speaker = "assistant") -> bool:
        """Return True if :meth:`render` returns the original prompt of ``side``."""
        return self._pack(session) is not None or self._answered(session) or side in _find_imported(session)

    def render(self, session: Session) -> InceptionPrompts:
        """Return the initial prompts of both sides of ``session``."""
        if pack := self._pack(session):
            names = ("user_system", "assistant_system", "opening_request")
            return InceptionPrompts(*(render_session(name, session, pack) for name in names))
        if self._answered(session):
            assert self._answer is not None
            names = frozenset(session.values)
            system = compile_template(self._answer["system"], may=names).render(session.values).strip()
            return InceptionPrompts(user="", assistant=system, opening="")
        return replace(_stand_in(session), **_find_imported(session))

    def _pack(self, session: Session) -> Pack | None:
        known = session.provenance.prompts_hash
        if known not in self._packs:
            self._packs[known] = find_pack(known)
        return self._packs[known]

    def _answered(self, session: Session) -> bool:
        if self._answer is None or find_kind(session) != "answer":
            return False
        text = f"{self._answer['system']}\0{self._answer['question']}"
        return hashlib.sha256(text.encode()).hexdigest() == session.provenance.prompts_hash


def _find_imported(session: Session) -> dict[str, str]:
    """Return the system prompts of an imported conversation by side, as far as its file has them."""
    prompts = session.provenance.extra.get(SYSTEM, {})
    sides: tuple[Speaker, ...] = ("assistant", "user")
    return {side: prompts[side] for side in sides if isinstance(prompts.get(side), str)}


def _stand_in(session: Session) -> InceptionPrompts:
    assistant, user = session.assistant.name, session.user.name
    task = session.task.text
    if find_kind(session) == "answer":
        return InceptionPrompts(
            user="", assistant=render_prompt("unknown_answerer", role=assistant), opening=""
        )
    return InceptionPrompts(
        user=render_prompt("unknown_user", role=user, other=assistant, task=task),
        assistant=render_prompt("unknown_assistant", role=assistant, other=user, task=task),
        opening=render_prompt("unknown_opening"),
    )


# Key of a model's thoughts before a message, as in the chat templates of reasoning models.
THOUGHT = "reasoning_content"


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
    """Return these turns as messages for the agent of ``side``, whose messages have the role `assistant`.

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
        from_side = turn.speaker == side
        messages += to_messages(turn.uses) if from_side and tools else []
        messages.append(Message("assistant" if from_side else "user", turn.text))
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
    return [
        {
            "role": message.role,
            "content": str(message.text),
            **({"tool_calls": to_wire_calls(message.calls)} if message.calls else {}),
            **({"tool_call_id": message.answers} if message.answers else {}),
        }
        for message in messages
    ]


def add_thoughts(rows: Sequence[dict[str, Any]], session: Session, side: Speaker) -> None:
    """Add the thoughts of ``side`` to its own messages. The other agent's thoughts are not part of its chat."""
    answers = (row for row in rows if row["role"] == "assistant" and "tool_calls" not in row)
    turns = (turn for turn in session.turns if turn.speaker == side)
    for row, turn in zip(answers, turns, strict=False):
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
