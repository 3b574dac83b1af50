"""A run from Python: its sessions and marks, statistics, reports, exports and imports."""

from __future__ import annotations

import time
import warnings
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from bactrian.analyze.behaviours import BehaviourLike, find_behaviours
from bactrian.analyze.report import check_installed
from bactrian.api import resumption
from bactrian.api.bridge import run_sync, shorten_errors, shorten_traceback
from bactrian.api.conversation import raise_failure
from bactrian.api.dataset import complete_run
from bactrian.api.exchange import export_session_data
from bactrian.api.known_runs import check_exists, find_copy
from bactrian.api.notebook import ShownExplorer, open_explorer, read_frame
from bactrian.api.run_report import Report, report_runs
from bactrian.api.selection import find_session, iterate_selected, merge_installed, read_selection
from bactrian.api.status import RunStatus, build_forecast_order, count_endings, read_price, read_status
from bactrian.errors import BactrianWarning, InputError
from bactrian.export.format import Format
from bactrian.ingest.chats import Found, Origin
from bactrian.ingest.importer import ImportReport, find_chats, find_form
from bactrian.ingest.importer import import_chats as store_chats
from bactrian.models.open import ModelOptions
from bactrian.options import ExportChoices, ResumeOptions, SelectOptions, check_options
from bactrian.records.run import Failure, Mark
from bactrian.records.session import Session
from bactrian.records.text import show, write_count
from bactrian.records.turn import Usage
from bactrian.roleplay.society import SocietyRun, play_one_society
from bactrian.roleplay.start import PlayOrder, play_one
from bactrian.runs.forecast import Forecast, forecast_run
from bactrian.runs.spending import add_paid, count_paid
from bactrian.store import RunStore, find_run, open_store
from bactrian.store.locations import locate_file
from bactrian.tables import tables

if TYPE_CHECKING:
    import polars


# Marks on the sessions of a run.


async def mark_session(run: Path, session_id: str, mark: str, note: str = "") -> Mark:
    """Give a session a mark, or change the note of a mark that it has, and return it.

    Raises:
        InputError: the run has no such session, or the mark is blank.
        RunInUse: another process writes the run.
    """
    mark = mark.strip()
    if not mark:
        raise InputError("A mark has a name.", option="mark", next="Give one, such as mark=good.")
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


# The sessions that a selection returns.


class SessionList(tuple[Session, ...]):
    """A list of sessions that can be shown.

    Example:
        >>> sessions = run.select(ending="task_done")
        >>> len(sessions), sessions[0].task.text
        (1, 'Choose a tea')
    """

    __slots__ = ()

    def show(self) -> None:
        """Display the sessions in a notebook, or print their transcripts elsewhere.

        Example:
            >>> run.select(ending="task_done").show()
            Expert × Beginner
            idea: Choose a tea
            ...
        """
        show(self)

    def __str__(self) -> str:
        return "\n\n".join(map(str, self))

    def _repr_html_(self) -> str:
        return "<hr>".join(session._repr_html_() for session in self)  # pyright: ignore[reportPrivateUsage]


async def select_sessions(
    opened: RunStore, filters: SelectOptions, sample: int | None, seed: int
) -> SessionList:
    """Return the sessions that fit all ``filters``, or ``sample`` of them at random. Raises InputError."""
    async with opened.snapshot() as store:
        selection = await read_selection(store, filters)
        selected = iterate_selected(store, selection, sample=sample, seed=seed)
        sessions = [match.session async for match in selected]
        paid = await count_paid(store, [session.id for session in sessions])
        return SessionList([add_paid(session, paid) for session in sessions])


_Result = TypeVar("_Result")
_PAGE = 100  # Sessions in memory at a time


