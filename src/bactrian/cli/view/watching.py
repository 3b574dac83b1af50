"""Shows a conversation while it is played, keeps it, and says at its end where it is."""

from __future__ import annotations

import shlex
import sys
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, aclosing, asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from bactrian.amounts import write_cost, write_tokens
from bactrian.api.conversation import SessionCollector, raise_failure
from bactrian.api.known_runs import open_kept_run
from bactrian.cli.model_options import show_model_progress
from bactrian.cli.run_async import StopControl
from bactrian.cli.terminal.console import open_progress
from bactrian.cli.terminal.keyboard import add_person
from bactrian.cli.view.conversation_view import ConversationView
from bactrian.errors import BudgetReached, InputError, ModelError
from bactrian.files.atomic import check_target, write_atomically
from bactrian.models.budget import UsageMeter
from bactrian.models.open import ModelOptions
from bactrian.options import JSON, OUT, OVERWRITE, RUN, Option
from bactrian.records.event_json import write_event
from bactrian.records.events import Ended, Event, Spoke, Started
from bactrian.records.session import Ending
from bactrian.records.text import to_json, write_count
from bactrian.records.turn import Usage
from bactrian.roleplay.agent import Listener
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.role_play import SessionOrder
from bactrian.roleplay.start import PlayOrder, play_one
from bactrian.runs.spending import Spending, read_spending
from bactrian.store import RunStore, name_run, open_store

if TYPE_CHECKING:
    from bactrian.roleplay.society import SocietyRun

    # What can be played: a role-play, an embodied agent alone, or a society.
    Ordered = PlayOrder | tuple[SocietyRun, ModelOptions]


@dataclass(frozen=True, slots=True)
class OutputFlags:
    """Where a session goes, and what is shown of it."""

    run_file: Annotated[
        Path | None, RUN, "Store the session here; the same command resumes it. Default: in your data folder."
    ] = None
    keep: Annotated[bool, Option("--keep/--no-keep", "Keep a session without --run in your data folder.")] = (
        True
    )
    out: Annotated[Path | None, OUT, "Also write the conversation to this file, as .md, .html or .json."] = (
        None
    )
    overwrite: Annotated[bool, OVERWRITE, "Replace the file of --out."] = False
    raw: Annotated[
        bool, Option("--raw", "Show each text as it came, with the protocol's words and without Markdown.")
    ] = False
    json: Annotated[bool, JSON, "Write events as JSON lines."] = False

    def check_out(self) -> None:
        """Refuse a file that could not be written in the end: the conversation may be long and expensive.

        Raises:
            InputError: the file of ``--out`` cannot be written.
        """
        out = self.out
        if out is None:
            return
        if out.suffix not in (".md", ".html", ".json"):
            raise InputError(
                f"A conversation is not written as {out.suffix or 'a file without a suffix'}.",
                where=str(out),
                next="Name a file that ends in .md, .html or .json.",
            )
        check_target(out.absolute(), overwrite=self.overwrite, is_file=True)


