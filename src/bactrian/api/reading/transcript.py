"""One session as JSON, Markdown or a page, with its findings and marks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.language.escape import to_json, to_markdown
from bactrian.records.event_json import write_event
from bactrian.records.events import Ended, Spoke, Started
from bactrian.records.finding import Finding
from bactrian.records.run import Mark
from bactrian.records.session import Session
from bactrian.records.text import to_printable

_STYLE = (
    ":root{color-scheme:light dark;--card:#f4f6fa;--user:#2f66b3;--assistant:#1b6e43;--other:#8a5a00;--line:#d8dde6}"
    "@media(prefers-color-scheme:dark){:root{--card:#1c222c;--user:#7ea8e6;--assistant:#7fd3a4;--other:#e6b566;"
    "--line:#333b48}}"
    "body{font:1rem/1.55 system-ui,sans-serif;max-width:45rem;margin:2rem auto;padding:0 1rem;overflow-wrap:anywhere}"
    "[data-title]{font-size:1.6rem;margin-bottom:.3rem}"
    "[data-speaker]{background:var(--card);border-left:4px solid var(--other)!important;border-radius:.35rem;"
    "padding:.7rem 1rem!important;break-inside:avoid}[data-speaker]>b{color:var(--other)}"
    "[data-speaker=user]{border-color:var(--user)!important}[data-speaker=user]>b{color:var(--user)}"
    "[data-speaker=assistant]{border-color:var(--assistant)!important}[data-speaker=assistant]>b{color:var(--assistant)}"
    "ul{font-size:.9rem;padding-left:1.2rem}hr{border:0;border-top:1px solid var(--line);margin:2.5rem 0}"
    "footer{border-top:1px solid var(--line);margin-top:2.5rem;padding-top:.6rem;font-size:.85rem;opacity:.75}"
    "@media print{*{print-color-adjust:exact}body{margin:0;max-width:none}}"
)
_FOOTER = "Shown by Bactrian. What language models say may be wrong; nothing here was checked."


def write_session(
    session: Session, findings: Sequence[Finding] = (), marks: Sequence[Mark] = ()
) -> dict[str, Any]:
    """Return the session as a JSON object: the fields of ``play --json``, with ``turns``, ``ending`` and more."""
    begun = write_event(Started(session))
    kept = {name: value for name, value in begun.items() if name not in ("event", "stored_turns")}
    ending = None if session.ending is None else _drop_event(write_event(Ended(session.ending)))
    return {
        **kept,
        "turns": [_drop_event(write_event(Spoke(turn))) for turn in session.turns],
        "ending": ending,
        "findings": [_write_finding(one) for one in findings],
        "marks": [{"mark": one.mark, "note": one.note, "created": one.created} for one in marks],
    }


def write_markdown(session: Session, findings: Sequence[Finding] = (), marks: Sequence[Mark] = ()) -> str:
    """Return the session as Markdown. What the agents said stays as it is."""
    cast = session.provenance.cast.values() or (session.assistant, session.user)
    lines = [f"# {to_markdown(' × '.join(role.name for role in cast))}", ""]
    task = session.task
    steps = (("Idea", task.original), ("Task", task.specified), ("Plan", task.planned))
    lines += [f"**{name}:** {to_markdown(text)}  " for name, text in steps if text is not None]
    lines.append(f"**Session:** {to_markdown(session.id)}  ")
    lines += [f"**Mark:** {to_markdown(f'{one.mark}. {one.note}')}  " for one in marks]
    for turn in session.turns:
        lines += ["", f"## {turn.number}. {to_markdown(turn.role)} ({to_markdown(turn.speaker)})", ""]
        lines.append(to_printable(turn.text).strip())
        lines += [f"\n> {line}" for line in _list_findings(turn.number, findings)]
    lines += ["", "---", "", to_markdown(_write_ending(session)), ""]
    return "\n".join(lines)


def render_page(sessions: Sequence[tuple[Session, Sequence[Finding]]], title: str) -> str:
    """Return the sessions as one self-contained HTML page for light and dark screens; all text is escaped."""
    body = "<hr>".join(
        session._repr_html_() + _render_findings(findings)  # pyright: ignore[reportPrivateUsage]
        for session, findings in sessions
    )
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(to_printable(title))}</title>"
        f"<style>{_STYLE}</style></head>"
        f"<body><main>{body}</main><footer>{_FOOTER}</footer></body></html>\n"
    )


def write_sessions(sessions: Sequence[Session], suffix: str) -> str:
    """Return one conversation, or those of a society's stages, in the form of a file's suffix, with the findings."""
    found = [(session, find_behaviours(session)) for session in sessions]
    if suffix == ".html":
        return render_page(found, sessions[0].task.original)
    if suffix == ".json":
        written = [write_session(session, findings) for session, findings in found]
        return to_json(written[0] if len(written) == 1 else written) + "\n"
    return "\n".join(write_markdown(session, findings) for session, findings in found)


def write_findings(findings: Sequence[Finding], turn: int | None = None) -> list[str]:
    """Return a line for each finding: behaviour, turn and quote; only those of ``turn`` if it is given."""
    if turn is not None:
        return _list_findings(turn, findings)
    return [
        line
        for number in sorted({one.turn for one in findings})
        for line in _list_findings(number, findings, turn=True)
    ]


def _render_findings(findings: Sequence[Finding]) -> str:
    items = "".join(f"<li>{escape(to_printable(line))}</li>" for line in write_findings(findings))
    return f"<ul>{items}</ul>" if items else ""


def _list_findings(number: int, findings: Sequence[Finding], *, turn: bool = False) -> list[str]:
    where = f" at turn {number}" if turn else ""
    return [
        to_printable(
            f"{one.behaviour}{where}: “{' '.join(one.quote.split())}”"
            if one.quote
            else f"{one.behaviour}{where}"
        )
        for one in findings
        if one.turn == number
    ]


def _write_ending(session: Session) -> str:
    if session.ending is None:
        return f"not ended, {len(session.turns)} messages"
    return f"{session.ending.code} at turn {session.ending.turn}: {session.ending.evidence}"


def _write_finding(found: Finding) -> dict[str, Any]:
    return {
        "turn": found.turn,
        "behaviour": found.behaviour,
        "confidence": found.confidence,
        "quote": found.quote,
    }


def _drop_event(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "event"}
