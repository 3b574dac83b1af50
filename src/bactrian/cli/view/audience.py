"""Who watches a session: a person at a terminal, or a program that reads JSON lines."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from json import dumps
from typing import Protocol

from bactrian.cli.terminal.console import open_output, open_progress
from bactrian.cli.view.conversation import ConversationView
from bactrian.play.agent import Listener
from bactrian.records.event_json import write_event
from bactrian.records.events import Event, Spoke, Started


class Viewer(Protocol):
    """Sees the events of one session, or of several after one another."""

    listener: Listener | None
    """Hears turns while they are said; None for an audience that waits for whole ones."""

    def show_waiting(self, for_what: str) -> AbstractContextManager[object]:
        """Show that something is going on, as long as the context lasts."""
        ...

    def show(self, event: Event) -> None:
        """Take one event."""
        ...


def choose_viewer(*, json: bool) -> Viewer:
    """The audience that the flags and the terminal call for."""
    return _JsonViewer() if json else ConversationView(open_output(), open_progress())


class _JsonViewer:
    listener: Listener | None = None

    def show_waiting(self, for_what: str) -> AbstractContextManager[object]:
        return nullcontext(for_what)

    def show(self, event: Event) -> None:
        _write_line(event)
        if isinstance(event, Started):
            for turn in event.session.turns:
                _write_line(Spoke(turn), stored=True)


def _write_line(event: Event, **more: object) -> None:
    sys.stdout.write(dumps(write_event(event) | more, ensure_ascii=False) + "\n")
    sys.stdout.flush()
