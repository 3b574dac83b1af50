"""``camel-chat``: the files that CAMEL's data explorer and its converter read, one for each session.

A folder, a ``.zip`` or a ``.tar.gz``, with one ``ID.json`` for each session at its root and nothing else. The keys
and their order are those of CAMEL's own files, with one difference: in those, ``num_messages`` precedes
``termination_reason`` in chats of 40 messages, and here it is always last. Two keys are optional: ``mark``, and
``planned_task`` as in CAMEL's own chats with a planner.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.writers.archive import open_archive
from bactrian.language.escape import to_file_name
from bactrian.language.protocol import DONE
from bactrian.records.session import Session
from bactrian.tables.camel import name_roles, write_roles, write_termination
from bactrian.tables.lineage import add_extra


def build_chat(session: Session, original_task: str) -> dict[str, Any]:
    """Return a session in CAMEL's format, with ``original_task`` instead of its own.

    Messages are numbered without gaps, and a session that is done ends with the done token: CAMEL's converter reads
    ``message_1`` to ``message_N`` and drops the last message of such a chat, which would else be a solution.
    """
    made: dict[str, Any] = {
        **write_roles(session),
        "id": session.id,
        "original_task": original_task,
        "specified_task": session.task.specified or session.task.original,
    }
    if session.mark:
        made["mark"] = session.mark
    if session.task.planned:
        made["planned_task"] = session.task.planned
    made = add_extra(made, session)
    messages = [
        add_extra(_build_message(turn.speaker, turn.role, turn.text), session, turn.number)
        for turn in session.turns
    ]
    if is_cut_at_done(session):
        messages.append(_build_message("user", session.user.name, DONE))
    made |= {f"message_{number}": message for number, message in enumerate(messages, start=1)}
    made["termination_reason"] = write_termination(session.ending)
    made["num_messages"] = len(messages)
    return made


def is_cut_at_done(session: Session) -> bool:
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
        original = key = _key(session, task)
        number = self._numbers.get(original, 1)
        while key in self._numbers:
            number += 1
            task = f"{session.task.original} ({number})"
            key = _key(session, task)
        self._numbers[original] = number
        self._numbers.setdefault(key, 1)
        return task


def _key(session: Session, task: str) -> bytes:
    pair = "\0".join((*name_roles(session), task))
    return hashlib.blake2b(pair.encode(), digest_size=12).digest()


def make_file_name(session_id: str) -> str:
    """Return the name of a session's file: its id without characters that file names cannot contain."""
    return f"{to_file_name(session_id)}.json"


@contextmanager
def open_camel_chat(path: Path, context: ExportContext) -> Generator[Add]:
    """Open a folder or an archive, by the suffix of ``path``, for one file per session."""
    distinct = DistinctTasks()
    with open_archive(path) as put:

        def add(sample: Sample) -> int:
            session = sample.session
            task = distinct(session)
            context.notes[RENAMED] += task != session.task.original
            context.notes[CLOSED] += is_cut_at_done(session)
            put(make_file_name(session.id), json.dumps(build_chat(session, task)).encode())
            return 1

        yield add


CLOSED = "done token added at the end, which the imported chat lacked"
RENAMED = "original_task with a number after it, to be one of its kind for its pair"
FORMAT = Format("camel-chat", open_camel_chat, ".zip", manifest_inside=False)
