"""Builds the side file of a run, slice by slice, and follows what is written to the run.

There are three stages: facts (seconds, for lists and filters), texts (for the search), and behaviours, for which other
processes read the conversations. Every slice is one transaction, so the building can be stopped at any moment and goes
on from there.
"""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from bactrian.analyze.session_summary import UNFINISHED
from bactrian.explore.index.evidence import SearchedSession
from bactrian.explore.index.words import prepare_text
from bactrian.models.wrappers.budget import Price
from bactrian.records.run import Outline, SpokenText
from bactrian.records.usage import Usage
from bactrian.store import RunReader

_FACTS = 1000
_TEXTS = 100
"""Sessions of a slice, by stage."""
_EVERY_ROW = 1 << 62
_LONGEST_TASK = 300
"""Characters of a task in a list."""


@dataclass(slots=True)
class IndexBuilder:
    """Brings a side file up to date with its run."""

    store: RunReader
    side: sqlite3.Connection
    find_price: Callable[[str], Price | None]
    prices: dict[str, Price | None] = field(default_factory=dict[str, "Price | None"])
    """The prices that were looked up, by the name of the model."""

    async def step(self) -> bool:
        """Add the facts or the texts of the next slice; return False if none are left."""
        return await self._add_facts() or await self._add_texts()

    async def refresh(self) -> None:
        """Look again at the sessions that are not final, at those with new turns, and at the marks."""
        row = self.side.execute("SELECT value FROM meta WHERE key = 'last_turn'").fetchone()
        last, touched = await self.store.find_touched(row[0] if row else _EVERY_ROW)
        query = "SELECT id FROM heads JOIN facts USING (row) WHERE final = 0"
        ids = {*(row[0] for row in self.side.execute(query)), *touched}
        outlines = await self.store.outlines(ids=sorted(ids)) if ids else []
        marks = await self._read_marks()
        with self.side:
            self._write(outlines)
            self._copy_marks(marks)
            self.side.execute("INSERT OR REPLACE INTO meta VALUES ('last_turn', ?)", (last,))

    async def _read_marks(self) -> Mapping[tuple[str, str], str]:
        """Return the notes by mark and session."""
        return {(one.mark, one.session): one.note for one in await self.store.marks()}

    def _copy_marks(self, marks: Mapping[tuple[str, str], str]) -> None:
        """Make the marks of the side file those of the run."""
        query = "SELECT mark, id, note FROM marks JOIN heads USING (row)"
        have = {(mark, session): note for mark, session, note in self.side.execute(query)}
        if have == marks:
            return
        self.side.execute("DELETE FROM marks")
        self.side.executemany(
            "INSERT INTO marks SELECT ?, row, ? FROM heads WHERE id = ?",
            [(mark, note, session) for (mark, session), note in marks.items()],
        )

    async def _add_facts(self) -> bool:
        after = self.side.execute("SELECT max(row) FROM heads").fetchone()[0] or 0
        outlines = await self.store.outlines(after, _FACTS)
        marks: Mapping[tuple[str, str], str] = await self._read_marks() if outlines else {}
        with self.side:
            self._write(outlines)
            if marks:
                # A mark of a session that was not here yet could not be copied before.
                self._copy_marks(marks)
        return bool(outlines)

    def _write(self, outlines: Iterable[Outline]) -> None:
        """Store outlines, or replace what is stored of them."""
        for one in outlines:
            number = self._number_task(one.original_task)
            values = (
                *(one.assistant, one.user, number, one.language, one.kind),
                *(one.ending or UNFINISHED, one.turns, one.mark, one.final),
            )
            self.side.execute(
                "INSERT INTO facts (assistant, user, task, language, kind, ending, turns, mark, final, row) VALUES"
                " (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (row) DO UPDATE SET ending = excluded.ending,"
                " turns = excluded.turns, final = excluded.final,"
                " seen_turns = iif(ending = excluded.ending, seen_turns, -1)",
                (*values, one.row),
            )
            task = (one.specified_task or one.original_task)[:_LONGEST_TASK]
            self.side.execute(
                "INSERT INTO heads VALUES (?, ?, ?, ?) ON CONFLICT (row) DO UPDATE SET task = excluded.task",
                (one.row, one.id, task, one.created),
            )

    def _number_task(self, text: str) -> int:
        found = self.side.execute("SELECT no FROM tasks WHERE text = ?", (text,)).fetchone()
        if found is None:
            return self.side.execute("INSERT INTO tasks (text) VALUES (?)", (text,)).lastrowid or 0
        return found[0]

    async def _add_texts(self) -> bool:
        query = (
            "SELECT row, id, text_turns FROM facts JOIN heads USING (row) WHERE text_turns <> turns"
            " ORDER BY row LIMIT ?"
        )
        rows: list[tuple[int, str, int]] = self.side.execute(query, (_TEXTS,)).fetchall()
        if not rows:
            return False
        ids = [session for _, session, _ in rows]
        said = defaultdict[str, list[SpokenText]](list)
        for session, texts in groupby(await self.store.texts(ids), key=lambda one: one.session):
            said[session].extend(texts)
        outlines = {one.id: one for one in await self.store.outlines(ids=ids)}
        with self.side:
            for row, session, before in rows:
                self._index(row, outlines[session], said[session], before)
        return True

    def _index(self, row: int, outline: Outline, said: Sequence[SpokenText], before: int) -> None:
        """Put a session into the full-text index. What was there of it, its first ``before`` turns, is taken out."""
        task = prepare_text(f"{outline.original_task}\n{outline.specified_task or ''}")
        if before > 0:
            # An index without content can forget a text only if it is told the text.
            old = prepare_text("\n".join(one.text for one in said[:before]))
            self.side.execute(
                "INSERT INTO words (words, rowid, task, talk) VALUES ('delete', ?, ?, ?)", (row, task, old)
            )
        if said:
            talk = prepare_text("\n".join(one.text for one in said))
            self.side.execute("INSERT INTO words (rowid, task, talk) VALUES (?, ?, ?)", (row, task, talk))
        cost = self._add_up(outline, said)
        # ``turns`` may have grown between two reads: what counts is what was indexed.
        self.side.execute(
            "UPDATE facts SET text_turns = ?, turns = ?, tokens = ?, cost = ? WHERE row = ?",
            (len(said), len(said), sum(one.prompt + one.completion for one in said), cost, row),
        )

    def _add_up(self, outline: Outline, said: Iterable[SpokenText]) -> float:
        """Return what the turns cost in US dollars; -1 if a price is unknown."""
        total = 0.0
        used: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for one in said:
            sums = used[one.speaker]
            sums[0] += one.prompt
            sums[1] += one.completion
            sums[2] += one.cached
        for speaker, (prompt, completion, cached) in used.items():
            name = outline.models.get(speaker)
            if name and name not in self.prices:
                self.prices[name] = self.find_price(name)
            price = self.prices.get(name or "")
            if price is None:
                return -1.0
            total += price.cost(Usage(prompt, completion, cached))
        return total

    def has_unread(self) -> bool:
        """Return True if texts are missing in the full-text index."""
        query = "SELECT EXISTS (SELECT 1 FROM facts WHERE text_turns <> turns)"
        return bool(self.side.execute(query).fetchone()[0])

    def list_unsearched(self, limit: int) -> dict[str, tuple[int, int]]:
        """Return row and number of turns of conversations whose behaviours are not known, by id."""
        query = (
            "SELECT id, row, turns FROM facts JOIN heads USING (row) WHERE seen_turns <> turns"
            " ORDER BY row LIMIT ?"
        )
        return {one: (row, turns) for one, row, turns in self.side.execute(query, (limit,))}

    def add_behaviours(
        self, searched: Iterable[SearchedSession], unsearched: Mapping[str, tuple[int, int]]
    ) -> None:
        """Store the behaviours of conversations, among them those of :meth:`list_unsearched`."""
        with self.side:
            for one in searched:
                row, turns = unsearched[one.id]
                self.side.execute("DELETE FROM shown WHERE row = ?", (row,))
                self.side.executemany(
                    "INSERT INTO shown VALUES (?, ?, ?)",
                    [(behaviour, row, turn) for behaviour, turn in one.shown],
                )
                self.side.execute("INSERT OR REPLACE INTO evidence VALUES (?, ?)", (row, one.evidence))
                self.side.execute(
                    "UPDATE facts SET seen_turns = ?, findings = ? WHERE row = ?",
                    (turns, len(one.shown), row),
                )

    def forget_behaviours(self) -> None:
        """Mark all conversations as not searched: the detectors have changed."""
        with self.side:
            self.side.execute("UPDATE facts SET seen_turns = -1 WHERE seen_turns <> -1")
