"""Shows a conversation while it is played, keeps it, and says at its end where it is."""

from __future__ import annotations

import shlex
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path

from bactrian.api.play import raise_failure
from bactrian.cli.terminal.console import open_progress
from bactrian.cli.view.audience import choose_viewer
from bactrian.cli.view.servers import suggest_servers
from bactrian.models.registry import ModelOptions
from bactrian.play.agent import Listener
from bactrian.play.run_session import SessionOrder, play_one
from bactrian.play.society.stages import SocietyRun, play_one_society
from bactrian.records.ending import Ending
from bactrian.records.events import Ended, Event, Started
from bactrian.records.text import write_count
from bactrian.store import Store, name_run, open_kept_run


class PlayKeeper:
    """Opens the run that keeps a session which no ``--run`` names, and says how to go on with it.

    Printing it gives what to do after an interruption.
    """

    def __init__(self, run: Path | None, *, keep: bool, json: bool, raw: bool = False) -> None:
        self.raw = raw
        self.json = json
        self.given = run
        self._keep = keep and run is None
        self._run = run
        self._session = ""
        self._ending: Ending | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Store | None]:
        """Open the run in the data folder; None if the session goes elsewhere, or is not kept."""
        if not self._keep:
            yield None
            return
        async with AsyncExitStack() as stack:
            store = await stack.enter_async_context(open_kept_run())
            self._run = None if store is None else store.path
            yield store

    def notice(self, event: Event) -> None:
        """Remember which session is played, and how it ends."""
        if isinstance(event, Started):
            self._session = event.session.id
        elif isinstance(event, Ended):
            self._ending = event.ending

    def tell(self) -> None:
        """Say what was kept, and what to do next."""
        if self.json or self._ending is None:
            return
        console = open_progress()
        if self.given is not None and not console.is_terminal:
            return  # A script that names its run needs no hint.
        reached = self._ending.code == "max_messages"
        limit = f"The conversation reached its limit of {write_count(self._ending.turn, 'message')}, which is normal."
        if self._run is None:
            lines = [limit] * reached + ["Not kept, as --no-keep asks."] * (not self._keep)
        else:
            go_on = f"bactrian resume {self._name} {self._session} --max-messages {2 * self._ending.turn}"
            lines = [f"{limit} To let it go on: {go_on}"] * reached
            lines.append(f"Kept in {self._run}. To read it again: {self._show}")
        lines.append(
            "Next: --model chooses another model (`bactrian models`), "
            "and `bactrian generate` makes many conversations (`bactrian recipes`)."
        )
        for line in lines:
            console.say(line, style="dim")

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


async def watch_session(order: SessionOrder, keeper: PlayKeeper, *, suggest: bool = False) -> int:
    """Play the session and return the exit code; with ``suggest``, name better models of this computer first."""
    if suggest:
        await suggest_servers()
    return await watch_events(lambda listener, store: play_one(order, listener, kept_in=store), keeper)


async def watch_events(
    play: Callable[[Listener | None, Store | None], AsyncGenerator[Event]], keeper: PlayKeeper
) -> int:
    """Show the events of a session and return the exit code."""
    watching = choose_viewer(json=keeper.json, raw=keeper.raw)
    async with keeper.open() as store, aclosing(play(watching.listener, store)) as events:
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


async def watch_society(wish: SocietyRun, options: ModelOptions, keeper: PlayKeeper) -> int:
    """Play the society's stages and return the exit code."""
    watching = choose_viewer(json=keeper.json, raw=keeper.raw)
    started = False
    async with keeper.open() as store:
        events = play_one_society(wish, options, keeper.given, watching.listener, kept_in=store)
        async with aclosing(events):
            async for event in events:
                keeper.notice(event)
                started = started or isinstance(event, Started)
                if started:
                    watching.show(event)
                raise_failure(event)
    keeper.tell()
    return 0