class Run:
    """A run: the sessions of one recipe, or of one file of ``play``. Each call reads the current state of the file.

    Example:
        >>> import bactrian as bt
        >>> script = ["Instruction: Name one.\\nInput: None", "Solution: Sencha.\\nNext request.", "<CAMEL_TASK_DONE>"]
        >>> _ = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, run="tea.db")
        >>> run = bt.open_run("tea.db")
        >>> len(run)
        1
        >>> [session.task.text for session in run]
        ['Choose a tea']
        >>> run.select(ending="task_done")[0].turns[1].text
        'Solution: Sencha.\\nNext request.'
        >>> run.export("messages", "tea.jsonl", only=["ending=task_done"])["counts"]["sessions"]
        1
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"

    def __len__(self) -> int:
        """Number of sessions that have begun."""
        return self._read(lambda store: store.count_rows())[0]

    def __iter__(self) -> Iterator[Session]:
        """Iterate over all sessions in the order in which they began, with a hundred in memory at a time."""
        paid = self._read(count_paid)
        for rows in self._read(lambda store: store.slices(_PAGE)):
            for session in self._read(lambda store, rows=rows: _list(store.sessions(rows))):
                yield add_paid(session, paid)

    def __getitem__(self, session_id: str) -> Session:
        """Return the session with this id, or the only one whose id begins with it. Raises InputError if not found."""

        async def find(store: RunStore) -> Session:
            session = await find_session(store, session_id)
            return add_paid(session, await count_paid(store, [session.id]))

        return self._read(find)

    @property
    def endings(self) -> dict[str, int]:
        """Number of sessions that have ended, by code of their ending, the most frequent first.

        Example:
            >>> run.endings
            {'task_done': 1}
        """
        return {code: share.count for code, share in self._read(count_endings)[1].items()}

    @property
    def usage(self) -> Usage:
        """Tokens of all calls, including unfinished sessions and lists.

        Example:
            >>> run.usage.total == run.usage.prompt + run.usage.completion
            True
        """
        return sum(self._read(count_paid).values(), Usage())

    @property
    def price(self) -> str | None:
        """The price of the models that was given when the run was made; None if none was given.

        Example:
            >>> print(run.price)
            None
        """
        return self._read(read_price)

    def status(self) -> RunStatus:
        """Return how far the run has come: jobs, endings, failures, cost, and the command that continues it.

        Example:
            >>> run.status().sessions, run.status().left
            (1, 0)
        """
        return run_sync(read_status(self.path))

    def select(
        self, *, sample: int | None = None, seed: int = 0, **filters: Unpack[SelectOptions]
    ) -> SessionList:
        """Return the sessions that fit all ``filters``, or ``sample`` of them at random, all in memory.

        The filters are those of ``bactrian show``; of several values for one filter, one is enough.

        Example:
            >>> [session.user.name for session in run.select(ending="task_done", task="tea")]
            ['Beginner']

        Raises:
            InputError: a filter is not valid.
        """
        check_options(self.select, filters, SelectOptions)
        return self._read(lambda store: select_sessions(store, filters, sample, seed))

    def sample(self, count: int = 1, *, seed: int = 0, **filters: Unpack[SelectOptions]) -> SessionList:
        """Choose ``count`` sessions at random, or all if the run has fewer; the same seed chooses the same.

        Example:
            >>> len(run.sample(3))
            1
        """
        check_options(self.sample, filters, SelectOptions)
        return self.select(sample=count, seed=seed, **filters)

    def marks(self) -> list[Mark]:
        """Return the marks that people gave to sessions.

        Example:
            >>> run.mark(run.sample()[0].id, "good", "short and right")
            >>> [(mark.mark, mark.note) for mark in run.marks()]
            [('good', 'short and right')]
        """
        return self._read(lambda store: store.marks())

    def mark(self, session_id: str, mark: str, note: str = "") -> None:
        """Give a session a mark, or change the note of a mark that it has.

        Example:
            >>> run.mark(run.sample()[0].id, "good", "short")
            >>> len(run.select(mark="good"))
            1

        Raises:
            InputError: the run has no such session.
            RunInUse: another process writes the run.
        """
        run_sync(mark_session(self.path, session_id, mark, note))

    def failures(self) -> list[Failure]:
        """Return the sessions that failed, with the reason and the response received instead of a reply.

        Example:
            >>> run.failures()
            []
        """
        return self._read(lambda store: _list(store.failures()))

    def sessions(self) -> polars.DataFrame:
        """Return a data frame with a row for each session: roles, task, ending, usage.

        Example:
            >>> run.sessions().select("user_role", "ending", "messages").rows()
            [('Beginner', 'task_done', 3)]

        Raises:
            MissingExtra: the optional part ``analysis`` is not installed.
            StoreError: the run cannot be read.
        """
        return self._frame(tables.SESSIONS, lambda session, name: (tables.make_session_row(session, name),))

    def messages(self) -> polars.DataFrame:
        """Return a data frame with a row for each turn. Raises what :meth:`sessions` raises.

        Example:
            >>> run.messages().select("turn", "speaker", "solution").rows()[1]
            (2, 'assistant', 'Sencha.')
        """
        return self._frame(tables.MESSAGES, tables.make_message_rows)

    def findings(self, behaviours: Iterable[BehaviourLike] = ()) -> polars.DataFrame:
        """Return a data frame with a row for each behaviour found in a turn. Raises what :meth:`sessions` raises.

        Example:
            >>> run.findings().columns
            ['run', 'session', 'turn', 'behaviour', 'confidence', 'quote', 'mark']
        """
        custom, answers = merge_installed(behaviours), self._read(RunStore.answers)
        return self._frame(
            tables.FINDINGS,
            lambda session, name: (
                tables.make_finding_row(session, hit, name)
                for hit in find_behaviours(session, custom=custom, answers=answers)
            ),
        )

    def report(self, *, price: str | None = None, base_url: str | None = None) -> Report:
        """Report endings, behaviours, length, usage and cost: :meth:`analyze` with the built-in behaviours only.

        Example:
            >>> run.report()["messages"]
            3

        Raises:
            InputError: the run has no session.
            MissingExtra: the optional part ``analysis`` is not installed.
        """
        return self.analyze(price=price, base_url=base_url)

    @shorten_errors
    def analyze(
        self,
        behaviours: Iterable[BehaviourLike] = (),
        *,
        price: str | None = None,
        base_url: str | None = None,
    ) -> Report:
        """Report how the agents behaved, with user-defined ``behaviours`` besides the built-in ones.

        Example:
            >>> @bt.behaviour("The assistant recommends sencha.")
            ... def names_sencha(turn):
            ...     return turn.speaker == "assistant" and "Sencha" in turn.text
            >>> run.analyze(behaviours=[names_sencha])["behaviours"]["names_sencha"]["sessions"]
            1

        Args:
            behaviours: Results of :func:`bactrian.behaviour`, objects with ``code`` and ``detect``, or codes.
            price: US dollars per million tokens, ``"prompt/completion[/cached]"``; default from a table.
            base_url: Address of the endpoint that was used, for the table.

        Raises:
            InputError: the run has no session, or a behaviour fails.
            MissingExtra: the optional part ``analysis`` is not installed.
        """
        return _measure([self.path], behaviours, price, base_url)

    @shorten_errors
    def compare(
        self, other: Run | str | Path, behaviours: Iterable[BehaviourLike] = (), *, price: str | None = None
    ) -> Report:
        """Report how ``other`` differs from this run. Raises what :meth:`analyze` raises.

        Example:
            >>> script[1] = "Solution: Matcha.\\nNext request."
            >>> _ = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, run="other.db")
            >>> list(run.compare("other.db"))
            ['runs', 'differences']
        """
        second = other if isinstance(other, Run) else open_run(other)
        return _measure([self.path, second.path], behaviours, price, None)

    @shorten_errors
    def forecast(
        self,
        *,
        limit: int | None = None,
        sample: int | None = None,
        price: str | None = None,
        base_url: str | None = None,
    ) -> Forecast:
        """Estimate calls, tokens, money and time of the remaining jobs, without any request.

        Example:
            >>> script = bt.Scripted({"task_specifier": ["Name a green tea."], "user": ["<CAMEL_TASK_DONE>"]})
            >>> small = bt.recipe("ai-society", assistant_role=["Host"], user_role=["Guest"], task=["Teas", "Cups"])
            >>> bt.generate(small, run="teas.db", model=script, limit=1).forecast(limit=2).calls.value
            2.0

        Args:
            limit: The first ``limit`` jobs of the recipe; default the jobs that the last command asked for.
            sample: A sample of so many jobs.
            price: US dollars per million tokens, ``"prompt/completion[/cached]"``; default from a table.
            base_url: Address of the endpoint, for the table.

        Raises:
            InputError: the run was not made from a recipe.
        """
        stored = self._read(resumption.read_stored_run)
        order = build_forecast_order(
            stored, self.path, limit=limit, sample=sample, price=price, base_url=base_url
        )
        return run_sync(forecast_run(order))

    def resume(self, session: str | None = None, **options: Unpack[ResumeOptions]) -> None:
        """Continue the jobs that are left, or a session of ``play``, as `bactrian resume` does.

        The run stores all its options; keys come from the environment.

        Example:
            >>> import json, pathlib
            >>> replies = {"task_specifier": ["Tea."], "user": ["<CAMEL_TASK_DONE>"]}
            >>> _ = pathlib.Path("replies.json").write_text(json.dumps(replies))
            >>> teas = bt.recipe("ai-society", assistant_role=["Host"], user_role=["Guest"], task=["Teas", "Cups"])
            >>> part = bt.generate(teas, run="resumed.db", model="scripted:replies.json", limit=1)
            >>> part.resume(limit=2)
            >>> len(part)
            2

        Args:
            session: The id of a session of ``play``; default is the only one that has not ended, or the only one of the
                run if ``max_messages`` is given.
            options: Options that change; see :class:`ResumeOptions`.

        Raises:
            InputError: nothing can be resumed, or the run used Python objects, which it cannot store.
            BactrianError: the run cannot continue; its results so far are stored.
        """
        with shorten_traceback():
            check_options(self.resume, options, ResumeOptions)
            longer = options.get("max_messages") is not None
            stored = run_sync(resumption.read_resumable(self.path, session, longer=longer))
            if isinstance(stored, resumption.StoredRun):
                complete_run(resumption.build_resume_order(stored, self.path, options))
                return
            order = resumption.build_resume_session(stored, self.path, options)
            if not isinstance(order, tuple) and order.embodied and not options.get("run_code"):
                raise InputError(
                    "The session runs Python that a model writes, in the sandbox.",
                    option="run_code",
                    next="Allow it with run_code=True.",
                )
            run_sync(_finish(order, self.path))

    def export(
        self,
        format: str | Format,  # noqa: A002  as on the command line
        out: str | Path,
        *,
        only: Sequence[str] = (),
        drop: Sequence[str] = (),
        overwrite: bool = False,
        behaviours: Iterable[BehaviourLike] = (),
        **more: Unpack[ExportChoices],
    ) -> dict[str, Any]:
        """Export the run atomically, in a format that other tools read, and return the manifest.

        Example:
            >>> manifest = run.export("sharegpt", "train.jsonl", only=["ending=task_done"], drop=["finding=role_flip"])
            >>> manifest["counts"]["sessions"]
            1

        Args:
            format: A format's name, one that a package registers under ``bactrian.export_formats``, or a
                :class:`~bactrian.export.format.Format`.
            out: The file or folder to write.
            only: Keep only sessions with one of these endings, ``ending=CODE``, and all of these behaviours,
                ``finding=CODE``.
            drop: Leave out sessions that match any of these: ``finding=CODE``, ``ending=CODE``.
            overwrite: Replace an existing export.
            behaviours: User-defined behaviours, for ``drop`` and for formats with findings.
            more: See :class:`ExportChoices`.

        Raises:
            InputError: the target exists, a filter is not valid, or no session of the run fits the format.
            MissingExtra: the format, or redaction, needs an optional part.
        """
        check_options(self.export, more, ExportChoices)
        return run_sync(
            export_session_data(
                self.path,
                format,
                Path(out),
                only=only,
                drop=drop,
                overwrite=overwrite,
                behaviours=behaviours,
                more=more,
            )
        )

    def explore(self, *, edit: bool = False, height: int = 700) -> ShownExplorer:
        """Open the explorer on this run: as the last line of a cell, a notebook shows it in a frame.

        It runs beside the notebook on this computer, and ends with the kernel or by ``close()``.

        Example:
            >>> with run.explore() as explorer:
            ...     explorer.address.startswith("http://127.0.0.1:")
            True

        Args:
            edit: Let its pages write marks, votes and labels, and play.
            height: Of the frame, in pixels.

        Raises:
            MissingExtra: the optional part ``explore`` is not installed.
            BactrianError: it cannot start.
        """
        return open_explorer(self.path, edit=edit, height=height)

    def show(self) -> None:
        """Display the status of the run in a notebook, or print it elsewhere.

        Example:
            >>> run.show()
            run       tea.db (complete)
            models    scripted
            sessions  1; 3 messages
            endings   task_done     1   100 %
            cost      $0.00
            tokens    about 1,038 prompt and 22 completion
        """
        self.status().show()

    def __str__(self) -> str:
        return str(self.status())

    def _repr_html_(self) -> str:
        return self.status()._repr_html_()  # pyright: ignore[reportPrivateUsage]

    def _frame(self, table: Any, rows: Callable[[Session, str], Iterable[Any]]) -> polars.DataFrame:
        return run_sync(read_frame(self.path, table, lambda session: rows(session, self.path.stem)))

    def _read(self, read: Callable[[RunStore], Coroutine[Any, Any, _Result]]) -> _Result:
        async def opened() -> _Result:
            async with open_store(self.path, read_only=True) as store:
                return await read(store)

        return run_sync(opened())


def open_run(path: str | Path) -> Run:
    """Open the run at ``path`` to read it; another process may be writing it at the same time.

    A name from `bactrian runs` will do, too. A run in a database is copied to the data folder, or its copy is
    brought up to date; ``status()`` reads the database, and all else the copy.

    Example:
        >>> import bactrian as bt
        >>> bt.open_run("nowhere.db")
        Traceback (most recent call last):
        ...
        bactrian.errors.InputError: nowhere.db: There is no such run.
        Check the path; `bactrian runs` lists the runs in a folder.

    Raises:
        InputError: the file does not exist.
        StoreError: it is damaged, or written by a newer version of this program.
    """
    run = Run(find_run(path))
    find_copy(run.path)
    check_exists(run.path)
    run._read(RunStore.recipe)  # pyright: ignore[reportPrivateUsage]  opening the run checks it
    return run


def _measure(
    paths: Sequence[Path], behaviours: Iterable[BehaviourLike], price: str | None, base_url: str | None
) -> Report:
    check_installed()
    return run_sync(report_runs(paths, merge_installed(behaviours), price, base_url))


async def _finish(order: PlayOrder | tuple[SocietyRun, ModelOptions], run: Path) -> None:
    """Play a session, or the stages of a society, to the end. Raises ModelError if a model fails."""
    playing = play_one(order) if isinstance(order, PlayOrder) else play_one_society(*order, run=run)
    async with aclosing(playing) as events:
        async for event in events:
            raise_failure(event)


async def _list(items: AsyncIterator[_Result]) -> list[_Result]:
    return [item async for item in items]


# Importing conversations from Python: `import_chats`.


@shorten_errors
def import_chats(
    path: str | Path,
    *,
    run: str | Path,
    format: str | None = None,  # noqa: A002  as on the command line
    made_by: str = "",
    language: str | None = None,
    license: str = "",  # noqa: A002  as on the command line
) -> Run:
    """Import conversations of other programs into a run, and return the run. A repeated import stores nothing twice.

    Items that cannot be read are skipped, with a warning that counts them and names the first.

    Example:
        >>> import json, pathlib, bactrian as bt
        >>> row = {"instruction": "Name a tea.", "input": "", "output": "Sencha."}
        >>> _ = pathlib.Path("chats.jsonl").write_text(json.dumps(row))
        >>> run = bt.import_chats("chats.jsonl", run="imported.db")
        >>> len(run), run.endings
        (1, {'answered': 1})

    Args:
        path: A folder, an archive, a file, or ``hf://OWNER/NAME`` of the Hugging Face hub: docs/export.md lists the
            formats.
        run: File of the run; created if it does not exist.
        format: Name of the format; default is detected.
        made_by: Name of the model that wrote the conversations, if known.
        language: Their language, if not English.
        license: Their licence, if it is not known; that of CAMEL's own data is.

    Raises:
        InputError: there is no such file, or no conversation in it.
        StoreError: the run cannot be written.
    """
    form = None if format is None else find_form(format)
    origin = Origin(made_by, language, {"license": license} if license else {})
    report = run_sync(_import(find_chats(Path(path), form, origin), locate_file(run)))
    if report.broken:
        first = report.named[0]
        warnings.warn(
            f"{write_count(report.broken, 'item')} of {path} skipped; the first is {first.name}: {first.problem}.",
            BactrianWarning,
            2,
        )
    return Run(Path(run))


async def _import(source: Iterator[Found], run: Path) -> ImportReport:
    async with open_store(run) as store:
        return await store_chats(store, source)
