"""Shows a conversation while it is played, keeps it, and says at its end where it is."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bactrian.api.collector import SessionCollector, raise_failure
from bactrian.cli.terminal.console import open_progress
from bactrian.cli.view.audience import choose_viewer
from bactrian.errors import BudgetReached
from bactrian.files.atomic import write_atomically
from bactrian.models.budget import UsageMeter
from bactrian.models.open import ModelOptions
from bactrian.records.events import Ended, Event, Started
from bactrian.records.session import Ending
from bactrian.records.text import write_count, write_dollars
from bactrian.roleplay.agent import Listener
from bactrian.roleplay.human import HUMAN
from bactrian.roleplay.start import PlayOrder, play_one
from bactrian.store import RunStore, name_run, open_kept_run

if TYPE_CHECKING:
    from bactrian.roleplay.society import SocietyRun


class PlayKeeper:
    """Opens the run that stores a session without ``--run``, and says how to resume it.

    Printing it gives what to do after an interruption.
    """

    def __init__(
        self,
        run: Path | None,
        *,
        keep: bool,
        json: bool,
        raw: bool = False,
        out: Path | None = None,
        meter: UsageMeter | None = None,
    ) -> None:
        self.raw = raw
        self.json = json
        self.meter = meter
        self._out = out
        self._sessions: list[SessionCollector] = []
        self._stored = 0
        self.given = run
        self._keep = keep and run is None
        self._run = run
        self._session = ""
        self._ending: Ending | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[RunStore | None]:
        """Open the run in the data folder; None if the session goes elsewhere, or is not kept."""
        if not self._keep:
            yield None
            return
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_kept_run())
            self._run = None if store is None else store.path
            yield store

    @asynccontextmanager
    async def name_next_command(self) -> AsyncGenerator[None]:
        """Add the command that resumes this session to errors of the budget."""
        try:
            yield
        except BudgetReached as error:
            kept = self._run is not None and self._session
            again = f"bactrian resume {self._name} {shlex.quote(self._session)} --budget USD" if kept else ""
            raise BudgetReached(
                error.what,
                where=error.where,
                next=f"All turns are stored. To continue: {again}" if kept else "Raise --budget.",
            ) from error

    def notice(self, event: Event) -> None:
        """Remember which session is played, and how it ends."""
        if isinstance(event, Started):
            self._session = event.session.id
            self._sessions.append(SessionCollector())
            self._stored += len(event.session.turns)
        elif isinstance(event, Ended):
            self._ending = event.ending
        if self._sessions:
            self._sessions[-1].add(event)

    def tell(self) -> None:
        """Write the file that was asked for, and say what was kept, what it cost, and what to do next."""
        if self._out is not None and self._ending is not None:
            self._write(self._out)
        if self.json or self._ending is None:
            return
        console = open_progress()
        if self.given is not None and not console.is_terminal:
            return  # A script that names its run needs no hint.
        for line in self._describe_cost():
            console.say(line, style="dim")
        reached = self._ending.code == "max_messages"
        limit = f"The conversation reached its limit of {write_count(self._ending.turn, 'message')}, which is normal."
        if self._run is None:
            lines = [limit] * reached + ["Not kept, as --no-keep asks."] * (not self._keep)
        else:
            go_on = f"bactrian resume {self._name} {self._session} --max-messages {2 * self._ending.turn}"
            lines = [f"{limit} To continue it: {go_on}"] * reached
            lines.append(f"Kept in {self._run}. To read it again: {self._show}")
        lines.append(
            "Next: --model chooses another model (`bactrian models`), "
            "and `bactrian generate` makes many conversations (`bactrian recipes`)."
        )
        for line in lines:
            console.say(line, style="dim")

    def _describe_cost(self) -> Iterator[str]:
        """Yield what the session cost, or that nothing new was asked."""
        meter = self.meter
        if meter is None:
            return
        models = {
            name for one in self._sessions if one.session for name in one.session.provenance.models.values()
        }
        if self._stored and not meter.calls:
            yield "Nothing new was asked: every turn was stored before."
        elif models and all(name.startswith("recorded:") for name in models):
            yield "Nothing new was asked: all replies come from the stored run."
        elif unknown := [name for name in models if name not in meter.prices and name != HUMAN]:
            yield f"The price of {unknown[0]} is unknown; give it with --price."
        elif meter.usd or meter.max_usd is not None:
            most = f" of ${meter.max_usd:,.2f}" if meter.max_usd is not None else ""
            yield f"It cost {write_dollars(meter.usd)}{most}."

    def _write(self, out: Path) -> None:
        """Write the conversation to ``out`` in the form of its suffix."""
        from bactrian.api.selection import write_sessions

        sessions = [one.session for one in self._sessions if one.session is not None]
        with write_atomically(out, overwrite=True) as stage:
            (stage / out.name).write_text(write_sessions(sessions, out.suffix), "utf-8")

    @property
    def _name(self) -> str:
        """The run, as a command names it: runs in the data folder by their name alone."""
        assert self._run is not None
        return shlex.quote(name_run(self._run))

    @property
    def _show(self) -> str:
        return f"bactrian show {self._name} {shlex.quote(self._session)}"

    def __str__(self) -> str:
        if self.given is not None:
            return "All turns are stored: run the same command again to resume."
        if self._run is None or not self._session:
            return "Nothing was stored."
        return f"All turns are stored. To resume: bactrian resume {self._name} {shlex.quote(self._session)}"


async def watch_session(order: PlayOrder, keeper: PlayKeeper, *, suggest: bool = False) -> int:
    """Play the session and return the exit code; with ``suggest``, name better models of this computer first."""
    if suggest:
        from bactrian.cli.view.servers import suggest_servers

        await suggest_servers()
    return await watch_events(lambda listener, store: play_one(order, listener, kept_in=store), keeper)


async def watch_events(
    play: Callable[[Listener | None, RunStore | None], AsyncGenerator[Event]], keeper: PlayKeeper
) -> int:
    """Show the events of a session and return the exit code."""
    watching = choose_viewer(json=keeper.json, raw=keeper.raw)
    async with (
        keeper.open() as store,
        keeper.name_next_command(),
        aclosing(play(watching.listener, store)) as events,
    ):
        with watching.show_waiting("thinking about the task"):
            event = await anext(events)
        if isinstance(event, Started):
            keeper.notice(event)
            watching.show(event)
        raise_failure(event)
        async for event in events:
            keeper.notice(event)
            watching.show(event)
            raise_failure(event)
    keeper.tell()
    return 0


async def watch_society(society_run: SocietyRun, options: ModelOptions, keeper: PlayKeeper) -> int:
    """Play the society's stages and return the exit code."""
    from bactrian.roleplay.society import play_one_society

    watching = choose_viewer(json=keeper.json, raw=keeper.raw)
    stages = [stage.name for stage in society_run.society.stages]
    begun = 0
    async with keeper.open() as store, keeper.name_next_command():
        events = play_one_society(society_run, options, keeper.given, watching.listener, kept_in=store)
        async with aclosing(events):
            async for event in events:
                keeper.notice(event)
                if isinstance(event, Started):
                    begun += 1
                    watching.show_stage(stages[begun - 1], begun, len(stages))
                if begun:
                    watching.show(event)
                raise_failure(event)
    keeper.tell()
    return 0
