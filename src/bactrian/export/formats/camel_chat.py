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

from bactrian.export.format import Add, ExportContext, Format, Sample
from bactrian.export.writers.archive import open_archive
from bactrian.language.escape import to_file_name
from bactrian.records.session import Session
from bactrian.tables.camel import write_termination


def build_chat(session: Session, original_task: str) -> dict[str, object]:
    """Return a session in CAMEL's format, with ``original_task`` instead of its own."""
    made: dict[str, object] = {
        "role_1": f"{session.assistant.name}_RoleType.ASSISTANT",
        "role_2": f"{session.user.name}_RoleType.USER",
        "id": session.id,
        "original_task": original_task,
        "specified_task": session.task.specified or session.task.original,
    }
    if session.mark:
        made["mark"] = session.mark
    if session.task.planned:
        made["planned_task"] = session.task.planned
    for turn in session.turns:
        made[f"message_{turn.number}"] = {
            "role_type": turn.speaker.upper(),
            "role_name": turn.role,
            "role": turn.speaker,
            "content": str(turn.text),
        }
    made["termination_reason"] = write_termination(session.ending)
    made["num_messages"] = len(session.turns)
    return made


class DistinctTasks:
    """Makes the tasks of a role pair unique: CAMEL's data explorer keeps one chat per pair and original task.

    The first session keeps its task; later ones with the same task get the suffix ``(2)``, ``(3)`` …
    """

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def __call__(self, session: Session) -> str:
        """Return the original task of ``session``, made unique."""
        task = session.task.original
        number = 1
        while (key := _key(session, task)) in self._seen:
            number += 1
            task = f"{session.task.original} ({number})"
        self._seen.add(key)
        return task


def _key(session: Session, task: str) -> bytes:
    pair = f"{session.assistant.name}\0{session.user.name}\0{task}"
    return hashlib.blake2b(pair.encode(), digest_size=12).digest()


def make_file_name(session_id: str) -> str:
    """Return the name of a session's file: its id without characters that file names cannot hold."""
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
            put(make_file_name(session.id), json.dumps(build_chat(session, task)).encode())
            return 1

        yield add


RENAMED = "original_task with a number after it, to be one of its kind for its pair"
FORMAT = Format("camel-chat", open_camel_chat, ".zip", manifest_inside=False)
