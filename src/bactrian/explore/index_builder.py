"""Builds the part of the index that a run has, slice by slice, and brings it up to date when the run is written.

There are three stages: facts (seconds, for lists and filters), texts (for the search), and behaviours, for which other
processes read the conversations. Every slice is one transaction, so the building can be stopped at any moment and goes
on from there. ``index_upkeep.py`` decides in which process.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from pathlib import Path
from typing import cast

from filelock import FileLock, Timeout

from bactrian.analyze.aggregate import map_parts
from bactrian.api.status import read_status
from bactrian.detect.detector import LIKELY
from bactrian.errors import BactrianError
from bactrian.explore import library_index
from bactrian.explore.search_words import prepare_text
from bactrian.explore.session_findings import (
    SearchedSession,
    describe_detectors,
    is_counted,
    search_sessions,
    unpack_evidence,
)
from bactrian.ingest.chats import Origin
from bactrian.ingest.importer import ImportReport, find_chats, import_chats
from bactrian.records.run import Outline, Spent, SpokenText
from bactrian.records.session import DUPLICATE, UNFINISHED
from bactrian.records.turn import HUMAN
from bactrian.runs.spending import RunPricing, Spending, read_pricing
from bactrian.store import RunStore, open_store
from bactrian.store.care import is_locked
from bactrian.store.locations import name_verdicts

_FACTS = 1000
# Sessions of a slice, by stage.
_TEXTS = 100
_EVERY_ROW = 1 << 62
# Characters of a task in a list, and of an item by which one may filter: longer ones are texts.
_LONGEST_TASK, _LONGEST_ITEM = 300, 60
# Seconds between two looks at the run: while it is being written, and while nobody writes it.
_OFTEN, _EVERY = 0.2, 1.0
# Of the time, how much reading the run again may take while it is being written.
_SHARE = 0.1
# The status of a run that is being written is read again after so many times of what that took.
_RARELY = 20
# Seconds between two looks at what the search for behaviours may begin with.
_SOON = 0.1
# Conversations that a process searches at a time.
_PART = 50
# Conversations that are searched before other runs may have the cores.
_PASS = 80 * _PART
# Seconds after which the run is read again, even if its files look unchanged.
_AT_LEAST = 30.0


@dataclass(slots=True)
class IndexBuilder:
    """Brings the index up to date with a run.

    Its connection is one of :func:`write_index` for this run alone, so that what it reads is of this run.
    """

    store: RunStore
    index: sqlite3.Connection
    # The number of the run in the index.
    run: int
    _pricing: RunPricing | None = None
    # What readers said, and the last session that was in the index, when their answers were copied.
    _copied: tuple[int, ...] = ()

    async def step(self) -> bool:
        """Add the facts or the texts of the next slice; return False if none are left."""
        if await self._add_facts():
            return True
        if self._copied[-1:] != (self._find_last(),):
            # An answer about a session that was not here yet could not be copied before.
            await self._copy_answers()
        return await self._add_texts()

    async def refresh(self) -> None:
        """Look again at the sessions that are not final, at those with new turns, at the marks and at the prices."""
        library_index.write_meta(self.index, self.run, {"size": (await self.store.count_rows())[0]})
        self._pricing = await read_pricing(self.store)
        last, touched = await self.store.find_touched(
            library_index.read_meta(self.index).get("last_turn", _EVERY_ROW)
        )
        query = "SELECT id FROM heads JOIN facts USING (row) WHERE final = 0"
        ids = {*(session for (session,) in self.index.execute(query)), *touched}
        self._write(await self.store.outlines(ids=sorted(ids)) if ids else [])
        await self._copy_marks()
        await self._copy_answers()
        self._copy_verdicts()
        library_index.write_meta(self.index, self.run, {"last_turn": last})

    def _copy_verdicts(self) -> None:
        """Make the verdicts of the index those of the file beside the run, if its code was judged."""
        path = name_verdicts(self.store.path)
        signature = library_index.read_signature(path)
        if library_index.read_meta(self.index).get("verdicts", "") == signature:
            return
        # Imported here: few runs have such a file.
        from bactrian.evaluate.code_judge import read_verdicts

        with self.index:
            self.index.execute(
                "DELETE FROM main.traits WHERE facet = 'verdict' AND row >> 32 = ?", (self.run,)
            )
            self.index.executemany(
                "INSERT OR IGNORE INTO main.traits SELECT 'verdict', ?, row FROM heads WHERE id = ?",
                [(kind, session) for session, kind in read_verdicts(path).items()],
            )
        library_index.write_meta(self.index, self.run, {"verdicts": signature})

    async def _copy_marks(self) -> None:
        """Make the marks of the index those of the run."""
        marks = {(mark.mark, mark.session): mark.note for mark in await self.store.marks()}
        query = "SELECT mark, id, note FROM marks JOIN heads USING (row)"
        have = {(mark, session): note for mark, session, note in self.index.execute(query)}
        if have == marks:
            return
        with self.index:
            self.index.execute("DELETE FROM main.marks WHERE row >> 32 = ?", (self.run,))
            self.index.executemany(
                "INSERT INTO main.marks SELECT ?, row, ? FROM heads WHERE id = ?",
                [(mark, note, session) for (mark, session), note in marks.items()],
            )

    async def _copy_answers(self) -> None:
        """Make the answers of readers in the index those of the run."""
        signature = (*await self.store.sign_answers(), self._find_last())
        if signature == self._copied:
            return
        self._copied = signature
        said = {(*key, holds) for key, holds in (await self.store.answers()).items()}
        query = "SELECT id, turn, behaviour, holds FROM answers JOIN heads USING (row)"
        have = {(*key, bool(holds)) for *key, holds in self.index.execute(query)}
        if have == said:
            return
        row = "(SELECT row FROM heads WHERE id = ?)"
        with self.index:
            self.index.executemany(
                f"DELETE FROM main.answers WHERE row = {row} AND turn = ? AND behaviour = ? AND holds = ?",  # noqa: S608
                have - said,
            )
            self.index.executemany(
                "INSERT INTO main.answers SELECT row, ?2, ?3, ?4, NULL FROM heads WHERE id = ?1", said - have
            )
            for session in {session for session, *_ in have ^ said}:
                found = self.index.execute("SELECT row FROM heads WHERE id = ?", (session,)).fetchone()
                if found is not None:
                    self._settle(found[0])

    def _settle(self, row: int) -> None:
        """Store what a conversation shows, by what detectors found and what readers say of it."""
        stored = self.index.execute("SELECT packed FROM evidence WHERE row = ?", (row,)).fetchone()
        query = "SELECT turn, behaviour, holds FROM answers WHERE row = ?"
        answers = {("", turn, code): bool(holds) for turn, code, holds in self.index.execute(query, (row,))}
        _, findings = unpack_evidence("", stored[0] if stored else b"")
        counted = {(found.behaviour, row, found.turn) for found in findings if is_counted(found, answers)}
        self.index.execute("DELETE FROM main.shown WHERE row = ?", (row,))
        self.index.executemany("INSERT INTO main.shown VALUES (?, ?, ?)", counted)
        self.index.execute("DELETE FROM main.traits WHERE facet = 'behaviour' AND row = ?", (row,))
        self.index.executemany(
            "INSERT INTO main.traits VALUES ('behaviour', ?, ?)", {(found[0], row) for found in counted}
        )
        self.index.execute(
            "UPDATE main.facts SET findings = ? WHERE row = ? AND seen_turns >= 0", (len(counted), row)
        )
        self.index.executemany(
            "UPDATE main.answers SET found = ? WHERE row = ? AND turn = ? AND behaviour = ?",
            [
                (found.confidence >= LIKELY, row, found.turn, found.behaviour)
                for found in findings
                if found.key in answers
            ],
        )

    def _find_last(self) -> int:
        """Return the row of the last session in the index."""
        # The table itself, not the view: so SQLite looks at its end, and does not read it.
        query = f"SELECT max(row) FROM main.heads WHERE row {library_index.WITHIN}"  # noqa: S608
        return self.index.execute(query).fetchone()[0] or self.run << 32

    async def _add_facts(self) -> bool:
        outlines = await self.store.outlines(self._find_last() - (self.run << 32), _FACTS)
        self._write(outlines)
        if outlines:
            # What is of a session that was not here yet could not be copied before.
            await self._copy_marks()
            library_index.write_meta(self.index, self.run, {"verdicts": None})
            self._copy_verdicts()
        return bool(outlines)

    def _write(self, outlines: Iterable[Outline]) -> None:
        """Store outlines, or replace what is stored of them."""
        with self.index:
            for outline in outlines:
                row, said = (self.run << 32) + outline.row, (outline.assistant, outline.user)
                self.index.execute("INSERT OR IGNORE INTO tasks (text) VALUES (?)", (outline.original_task,))
                self.index.execute(
                    "INSERT INTO main.facts"
                    " (assistant, user, task, language, kind, ending, turns, mark, final, needs_code, row)"
                    " VALUES (?, ?, (SELECT no FROM tasks WHERE text = ?), ?, ?, ?, ?, ?, ?, ?, ?)"
                    " ON CONFLICT (row) DO UPDATE SET ending = excluded.ending,"
                    " turns = excluded.turns, final = excluded.final,"
                    " seen_turns = iif(ending = excluded.ending, seen_turns, -1)",
                    (
                        *((library_index.SEVERAL.join(outline.agents), "") if outline.agents else said),
                        *(outline.original_task, outline.language, outline.kind),
                        *(outline.ending or UNFINISHED, outline.turns, outline.mark, outline.final),
                        *(outline.needs_code, row),
                    ),
                )
                self.index.executemany(
                    "INSERT OR IGNORE INTO main.traits VALUES (?, ?, ?)",
                    [(facet, value, row) for facet, value in list_traits(outline)],
                )
                task = (outline.specified_task or outline.original_task)[:_LONGEST_TASK]
                self.index.execute(
                    "INSERT INTO main.heads VALUES (?, ?, ?, ?) ON CONFLICT (row) DO UPDATE SET task = excluded.task",
                    (row, outline.id, task, outline.created),
                )

    async def _add_texts(self) -> bool:
        query = (
            "SELECT row, id FROM facts JOIN heads USING (row) WHERE text_turns <> turns ORDER BY row LIMIT ?"
        )
        rows: list[tuple[int, str]] = self.index.execute(query, (_TEXTS,)).fetchall()
        if not rows:
            return False
        ids = [session for _, session in rows]
        texts = defaultdict[str, list[SpokenText]](list)
        for text in await self.store.texts(ids):
            texts[text.session].append(text)
        outlines = {outline.id: outline for outline in await self.store.outlines(ids=ids)}
        attended = await self.store.list_attended(ids)
        pricing = self._pricing
        if pricing is None or (pricing.by_session and not pricing.sessions.keys() >= set(ids)):
            # Without its command, what a session that just began costs would be nothing, and not unknown.
            self._pricing = pricing = await read_pricing(self.store)
        parts = defaultdict[str, list[Spent]](list)
        for part in await self.store.list_spent(ids):
            parts[part.session].append(part)
        with self.index:
            self.index.execute("BEGIN IMMEDIATE")
            for row, session in rows:
                if session not in outlines:
                    # A hand wrote an id that no query finds, such as one with a NUL.
                    self.index.execute("UPDATE main.facts SET text_turns = turns WHERE row = ?", (row,))
                    continue
                self._index(row, outlines[session], texts[session], pricing.add_up(parts[session]))
                if session in attended:
                    self.index.execute(
                        "INSERT OR IGNORE INTO main.traits VALUES ('model', ?, ?)", (HUMAN, row)
                    )
        return True

    def _index(self, row: int, outline: Outline, texts: Sequence[SpokenText], paid: Spending) -> None:
        """Put a session into the full-text index. What was there of it is taken out."""
        # Read here, in the transaction: another explorer may have emptied the full-text index meanwhile, or forgotten
        # the run, whose file may be gone.
        query = "SELECT max(text_turns) FROM facts WHERE row = ?"
        before: int | None = self.index.execute(query, (row,)).fetchone()[0]
        if before is None:
            return
        task = prepare_text(f"{outline.original_task}\n{outline.specified_task or ''}")
        if before > 0:
            # An index without content can forget a text only if it is told the text.
            old = prepare_text("\n".join(text.text for text in texts[:before]))
            self.index.execute(
                "INSERT INTO words (words, rowid, task, talk) VALUES ('delete', ?, ?, ?)", (row, task, old)
            )
        if texts:
            talk = prepare_text("\n".join(str(text.text) for text in texts))  # A file may contain any type.
            self.index.execute("INSERT INTO words (rowid, task, talk) VALUES (?, ?, ?)", (row, task, talk))
        # ``turns`` may have grown between two reads: what counts is what was indexed.
        cost = None if outline.is_imported and not paid.usage.total else paid.usd
        self.index.execute(
            "UPDATE main.facts SET text_turns = ?, turns = ?, tokens = ?, cost = ? WHERE row = ?",
            (len(texts), len(texts), paid.usage.total, -1.0 if cost is None else cost, row),
        )

    def has_unread(self) -> bool:
        """Return True if texts are missing in the full-text index."""
        query = "SELECT EXISTS (SELECT 1 FROM facts WHERE text_turns <> turns)"
        return bool(self.index.execute(query).fetchone()[0])

    def is_behind(self, state: Mapping[str, str]) -> bool:
        """Return True if texts or behaviours are missing, or the index does not know the ``state`` of the import."""
        known = library_index.read_meta(self.index).get("import")
        is_importing = state.get("import", known) != known or not (
            known or library_index.IMPORT_DONE
        ).startswith(library_index.IMPORT_DONE)
        return is_importing or self.has_unread() or bool(self.list_unsearched(1))

    def list_unsearched(self, limit: int) -> dict[str, tuple[int, int]]:
        """Return row and number of turns of conversations whose behaviours are not known, by id.

        They come in a scattered order, so that those that are searched first are a sample of all.
        """
        query = (
            "SELECT id, row, turns FROM facts JOIN heads USING (row) WHERE seen_turns <> turns"
            " ORDER BY (row & 4294967295) * 2654435761 & 4294967295 LIMIT ?"
        )
        return {session: (row, turns) for session, row, turns in self.index.execute(query, (limit,))}

    def add_behaviours(
        self, searched: Iterable[SearchedSession], unsearched: Mapping[str, tuple[int, int]]
    ) -> None:
        """Store the behaviours of conversations, among them those of :meth:`list_unsearched`."""
        with self.index:
            for session in searched:
                row, turns = unsearched[session.id]
                self.index.execute(
                    "INSERT OR REPLACE INTO main.evidence VALUES (?, ?)", (row, session.evidence)
                )
                self.index.execute(
                    "UPDATE main.facts SET seen_turns = ?, has_instructor = ? WHERE row = ?",
                    (turns, session.has_instructor, row),
                )
                self._settle(row)

    def forget_behaviours(self) -> None:
        """Mark all conversations as not searched: the detectors have changed."""
        with self.index:
            self.index.execute("UPDATE main.facts SET seen_turns = -1 WHERE row >> 32 = ?", (self.run,))


def list_traits(outline: Outline) -> Iterator[tuple[str, str]]:
    """Yield models, agents of a group chat, and items of axes that neither roles nor the task say already."""
    for model in outline.models.values():
        yield "model", model
    for name in outline.agents:
        yield "agent", name
    said = (outline.assistant, outline.user, outline.original_task, outline.language)
    for axis, item in outline.values.items():
        if axis != DUPLICATE and item not in said and len(item) <= _LONGEST_ITEM:
            yield "axis", f"{axis}: {item}"


async def follow_run(
    run: Path,
    index: Path,
    number: int,
    goes_on: Callable[[], bool],
    source: Path | None = None,
    patience: float = inf,
) -> bool:
    """Add ``run`` to the index and keep it up to date there, as long as ``goes_on`` returns True.

    Args:
        run: The run.
        index: The index.
        number: The number of the run in it.
        goes_on: Is asked at least every second.
        source: Conversations that are imported into the run before.
        patience: Seconds without anything to do, and without a process that writes the run, after which it ends.

    Returns:
        False if the run cannot be read; the pages say why.
    """
    while goes_on():
        try:
            with FileLock(f"{index}.{number}.lock", blocking=False):
                if await _work(run, index, number, goes_on, source, patience):
                    return True
        except Timeout:
            await asyncio.sleep(_EVERY)  # Another explorer builds it, and may end before this one.
        except (BactrianError, BaseExceptionGroup) as error:
            problem = _get_first(error)
            if not isinstance(problem, BactrianError):
                raise
            with library_index.write_index(index, [number]) as connection:
                library_index.write_meta(connection, number, {"problem": str(problem)})
            return False
    return True


def _get_first(error: BaseException) -> BaseException:
    """Return what one of several tasks raised first."""
    if isinstance(error, BaseExceptionGroup):
        return _get_first(cast("BaseExceptionGroup[BaseException]", error).exceptions[0])
    return error


async def _work(
    run: Path, index: Path, number: int, goes_on: Callable[[], bool], source: Path | None, patience: float
) -> bool:
    """Return True if nothing was left to do for ``patience`` seconds."""
    async with open_store(run, read_only=True) as store:
        with library_index.write_index(index, [number]) as connection:
            state: dict[str, str] = {}
            async with asyncio.TaskGroup() as tasks:
                # The import writes the run; the index follows it like any other run that is written.
                if source is not None and not library_index.read_meta(connection).get(
                    "import", ""
                ).startswith(library_index.IMPORT_DONE):
                    state["import"] = "it begins"
                    tasks.create_task(_import(source, run, state))
                builder = IndexBuilder(store, connection, number)
                following = tasks.create_task(_follow(builder, goes_on, state, patience))
                searching = tasks.create_task(_search(builder, Path(f"{index}.cores.lock")))
                is_idle = await following
                searching.cancel()
            return is_idle


async def _import(source: Path, run: Path, state: dict[str, str]) -> None:
    """Import ``source`` into ``run``; ``state`` says how far it is."""

    def tell(report: ImportReport) -> None:
        state["import"] = f"{report.stored + report.already:,} conversations so far"

    async with open_store(run) as store:
        report = await import_chats(store, find_chats(source, None, Origin()), tell)
    lost = f"; {report.broken:,} files or lines could not be read" if report.broken else ""
    state["import"] = f"{library_index.IMPORT_DONE}{lost}"


async def _follow(
    builder: IndexBuilder, goes_on: Callable[[], bool], state: dict[str, str], patience: float
) -> bool:
    """Add facts and texts while ``goes_on`` returns True; return True if nothing was left for ``patience`` seconds."""
    store, connection = builder.store, builder.index
    seen, looked, pause = "", -_AT_LEAST, 0.0
    described, tell_from, busy = "", 0.0, time.monotonic()
    while goes_on():
        signature, age = library_index.read_signature(store.path), time.monotonic() - looked
        if (signature != seen and age > pause) or age > _AT_LEAST:
            seen, looked = signature, time.monotonic()
            await builder.refresh()
            identity = await library_index.identify_run(store)
            known = {"identity": identity, "signature": signature, "problem": "", **state}
            library_index.write_meta(connection, builder.run, known)
            pause = max(_OFTEN, (time.monotonic() - looked) / _SHARE)
        more = await builder.step()
        if not more and described != seen and time.monotonic() >= tell_from:
            began, described = time.monotonic(), seen
            try:
                status = await read_status(store.path)
                told = {**status.describe(), "facts": status.list_facts()}
            except BactrianError as error:  # Its conversations are there, though nobody knows how many come.
                told = {"problem": str(error)}
            library_index.write_meta(connection, builder.run, {"status": json.dumps(told)})
            tell_from = time.monotonic() + _RARELY * (time.monotonic() - began)
        elif not more:
            is_written = is_locked(store.path)
            if (
                is_written
                or described != library_index.read_signature(store.path)
                or builder.is_behind(state)
            ):
                busy = time.monotonic()
            elif time.monotonic() - busy > patience:
                return True
            await asyncio.sleep(_OFTEN if is_written else _EVERY)
    return False


async def _search(builder: IndexBuilder, lock: Path) -> None:
    """Search for behaviours, where the texts are in the index; with all cores while ``lock`` can be held."""
    signature = describe_detectors()
    if library_index.read_meta(builder.index).get("detectors", signature) != signature:
        builder.forget_behaviours()
    library_index.write_meta(builder.index, builder.run, {"detectors": signature})
    while True:
        if builder.has_unread() or not builder.list_unsearched(1):
            await asyncio.sleep(_SOON)
            continue
        # An explorer of ten runs has ten such searches.
        all_cores = FileLock(lock, blocking=False)
        with suppress(Timeout):
            all_cores.acquire()
        try:
            has_all = all_cores.is_locked
            unsearched = builder.list_unsearched(_PASS if has_all else _PART)
            ids = list(unsearched)
            parts = [ids[start : start + _PART] for start in range(0, len(ids), _PART)]
            search = partial(search_sessions, builder.store.source)
            async for searched in map_parts(search, parts, None if has_all else 1):
                builder.add_behaviours(searched, unsearched)
        finally:
            all_cores.release()