class PlayKeeper:
    """Opens the run that stores a session without ``--run``, and says how to resume it.

    Printing it gives what to do after an interruption.
    """

    def __init__(self, flags: OutputFlags, meter: UsageMeter | None = None) -> None:
        flags.check_out()
        self._flags = flags
        self._meter = meter
        self._sessions: list[SessionCollector] = []
        self._stored = 0
        self._run = flags.run_file
        self._session = ""
        self._ending: Ending | None = None

    async def watch(
        self, ordered: Ordered, stop_control: StopControl, idea: str | None = None, *, suggest: bool = False
    ) -> int:
        """Play what was ordered, show it, and return the exit code.

        Where a model is ``human``, the person at the keyboard takes part. With ``suggest``, better models of this
        computer are named first.
        """
        stop_control.meter = self._meter
        society, access = ordered if isinstance(ordered, tuple) else (None, ordered.options)
        access = show_model_progress(access)
        if access.taken:
            open_progress().say(f"A person played {' and '.join(sorted(access.taken))}, and is asked again.")
        if access.taken or HUMAN in _name_all_models(ordered):
            access = add_person(access, stop_control, idea)
        if suggest:
            await suggest_servers()
        viewer = _JsonViewer() if self._flags.json else ConversationView(raw=self._flags.raw)
        stages = [stage.name for stage in society.society.stages] if society else []

        def take(event: Event) -> None:
            self._notice(event)
            if stages and isinstance(event, Started):
                number = len(self._sessions)
                viewer.show_stage(stages[number - 1], number, len(stages))
            if self._sessions:
                viewer.show(event)
            raise_failure(event)

        async with AsyncExitStack() as stack:
            stack.callback(viewer.close)
            store: RunStore | None = None
            if self._flags.keep and self._flags.run_file is None:
                store = await stack.enter_async_context(open_kept_run())
                self._run = None if store is None else store.path
            await stack.enter_async_context(self._name_next_command())
            playing = self._play(ordered, access, viewer.listener, store)
            events = await stack.enter_async_context(aclosing(playing))
            with viewer.show_waiting("thinking about the task"):
                event = await anext(events)
            take(event)
            async for event in events:
                if isinstance(event, Ended) and self._sessions and (session := self._sessions[-1].session):
                    viewer.count_paid((await self._read_spending([session.id])).usage)
                take(event)
        await self._tell()
        return 0

    def _play(
        self, ordered: Ordered, access: ModelOptions, listener: Listener | None, store: RunStore | None
    ) -> AsyncGenerator[Event]:
        if isinstance(ordered, tuple):
            from bactrian.roleplay.society import play_one_society

            return play_one_society(ordered[0], access, self._flags.run_file, listener, kept_in=store)
        return play_one(replace(ordered, options=access), listener, kept_in=store)

    @asynccontextmanager
    async def _name_next_command(self) -> AsyncGenerator[None]:
        """Add what is stored, and the command that resumes it, to errors of the budget and of the endpoint."""
        try:
            yield
        except ModelError as error:
            if not error.endpoint_wide and self._run is not None:
                raise
            action = f"{error.next or ''} {self}".strip()
            raise ModelError(error.what, where=error.where, next=action) from error
        except BudgetReached as error:
            kept = self._run is not None and self._session
            again = f"{self._resume} --budget USD" if kept else ""
            raise BudgetReached(
                error.what,
                where=error.where,
                next=f"{self._kept}To continue: {again}" if kept else "Raise --budget.",
            ) from error

    def _notice(self, event: Event) -> None:
        """Remember which session is played, and how it ends."""
        if isinstance(event, Started):
            self._session = event.session.id
            self._sessions.append(SessionCollector())
            self._stored += len(event.session.turns)
        elif isinstance(event, Ended):
            self._ending = event.ending
        if self._sessions:
            self._sessions[-1].add(event)

    async def _tell(self) -> None:
        """Write the file that was asked for, and say what was kept, what it cost, and what to do next."""
        if self._flags.out is not None and self._ending is not None:
            self._write(self._flags.out)
        if self._flags.json or self._ending is None:
            return
        console = open_progress()
        if cost := await self._describe_cost():
            console.say(cost, style="dim")
        stopped = not self._ending.final
        if self._flags.run_file is not None and not console.is_terminal:  # A script needs no further hint.
            if stopped:
                console.say(self._go_on)
            return
        reached = self._ending.code == "max_messages"
        limit = f"The conversation reached its limit of {write_count(self._ending.turn, 'message')}, which is normal."
        if self._run is None:
            lines = [limit] * reached + ["Not kept, as --no-keep asks."] * (not self._flags.keep)
        else:
            go_on = f"bactrian resume {self._name} {self._session} --max-messages {2 * self._ending.turn}"
            lines = [f"{limit} To continue it: {go_on}"] * reached
            lines += [self._go_on] * stopped
            lines.append(f"Kept in {self._run}. To read it again: {self._show}")
        lines.append(
            "Next: --model chooses another model (`bactrian models`), "
            "and `bactrian generate` makes many conversations (`bactrian recipes`)."
        )
        for line in lines:
            console.say(line, style="dim")

    async def _describe_cost(self) -> str:
        """Return what was paid for the session, or that nothing new was asked; empty if it was free."""
        meter = self._meter
        sessions = [part.session for part in self._sessions if part.session]
        if meter is None or not sessions:
            return ""
        models = {name for session in sessions for name in session.provenance.models.values()}
        if self._stored and not meter.calls:
            is_new = sum(len(session.turns) for session in sessions) > self._stored
            return "No model was asked." if is_new else "Nothing new was asked: every turn was stored before."
        if all(name.startswith("recorded:") for name in models):
            return "Nothing new was asked: all replies come from the stored run."
        if unknown := [name for name in sorted(models) if name not in meter.prices and name != HUMAN]:
            return f"The price of {unknown[0]} is unknown; give it with --set price=PROMPT/COMPLETION."
        spending = await self._read_spending([session.id for session in sessions])
        if not spending.usd and meter.max_usd is None:
            return ""
        budget = None if self._stored else meter.max_usd
        cost = write_cost(spending.usd or 0.0, (), budget, spending.prepared_usd)
        return f"It cost {cost}: {write_tokens(spending.usage)} tokens."

    async def _read_spending(self, sessions: Sequence[str]) -> Spending:
        """Return what was paid for these sessions, as the run tells it; without a run, for all that was asked."""
        if self._run is None:
            return Spending() if self._meter is None else Spending(self._meter.used, self._meter.usd)
        async with open_store(self._run, read_only=True) as store:
            return await read_spending(store, sessions)

    def _write(self, out: Path) -> None:
        """Write the conversation to ``out`` in the form of its suffix."""
        from bactrian.api.selection import write_sessions

        sessions = [part.session for part in self._sessions if part.session is not None]
        with write_atomically(out, overwrite=self._flags.overwrite) as stage:
            (stage / out.name).write_text(write_sessions(sessions, out.suffix), "utf-8")

    @property
    def _name(self) -> str:
        """The run, as a command names it: runs in the data folder by their name alone."""
        assert self._run is not None
        return shlex.quote(name_run(self._run))

    @property
    def _resume(self) -> str:
        return f"bactrian resume {self._name} {shlex.quote(self._session)}"

    @property
    def _go_on(self) -> str:
        return f"It was stopped. To continue it: {self._resume}"

    @property
    def _show(self) -> str:
        return f"bactrian show {self._name} {shlex.quote(self._session)}"

    def __str__(self) -> str:
        if self._flags.run_file is not None:
            return f"{self._kept}Run the same command again to resume."
        if self._run is None or not self._session:
            return "Nothing was stored, as --no-keep asks." if not self._flags.keep else "No turn was stored."
        return f"{self._kept}To resume: {self._resume}"

    @property
    def _kept(self) -> str:
        """What is stored, if it is anything: an interruption may come before the first turn."""
        parts = (part.session for part in self._sessions)
        return "All turns are stored. " if any(session and session.turns for session in parts) else ""


