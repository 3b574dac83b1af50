"""``bactrian show``: the conversations of a run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Unpack

from rich.console import Console

from bactrian.analyze.behaviours import find_behaviours
from bactrian.api import selection
from bactrian.api.stored_run import mark_session
from bactrian.cli.flags import Argument, RunArgument
from bactrian.cli.run_async import run_async
from bactrian.cli.terminal.bar import open_parts
from bactrian.cli.terminal.console import LEAST_TABLE, open_output, open_pager, open_progress, show_spinner
from bactrian.cli.view.conversation_view import ConversationView
from bactrian.errors import InputError
from bactrian.options import FORMAT, JSON, MARK, SAMPLE, SEED, Option, SelectOptions
from bactrian.records.events import Ended, Spoke, Started
from bactrian.records.run import Finding, FindingKey, Mark
from bactrian.records.session import Session, name_agents, name_sides
from bactrian.records.text import shorten_line, to_json, to_line, to_printable, write_count
from bactrian.runs.spending import add_paid, count_paid
from bactrian.store import RunStore, find_run, is_run, name_run, open_store


class ShowFormat(StrEnum):
    """The form of a conversation."""

    text = "text"
    markdown = "markdown"
    html = "html"
    json = "json"


def show(
    run_file: RunArgument,
    more: Annotated[
        list[str] | None,
        Argument(
            metavar="[PART]... [ID]",
            help="More parts of the run, and a session's id or the beginning of one. Default: a list of all.",
        ),
    ] = None,
    sample: Annotated[int | None, SAMPLE, "Choose N at random."] = None,
    seed: Annotated[int, SEED, "Seed of --sample."] = 0,
    full: Annotated[bool, Option("--full", "Show whole conversations instead of a list.")] = False,
    form: Annotated[ShowFormat, FORMAT, "Format of whole conversations."] = ShowFormat.text,
    new_mark: Annotated[str | None, MARK, "Give the session ID this mark."] = None,
    note: Annotated[str, Option("--note", "A note for --mark.")] = "",
    pager: Annotated[bool, Option("--pager/--no-pager", "Page long output on a terminal.")] = True,
    json: Annotated[bool, JSON, "Write one JSON object per session."] = False,
    **options: Unpack[SelectOptions],
) -> None:
    """Show the conversations of a run: a list of them, or one in full."""
    parts, session = _divide(run_file, more or ())
    if new_mark is not None and len(parts) > 1:
        raise InputError(
            "A mark is stored in one run.", where="--mark", next="Name the part with the session."
        )
    if new_mark is not None:
        if session is None:
            raise InputError("A mark is given to one session.", where="--mark", next="Name its ID.")
        run_async(_mark(run_file, session, new_mark, note), resume="The run is unchanged.")
    whole = full or form is not ShowFormat.text or session is not None
    form = ShowFormat.json if json else form
    out = open_output()
    page = open_pager(out) if pager and out.is_terminal and form is not ShowFormat.json else nullcontext()
    writer = _Writer(out, form, whole=whole, page=page)
    with open_parts(parts) as run:
        names = shlex.join(map(name_run, parts))
        work = _show(run, names, session, options, writer, sample=sample, seed=seed)
        run_async(work, resume="The run is unchanged.")


def _divide(run: Path, more: Sequence[str]) -> tuple[list[Path], str | None]:
    """Return the parts of the run, and the id of a session: what names no run."""
    named = {text: find_run(Path(text)) for text in more}
    ids = [text for text, path in named.items() if not is_run(path)]
    if len(ids) > 1:
        raise InputError(
            f"{ids[0]!r} and {ids[1]!r} are no runs, and one session is shown.",
            where="ID",
            next="Name one session, or check the paths of the runs.",
        )
    return [run, *(path for path in named.values() if is_run(path))], ids[0] if ids else None


async def _mark(run: Path, session: str, mark: str, note: str) -> int:
    made = await mark_session(run, session, mark, note)
    open_progress().say(f"Session {made.session} has the mark {made.mark!r}.")
    return 0


async def _show(
    run: Path,
    names: str,
    session: str | None,
    options: SelectOptions,
    writer: _Writer,
    *,
    sample: int | None,
    seed: int,
) -> int:
    async with open_store(run, read_only=True) as opened, opened.snapshot() as store:
        writer.marks, writer.answers = _group(await store.marks()), await store.answers()
        writer.width = min(await store.measure_ids(), _WIDEST)
        if session is not None:
            stored = await selection.find_session(store, session)
            chosen = await selection.read_selection(store, options)
            selected = chosen.match(stored) or selection.SelectedSession(stored)
            writer.show([await writer.count_paid(store, selected)])
            return 0
        await _list(store, names, options, writer, sample, seed)
    return 0


async def _list(
    store: RunStore, names: str, options: SelectOptions, writer: _Writer, sample: int | None, seed: int
) -> None:
    chosen = selection.iterate_selected(
        store, await selection.read_selection(store, options), sample=sample, seed=seed
    )
    if writer.streams:
        count = 0
        async for selected in chosen:
            writer.write(await writer.count_paid(store, selected))
            count += 1
    else:
        with show_spinner(open_progress(), "Reading the run …"):
            every = [await writer.count_paid(store, selected) async for selected in chosen]
        count = len(every)
        if every:
            writer.show(every)
    if not count:
        raise await selection.explain_nothing(store, options)
    if not writer.whole and writer.form is not ShowFormat.json:
        sessions = "1 session" if count == 1 else f"{count:,} sessions"
        few = ", and --sample 3 a few" if sample is None and count > 3 else ""
        open_progress().say(
            f"{sessions}. --full shows them whole{few}.\nTo read one: bactrian show {names} ID", style="dim"
        )


_LONGEST, _WIDEST = 100, 40  # Characters of a task in a list; and to which ids are aligned
# A line that the terminal's width cuts.
_ONE_LINE: dict[str, Any] = {"overflow": "ellipsis", "no_wrap": True, "soft_wrap": False}


class _Writer:
    """Writes sessions in one form."""

    def __init__(
        self, out: Console, form: ShowFormat, *, whole: bool, page: AbstractContextManager[object]
    ) -> None:
        self.form = form
        self.whole = whole
        self.marks: Mapping[str, list[Mark]] = {}
        self.answers: Mapping[FindingKey, bool] = {}  # of readers, to findings
        self.width = 0  # Characters of the longest id
        self._out = out
        self._page = page
        # True if each session is written before the next one is read.
        self.streams = isinstance(page, nullcontext) and form is not ShowFormat.html

    def _find(self, session: Session) -> tuple[Finding, ...]:
        return find_behaviours(session, answers=self.answers)

    async def count_paid(
        self, store: RunStore, selected: selection.SelectedSession
    ) -> selection.SelectedSession:
        """Return a session with the tokens of the calls that led to no turn, if tokens are written."""
        if not self.whole or self.form not in (ShowFormat.text, ShowFormat.html):
            return selected
        paid = await count_paid(store, [selected.session.id])
        return replace(selected, session=add_paid(selected.session, paid))

    def show(self, sessions: list[selection.SelectedSession]) -> None:
        """Write these sessions, through the pager if there is one."""
        with self._page:
            if self.form is ShowFormat.html:
                pages = [(selected.session, self._find(selected.session)) for selected in sessions]
                print(selection.render_page(pages, sessions[0].session.task.original), end="")
                return
            for selected in sessions:
                self.write(selected)

    def write(self, selected: selection.SelectedSession) -> None:
        """Write one session."""
        session = selected.session
        marks = self.marks.get(session.id, [])
        if self.form is ShowFormat.json:
            line = (
                selection.write_session(session, self._find(session), marks)
                if self.whole
                else _list_facts(selected, marks)
            )
            print(to_json(line))
        elif self.form is ShowFormat.markdown:
            print(selection.write_markdown(session, self._find(session), marks))
        elif self.whole:
            self._write_conversation(session, marks)
        else:
            begin, about, why = self._write_line(selected, marks)
            if not self._out.is_terminal:
                print(f"{begin}  {about}: {why}")
            elif self._out.width < LEAST_TABLE:
                self._out.print(" ".join(begin.split()), style="bold", **_ONE_LINE)
                self._out.print(f"  {about}: {why}", **_ONE_LINE)
            elif selected.findings or selected.matches:
                self._out.print(f"{begin}  {about}", **_ONE_LINE)
                self._out.print(f"  {why}", style="dim", **_ONE_LINE)
            else:
                self._out.print(f"{begin}  {about}: {why}", **_ONE_LINE)

    def _write_conversation(self, session: Session, marks: list[Mark]) -> None:
        view = ConversationView(self._out, self._out)
        view.show(Started(replace(session, turns=())))
        findings = self._find(session)
        for turn in session.turns:
            view.show(Spoke(turn))
            for line in selection.write_findings(findings, turn.number):
                view.remark(line)
        if session.ending is not None:
            view.show(Ended(session.ending))
        for mark in marks:
            self._out.print(to_printable(f"mark {mark.mark} {mark.note}"), style="dim")

    def _write_line(self, selected: selection.SelectedSession, marks: list[Mark]) -> tuple[str, str, str]:
        """Return how a session ended, its roles and marks, and why it is in the list."""
        session = selected.session
        code = session.ending.code if session.ending else "unfinished"
        roles = " × ".join(name_agents(session))
        tags = "".join(f" [{mark.mark}]" for mark in marks)
        begin = f"{to_line(session.id):<{self.width}}  {code:<18}{write_count(len(session.turns), 'turn'):>9}"
        return begin, to_line(f"{roles}{tags}"), to_line(_explain(selected))


def _explain(selected: selection.SelectedSession) -> str:
    """Return why a session is in the list, or else its task."""
    if selected.findings:
        finding = selected.findings[0]
        quote = f": “{finding.quote}”" if finding.quote else ""
        return f"{finding.behaviour} at turn {finding.turn}{quote}"
    if selected.matches:
        turn, line = selected.matches[0]
        return f"turn {turn}: {line}"
    return shorten_line(selected.session.task.original, _LONGEST)


def _list_facts(selected: selection.SelectedSession, marks: list[Mark]) -> dict[str, object]:
    session = selected.session
    return {
        "session": session.id,
        "roles": name_agents(session),
        **name_sides(session),
        "original_task": session.task.original,
        "ending": session.ending and session.ending.code,
        "turns": len(session.turns),
        "findings": [
            {"turn": finding.turn, "behaviour": finding.behaviour, "quote": finding.quote}
            for finding in selected.findings
        ]
        or None,  # nothing was looked for
        "matches": [{"turn": turn, "line": line} for turn, line in selected.matches],
        "marks": [mark.mark for mark in marks],
    }


def _group(marks: list[Mark]) -> dict[str, list[Mark]]:
    by_session: dict[str, list[Mark]] = {}
    for mark in marks:
        by_session.setdefault(mark.session, []).append(mark)
    return by_session
