"""The layouts of CAMEL's own data sets: chats, instructions, problems with solutions, and translated chats."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from bactrian.export.dialogue import list_rounds
from bactrian.export.format import (
    Add,
    ExportContext,
    Format,
    Put,
    Sample,
    is_archive,
    open_archive,
    open_rows,
)
from bactrian.protocol.markers import DONE
from bactrian.records.session import Session
from bactrian.records.text import to_file_name
from bactrian.records.turn import Instruction, Solution
from bactrian.tables.tables import add_extra, name_roles, name_tasks, write_roles, write_termination

# ``camel-chat``: the files that CAMEL's data explorer and its converter read, one for each session.
#
# A folder, a ``.zip`` or a ``.tar.gz``, with one ``ID.json`` for each session at its root and nothing else. The keys
# and their order are those of CAMEL's own files, with one difference: in those, ``num_messages`` precedes
# ``termination_reason`` in chats of 40 messages, and here it is always last. Two keys are optional: ``mark``, and
# ``planned_task`` as in CAMEL's own chats with a planner.


def _build_chat(session: Session, distinct: DistinctTasks, context: ExportContext) -> dict[str, Any]:
    """Return a session in CAMEL's format.

    Messages are numbered without gaps, and a session that is done ends with the done token: CAMEL's converter reads
    ``message_1`` to ``message_N`` and drops the last message of such a chat, which would else be a solution.
    """
    task = distinct(session)
    is_cut = _is_cut_at_done(session)
    context.notes["original_task with a number after it, to be one of its kind for its pair"] += (
        task != session.task.original
    )
    context.notes["done token added at the end, which the imported chat lacked"] += is_cut
    chat: dict[str, Any] = {
        **write_roles(session),
        "id": session.id,
        **name_tasks(session),
        "original_task": task,
        **({"mark": session.mark} if session.mark else {}),
        **({"planned_task": session.task.planned} if session.task.planned else {}),
    }
    messages = [
        add_extra(_build_message(turn.speaker, turn.role, turn.text), session, turn.number)
        for turn in session.turns
    ]
    if is_cut:
        messages.append(_build_message("user", session.user.name, DONE))
    return {
        **add_extra(chat, session),
        **{f"message_{number}": message for number, message in enumerate(messages, start=1)},
        "termination_reason": write_termination(session.ending),
        "num_messages": len(messages),
    }


def _is_cut_at_done(session: Session) -> bool:
    """Return True if a session is done and its last message is missing, as after an import from ``messages``."""
    done = session.ending is not None and session.ending.code == "task_done"
    last = session.turns[-1] if session.turns else None
    return done and (last is None or last.speaker != "user" or DONE not in last.text)


def _build_message(speaker: str, role: str, text: str) -> dict[str, Any]:
    return {"role_type": speaker.upper(), "role_name": role, "role": speaker, "content": str(text)}


class DistinctTasks:
    """Makes the tasks of a role pair unique: CAMEL's data explorer keeps one chat per pair and original task.

    The first session keeps its task; later ones with the same task get the suffix ``(2)``, ``(3)`` …
    """

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        """For each task that is taken, the last number that was tried for it."""

    def __call__(self, session: Session) -> str:
        """Return the original task of ``session``, made unique."""
        task = session.task.original
        original = key = _hash_task(session, task)
        number = self._numbers.get(original, 1)
        while key in self._numbers:
            number += 1
            task = f"{session.task.original} ({number})"
            key = _hash_task(session, task)
        self._numbers[original] = number
        self._numbers.setdefault(key, 1)
        return task


def _hash_task(session: Session, task: str) -> bytes:
    return hashlib.blake2b("\0".join((*name_roles(session), task)).encode(), digest_size=12).digest()


def _name_file(session: Session) -> str:
    """Return the name of a session's file: its id without characters that file names cannot contain."""
    return f"{to_file_name(session.id)}.json"


@contextmanager
def _open_chats(path: Path, context: ExportContext) -> Generator[Add]:
    """Open a folder or an archive, by the suffix of ``path``, for one file per session."""
    distinct = DistinctTasks()
    with open_archive(path) as put:

        def add(sample: Sample) -> int:
            session = sample.session
            put(_name_file(session), json.dumps(_build_chat(session, distinct, context)).encode())
            return 1

        yield add


