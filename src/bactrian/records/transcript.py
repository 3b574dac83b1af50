"""A session as a person reads it: as text, and as HTML for a notebook."""

from __future__ import annotations

import sys
from html import escape
from typing import TYPE_CHECKING

from bactrian.records.text import to_printable

if TYPE_CHECKING:
    from bactrian.records.session import Session
    from bactrian.records.turn import Speaker

_PART: dict[Speaker, str] = {"user": "AI user", "assistant": "AI assistant"}
# The colours are those of the page around it, so that it can be read on dark and on light.
_FRAME = "border-left:3px solid currentColor;padding:0 0 0 .8em;margin:.6em 0"
_FAINT = "opacity:.65;font-size:90%"


def write_transcript(session: Session) -> str:
    """The whole conversation as plain text, without anything that would steer a terminal."""
    parts = [_title(session), *(f"{name}: {text}" for name, text in _steps(session))]
    parts += [f"\n{_who(session, turn.speaker, turn.role)}\n{turn.text.strip()}" for turn in session.turns]
    parts.append(f"\n{_outcome(session)}")
    return to_printable("\n".join(parts))


def render_transcript(session: Session) -> str:
    """The whole conversation as a piece of HTML that needs no style of its own; all text is escaped."""
    steps = "".join(f'<div style="{_FAINT}">{name}: {_html(text)}</div>' for name, text in _steps(session))
    turns = "".join(
        f'<div style="{_FRAME}"><b>{_html(_who(session, turn.speaker, turn.role))}</b>'
        f'<div style="white-space:pre-wrap">{_html(turn.text.strip())}</div></div>'
        for turn in session.turns
    )
    return (
        f"<div><div><b>{_html(_title(session))}</b></div>{steps}{turns}"
        f'<div style="{_FAINT}">{_html(_outcome(session))}</div></div>'
    )


def show(shown: object) -> None:
    """Display ``shown`` where a notebook runs, and write it to standard output elsewhere."""
    if "IPython" in sys.modules:
        from importlib import import_module

        if import_module("IPython").get_ipython() is not None:
            import_module("IPython.display").display(shown)
            return
    sys.stdout.write(f"{shown}\n")


def _title(session: Session) -> str:
    cast = session.provenance.cast.values() or (session.assistant, session.user)
    return " × ".join(role.name for role in cast)


def _steps(session: Session) -> list[tuple[str, str]]:
    task = session.task
    steps = (("idea", task.original), ("task", task.specified), ("plan", task.planned))
    return [(name, text) for name, text in steps if text is not None]


def _who(session: Session, speaker: Speaker, role: str) -> str:
    part = None if session.provenance.cast else _PART.get(speaker)
    return f"{role} ({part})" if part else role


def _outcome(session: Session) -> str:
    used = session.usage
    about = "about " if used.estimated else ""
    how = "not ended" if session.ending is None else f"{session.ending.code} at turn {session.ending.turn}"
    return f"{how} · {len(session.turns)} messages · {about}{used.total:,} tokens · session {session.id}"


def _html(text: str) -> str:
    return escape(to_printable(text))
