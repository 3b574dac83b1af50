"""Viewers of a session: text for a person, or JSON lines for a program."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from bactrian.cli.terminal.console import open_output, open_progress
from bactrian.cli.view.conversation_view import ConversationView
from bactrian.records.events import Event, Spoke, Started, write_event
from bactrian.records.text import to_json
from bactrian.roleplay.agent import Listener


class Viewer(Protocol):
    """Shows the events of one session, or of several in sequence."""

    listener: Listener | None
    """Receives the text of a turn while it is generated; None for a viewer of whole turns."""

    def show_waiting(self, for_what: str) -> AbstractContextManager[object]:
        """Show a progress indicator within the context."""
        ...

    def show_stage(self, name: str, number: int, count: int) -> None:
        """Show that a stage of a society begins; ``number`` counts from 1."""
        ...

    def show(self, event: Event) -> None:
        """Show one event."""
        ...


def choose_viewer(*, json: bool, raw: bool = False) -> Viewer:
    """Return the viewer for these flags and this terminal."""
    return _JsonViewer() if json else ConversationView(open_output(), open_progress(), raw=raw)


class _JsonViewer:
    listener: Listener | None = None

    def show_waiting(self, for_what: str) -> AbstractContextManager[object]:
        return nullcontext(for_what)

    def show_stage(self, name: str, number: int, count: int) -> None:
        """Show nothing: the session's id ends with the name."""

    def show(self, event: Event) -> None:
        _write_line(event)
        if isinstance(event, Started):
            for turn in event.session.turns:
                _write_line(Spoke(turn), stored=True)


def _write_line(event: Event, **more: object) -> None:
    sys.stdout.write(to_json(write_event(event) | more) + "\n")
    sys.stdout.flush()