CHAT = Format("camel-chat", _open_chats, ".zip", manifest_inside=False)


# ``camel-translated``: CAMEL's chats in other languages, an archive for each language.
#
# A file has the name of the translated chat. Only the messages are translated; characters are not escaped. A target
# that is itself an archive gets a folder for each language.


@contextmanager
def _open_translations(path: Path, context: ExportContext) -> Generator[Add]:
    """Open a folder for one ``RUN_chat_LANGUAGE.zip`` per language, or an archive, by the suffix of ``path``."""
    distinct: defaultdict[str, DistinctTasks] = defaultdict(DistinctTasks)
    packs: dict[str, Put] = {}
    with ExitStack() as stack:
        whole = stack.enter_context(open_archive(path)) if is_archive(path) else None
        if whole is None:
            path.mkdir()

        def add(sample: Sample) -> int:
            values = sample.session.values
            language = values.get("language", "unknown")
            chat = replace(sample.session, id=values.get("source", sample.session.id))
            text = json.dumps(
                _build_chat(chat, distinct[language], context), ensure_ascii=False, indent=4
            ).encode()
            if whole is not None:
                whole(f"{to_file_name(language)}/{_name_file(chat)}", text)
                return 1
            if language not in packs:
                name = f"{to_file_name(context.run)}_chat_{to_file_name(language)}.zip"
                packs[language] = stack.enter_context(open_archive(path / name))
            packs[language](_name_file(chat), text)
            return 1

        yield add


TRANSLATED = Format(
    "camel-translated", _open_translations, "", frozenset(("translation",)), manifest_inside=False
)


# ``camel-instructions``: CAMEL's instruction data, one JSON array with an entry for each round.
#
# CAMEL's procedure was never published; these rules were derived from its rows. The AI user's text before the
# instruction is ``role_1_response``; ``role_1_message_id`` is the number of the message with the instruction, as in
# ``message_1``; an instruction without input has the input ``None``.


def _list_instructions(sample: Sample, _: ExportContext) -> Iterator[dict[str, Any]]:
    session = sample.session
    for asked, answered in list_rounds(session):
        if isinstance(asked.said, Instruction) and isinstance(answered.said, Solution):
            row: dict[str, Any] = {
                "id": session.id,
                **write_roles(session),
                **name_tasks(session),
                "role_1_response": asked.said.preface,
                "role_1_message_id": asked.number,
                "instruction": asked.said.instruction,
                "input": asked.said.input or "None",
                "output": answered.said.solution,
                "termination_reason": write_termination(session.ending),
                **({"mark": session.mark} if session.mark else {}),
            }
            yield add_extra(add_extra(row, session, asked.number), session)


INSTRUCTIONS = Format("camel-instructions", open_rows(_list_instructions, array=True), ".json")


# ``camel-science``: CAMEL's problems and solutions, one JSON file for each.


@contextmanager
def _open_problems(path: Path, _: ExportContext) -> Generator[Add]:
    """Open a folder or an archive, by the suffix of ``path``, for one file per problem."""
    with open_archive(path) as put:

        def add(sample: Sample) -> int:
            session = sample.session
            for asked, answered in list_rounds(session)[:1]:
                row = _build_problem(session, asked.text, answered.text)
                put(_name_file(session), json.dumps(row).encode())
                return 1
            return 0

        yield add


def _build_problem(session: Session, problem: str, solution: str) -> dict[str, Any]:
    topic = session.values.get("topic", "")
    row: dict[str, Any] = {
        "role_1": f"{session.assistant.name}_RoleType.ASSISTANT",
        "topic": topic,
        "topic;": topic,  # the key in CAMEL's own files
        "sub_topic": session.values.get("sub_topic", ""),
        "message_1": problem,
        "message_2": solution,
        **({"mark": session.mark} if session.mark else {}),
    }
    return add_extra(row, session)


SCIENCE = Format("camel-science", _open_problems, ".zip", frozenset(("answer",)), manifest_inside=False)
