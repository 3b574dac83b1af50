"""Instructions with their outputs, a row for each round: ``camel-instructions`` and ``alpaca``.

Rows of one conversation become one session, wherever they are in the file. What both sides said is written in the form
of the protocol again; a row of another program's ``alpaca`` becomes a question and its answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from bactrian.ingest.camel_chat import read_roles
from bactrian.ingest.chats import name_row_keys, read_models, read_values
from bactrian.ingest.parsed import (
    NotAChat,
    Origin,
    ParsedMessage,
    Row,
    build_ending,
    build_turns,
    collect_extra,
    pick_extra,
    read_id,
    read_name,
    read_text,
)
from bactrian.records.ending import Ending
from bactrian.records.session import Role, Session, Task
from bactrian.records.turn import Instruction, Solution, Speaker

CAMEL = "camel-instructions"
ALPACA = "alpaca"
_KNOWN = frozenset(
    (
        *("id", "role_1", "role_2", "original_task", "specified_task", "mark", "termination_reason"),
        *("role_1_response", "role_1_message_id", "instruction", "input", "output"),
    )
)
_KEYS_OF_ALPACA = frozenset(("instruction", "input", "output", "turn"))


def find_conversation(row: Row, form: str) -> tuple[str, ...] | None:
    """Return what the rows of one conversation have in common; None if each row is one by itself."""
    keys = ("id", "role_1", "role_2") if form == CAMEL else ("run", "session") if form == ALPACA else ()
    content = row.lower
    found = tuple(read_text(content, key) for key in keys)
    tasks = (read_text(content, "original_task"), read_text(content, "specified_task"))
    return (*found, *tasks) if all(found) and found else None


def read_instructions(rows: Sequence[Row], origin: Origin) -> Session:
    """Return the session of CAMEL's instructions of one conversation.

    Raises:
        NotAChat: a required part is missing.
    """
    first = rows[0].lower
    roles = read_roles(first)
    original, specified = read_text(first, "original_task"), read_text(first, "specified_task")
    if not (original or specified):
        raise NotAChat("it has no task")
    said = _list_messages(rows, "role_1_message_id", roles, _KNOWN)
    turns = build_turns(said, origin.model)
    return Session(
        id=read_id(first.get("id"), rows[0].stem),
        assistant=Role(roles["assistant"]),
        user=Role(roles["user"]),
        task=Task(original or specified, specified or None),
        provenance=origin.provenance(CAMEL, collect_extra({}, said)),
        turns=turns,
        ending=build_ending(read_text(first, "termination_reason"), turns),
        mark=read_text(first, "mark") or None,
    )


def read_alpaca(rows: Sequence[Row], origin: Origin) -> Session:
    """Return the session of an instruction of another program, or of those of one conversation that was exported here.

    Raises:
        NotAChat: instruction or output is missing.
    """
    first = rows[0].lower
    models, values = read_models(first), read_values(first)
    ours = isinstance(first.get("turn"), int)
    agents = ("assistant",) if not ours or (models and "user" not in models) else ()
    roles: dict[Speaker, str] = {
        "assistant": read_name(first.get("assistant_role"), "Assistant"),
        "user": read_name(first.get("user_role"), "User"),
    }
    said = _list_messages(rows, "turn", roles, _KEYS_OF_ALPACA | name_row_keys(values), plain=bool(agents))
    turns = build_turns(said, origin.model)
    digest = hashlib.sha256("\0".join(turn.text for turn in turns).encode()).hexdigest()
    reason = read_text(first, "ending")
    original, specified = read_text(first, "original_task"), read_text(first, "specified_task")
    return Session(
        id=read_id(first.get("session") or first.get("id"), digest[:12]),
        assistant=Role(roles["assistant"]),
        user=Role(roles["user"]),
        task=Task(original or str(turns[0].text), specified if specified != original and specified else None),
        provenance=origin.provenance(ALPACA, collect_extra({}, said), agents=agents, models=models),
        turns=turns,
        ending=build_ending(reason, turns)
        if ours and not agents
        else Ending("answered", turns[-1].number, "assistant", ""),
        values=values or {},
        mark=read_text(first, "mark") or None,
    )


def _read_number(row: Row, key: str) -> int:
    given = row.lower.get(key)
    return given if isinstance(given, int) and 0 <= given < 10**6 else 0


def _number_rounds(rows: Sequence[Row], key: str) -> Iterator[int]:
    """Yield the number of each instruction's turn, which is odd; CAMEL's own files may count from 0."""
    last = -1
    for row in rows:
        number = _read_number(row, key)
        number += 1 - number % 2
        last = max(number, last + 2)
        yield last


def _read_parts(row: Row) -> tuple[Instruction, Solution]:
    content = row.lower
    instruction, output = content.get("instruction"), content.get("output")
    if not (isinstance(instruction, str) and isinstance(output, str)):
        raise NotAChat("it has no instruction and output")
    if not instruction.strip():
        raise NotAChat("its instruction is empty")
    given = read_text(content, "input").strip()
    ask = Instruction(
        read_text(content, "instruction"),
        None if given.lower() in ("", "none") else given,
        read_text(content, "role_1_response"),
    )
    return ask, Solution(read_text(content, "output"))


def _list_messages(
    rows: Sequence[Row], key: str, roles: Mapping[Speaker, str], known: frozenset[str], *, plain: bool = False
) -> list[ParsedMessage]:
    """Return the two messages of each row: ``plain``, or with the markers of the protocol."""
    said: list[ParsedMessage] = []
    rows = sorted(rows, key=lambda row: _read_number(row, key))
    for row, number in zip(rows, _number_rounds(rows, key), strict=True):
        ask, answer = _read_parts(row)
        asked, answered = ask.instruction, answer.solution
        if not plain:
            preface = f"{ask.preface}\n" if ask.preface else ""
            asked = f"{preface}Instruction: {asked}\nInput: {ask.input or 'None'}"
            answered = f"Solution: {answered}"
        elif ask.input:
            asked += f"\n\n{ask.input}"
        extra = pick_extra(row.content, known)
        said.append(ParsedMessage(number, "user", roles["user"], asked, ask, extra))
        said.append(ParsedMessage(number + 1, "assistant", roles["assistant"], answered, answer))
    return said