def _name_all_models(ordered: Ordered) -> Iterable[str]:
    if isinstance(ordered, tuple):
        return ordered[0].chat.models.values()
    return ordered.setup.models.values() if isinstance(ordered, SessionOrder) else ()


async def suggest_servers() -> None:
    """Say on standard error which model servers answer on this computer, and how to use them."""
    # It loads the HTTP client, which not every command needs
    from bactrian.models.discovery import find_servers

    for server in await find_servers():
        if server.models:
            open_progress().say(
                f"{server.title} runs on this computer. To use it: --model {server.models[0]}", style="dim"
            )


class _JsonViewer:
    listener: Listener | None = None

    def count_paid(self, usage: Usage) -> None:
        """Show nothing: each event has its own usage."""

    def show_waiting(self, for_what: str) -> AbstractContextManager[object]:
        return nullcontext(for_what)

    def close(self) -> None:
        """Do nothing: each line is whole."""

    def show_stage(self, name: str, number: int, count: int) -> None:
        """Show nothing: the session's id ends with the name."""

    def show(self, event: Event) -> None:
        _write_line(event)
        # Of a resumed session, the stored turns too: standard output has the whole conversation each time.
        if isinstance(event, Started):
            for turn in event.session.turns:
                _write_line(Spoke(turn), stored=True)


def _write_line(event: Event, **more: object) -> None:
    sys.stdout.write(to_json(write_event(event) | more) + "\n")
    sys.stdout.flush()
