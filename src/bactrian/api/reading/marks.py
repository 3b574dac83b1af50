"""Marks on the sessions of a run."""

from __future__ import annotations

import time
from pathlib import Path

from bactrian.api.reading.selection import find_session
from bactrian.errors import InputError
from bactrian.records.run import Mark
from bactrian.store import open_store


async def mark_session(run: Path, session_id: str, mark: str, note: str = "") -> Mark:
    """Give a session a mark, or change the note of a mark that it has, and return it.

    Raises:
        InputError: the run has no such session, or the mark is blank.
        RunInUse: another process writes the run.
    """
    mark = mark.strip()
    if not mark:
        raise InputError("A mark has a name.", where="--mark", next="Give one, such as --mark good.")
    async with open_store(run, read_only=True) as store:
        session = await find_session(store, session_id)
    made = Mark(session.id, mark, note, time.time())
    async with open_store(run) as store:
        await store.add_mark(made)
    return made


async def remove_mark(run: Path, session_id: str, mark: str) -> None:
    """Remove a mark of a session. Raises what :func:`mark_session` raises."""
    async with open_store(run, read_only=True) as store:
        session = await find_session(store, session_id)
    async with open_store(run) as store:
        await store.remove_mark(session.id, mark)
