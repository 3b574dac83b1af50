"""Reads the conversations of a stage, from runs and from JSON lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.errors import InputError
from bactrian.export.filters import Filters, SessionFilter
from bactrian.export.format import ExportContext
from bactrian.export.formats.messages import FORMAT, build_row
from bactrian.export.split import locate_group, name_group
from bactrian.export.system_prompts import SystemPrompts
from bactrian.files.sqlite_header import is_sqlite_file
from bactrian.files.toml import suggest_name
from bactrian.records.ending import ENDING_CODES
from bactrian.records.finding import BEHAVIOURS
from bactrian.records.session import Session, find_kind
from bactrian.store import open_store
from bactrian.train.data.conversation import Conversation, Said, find_fault, read_json_lines
from bactrian.train.recipe import DataSource


@dataclass(slots=True)
class ReadCounts:
    """Counts the used and the omitted conversations of a source."""

    used: int = 0
    left_out: Counter[str] = field(default_factory=Counter[str])
    """Number by reason."""


async def read_source(source: DataSource, counts: ReadCounts) -> AsyncIterator[Conversation]:
    """Yield the conversations of a run or a file that fit the filters.

    Raises:
        InputError: the source cannot be read, or a filter does not apply to it.
        StoreError: the run is damaged.
    """
    path = Path(source.path)
    if _is_database(path):
        async for one in _read_run(path, source, counts):
            if _is_in_share(one.id, source.share, counts):
                yield one
        return
    if source.only or source.drop or source.min_rounds:
        raise InputError(
            "JSON lines know no endings and behaviours to filter by.",
            where=str(path),
            next="Filter while exporting: `bactrian export RUN --format messages --only ending=CODE`.",
        )
    if source.side != "assistant":
        raise InputError(
            "Of JSON lines, the messages of the assistant are learned; they have no other side.",
            where=str(path),
            next=f"Give the run itself, or export it by `bactrian export RUN --format messages --side {source.side}`.",
        )
    for one in read_json_lines(path):
        if _is_in_share(one.id, source.share, counts):
            yield one


def _is_database(path: Path) -> bool:
    """Return True if ``path`` is a database."""
    try:
        return is_sqlite_file(path)
    except OSError:
        return False


async def _read_run(path: Path, source: DataSource, counts: ReadCounts) -> AsyncIterator[Conversation]:
    fits = SessionFilter(make_filters(source))
    async with open_store(path, read_only=True) as opened, opened.snapshot() as run:
        context = ExportContext(path.stem, SystemPrompts(await run.recipe()), source.side)
        async for session in run.sessions():
            if (kind := find_kind(session)) not in FORMAT.kinds:
                counts.left_out[kind] += 1
            elif reason := fits.find_reason(session):
                counts.left_out[reason] += 1
            elif row := build_row(session, context):
                messages = [
                    {"role": said["role"], "content": said["content"]}
                    for said in cast("list[Said]", row["messages"])
                ]
                if fault := find_fault(messages):
                    counts.left_out[fault] += 1
                else:
                    yield Conversation(f"{path.stem}:{session.id}", name_group(session), messages)
            else:
                counts.left_out[f"no turn of the {source.side}"] += 1


def make_filters(source: DataSource) -> Filters:
    """Return the filters of a run. Raises InputError for an unknown code."""
    known = (*ENDING_CODES, *BEHAVIOURS)
    for code in (*source.only, *source.drop):
        allowed = ENDING_CODES if code in source.only else known
        if code not in allowed:
            raise InputError(
                f"There is no {'ending' if code in source.only else 'ending or behaviour'} {code!r}."
                f"{suggest_name(code, allowed)}",
                where=source.path,
                next=f"There are {', '.join(allowed)}.",
            )
    return Filters(
        endings=frozenset(source.only),
        reject={code: _make_test(code) for code in source.drop},
        min_rounds=source.min_rounds,
    )


def _make_test(code: str) -> Callable[[Session], bool]:
    if code in ENDING_CODES:
        return lambda session: session.ending is not None and session.ending.code == code
    return lambda session: any(found.behaviour == code for found in find_behaviours(session))


def _is_in_share(name: str, share: float, counts: ReadCounts) -> bool:
    """Choose by a hash of the id, so that the same conversations are chosen on every machine."""
    if locate_group(f"share\0{name}") >= share:
        counts.left_out["not in the share"] += 1
        return False
    counts.used += 1
    return True
