"""Selects sessions of a run by id, roles, task, ending, behaviour, mark and words."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from html import escape
from typing import Any

from bactrian.analyze.aggregate import UNFINISHED
from bactrian.analyze.behaviours import (
    BehaviourLike,
    OwnBehaviour,
    find_behaviours,
    find_installed,
    read_behaviours,
)
from bactrian.analyze.code_runs import CODE_FAILS
from bactrian.errors import InputError
from bactrian.files.toml import suggest_name
from bactrian.options import SelectOptions, Words
from bactrian.records.events import Ended, Spoke, Started, write_event
from bactrian.records.run import BEHAVIOURS, Finding, Mark
from bactrian.records.session import ENDING_CODES, Session
from bactrian.records.text import to_json, to_line, to_markdown, to_printable
from bactrian.store import RunStore

_PAIR = re.compile(r"\s+[×x]\s+")


@dataclass(frozen=True, slots=True)
class SelectedSession:
    """A session of the selection, and why it is in it."""

    session: Session
    findings: tuple[Finding, ...] = ()
    """The findings of the behaviours that were asked for."""
    matches: tuple[tuple[int, str], ...] = ()
    """Turns that match ``grep``: their number, and the line of the first match."""


class Selection:
    """Decides which sessions belong to a selection."""

    def __init__(
        self,
        options: SelectOptions,
        *,
        marks: Mapping[str, frozenset[str]] | None = None,
        endings: Iterable[str] = (),
        own: Sequence[OwnBehaviour] = (),
    ) -> None:
        """Check ``options``. ``marks`` are by session; ``endings`` are the codes in the run.

        Raises:
            InputError: a code is unknown, or an expression is not valid.
        """
        self._own = own
        self._marks = marks or {}
        self._tests: dict[str, Callable[[Session], bool]] = {}
        known_endings = (*ENDING_CODES, UNFINISHED, *endings)
        codes = (*BEHAVIOURS, *(behaviour.code for behaviour in own))
        self._behaviours = _check_codes(options.get("behaviour", ()), codes, "behaviour")
        self._grep = _compile(grep) if (grep := options.get("grep")) else None
        self._add("id", options.get("id", ()), _has_id)
        self._add("role", options.get("role", ()), _has_role)
        self._add("pair", options.get("pair", ()), _has_pair)
        self._add("task", options.get("task", ()), _has_task)
        ending = _check_codes(options.get("ending", ()), known_endings, "ending")
        self._add("ending", ending, lambda session, code: _find_code(session) == code)
        marks_of_run = sorted({mark for names in self._marks.values() for mark in names})
        mark = _check_codes(options.get("mark", ()), marks_of_run, "mark")
        self._add("mark", mark, lambda session, name: name in self._marks.get(session.id, ()))

    @property
    def tests(self) -> Mapping[str, Callable[[Session], bool]]:
        """What a session must pass, by name, apart from behaviours and words."""
        return self._tests

    @property
    def is_everything(self) -> bool:
        """True if no option was given."""
        return not (self._tests or self._behaviours or self._grep)

    def match(self, session: Session) -> SelectedSession | None:
        """Return the session with the reasons why it belongs to the selection; None if it does not."""
        if not all(test(session) for test in self._tests.values()):
            return None
        matches: tuple[tuple[int, str], ...] = ()
        if self._grep is not None:
            matches = tuple(_find_lines(session, self._grep))
            if not matches:
                return None
        findings: tuple[Finding, ...] = ()
        if self._behaviours:
            own = [behaviour for behaviour in self._own if behaviour.code in self._behaviours]
            findings = tuple(
                finding
                for finding in find_behaviours(session, own=own)
                if finding.behaviour in self._behaviours
            )
            if not findings:
                return None
        return SelectedSession(session, findings, matches)

    def _add(self, name: str, words: Words, test: Callable[[Session, str], bool]) -> None:
        if values := _list_words(words):
            self._tests[f"{name}={','.join(values)}"] = lambda session: any(
                test(session, value) for value in values
            )


async def read_selection(store: RunStore, options: SelectOptions) -> Selection:
    """Return the selection, checked against what the run contains. Raises InputError for an unknown code."""
    marks: dict[str, set[str]] = {}
    for mark in await store.marks():
        marks.setdefault(mark.session, set()).add(mark.mark)
    endings = {session.ending: None async for session in store.progress() if session.ending is not None}
    asked = [code for code in _list_words(options.get("behaviour", ())) if code == CODE_FAILS]
    return Selection(
        options,
        marks={session: frozenset(names) for session, names in marks.items()},
        endings=endings,
        own=merge_installed(asked),
    )


def merge_installed(behaviours: Iterable[BehaviourLike]) -> tuple[OwnBehaviour, ...]:
    """Return the user's behaviours, and those of installed packages with other codes."""
    own = read_behaviours(behaviours)
    codes = {behaviour.code for behaviour in own}
    return (*own, *(behaviour for behaviour in find_installed() if behaviour.code not in codes))


async def iterate_selected(
    store: RunStore, selection: Selection, *, sample: int | None = None, seed: int = 0
) -> AsyncIterator[SelectedSession]:
    """Yield the selected sessions in the order in which they began, or ``sample`` of them chosen at random.

    The same seed chooses the same sessions. A hundred sessions are in memory, and the ids of a sample.
    """
    if sample is None:
        async for session in store.sessions():
            if (selected := selection.match(session)) is not None:
                yield selected
        return
    if selection.is_everything:
        ids = [session.id async for session in store.progress()]
    else:
        ids = [session.id async for session in store.sessions() if selection.match(session) is not None]
    for session_id in random.Random(seed).sample(ids, min(sample, len(ids))):  # noqa: S311
        session = await store.session(session_id)
        if session is not None and (selected := selection.match(session)) is not None:
            yield selected


async def find_session(store: RunStore, name: str) -> Session:
    """Return the session with this id, or the only one whose id begins with it.

    Raises:
        InputError: there is none, or there are several.
    """
    if (session := await store.session(name)) is not None:
        return session
    ids = [session.id async for session in store.progress()]
    begun = [session_id for session_id in ids if name and session_id.startswith(name)]
    if len(begun) == 1 and (session := await store.session(begun[0])) is not None:
        return session
    where = str(store.path)
    if begun:
        raise InputError(
            f"{len(begun):,} sessions have an id that begins with {name!r}.",
            where=where,
            next=f"Give more of it: {', '.join(map(to_line, begun[:5]))}{' …' if len(begun) > 5 else ''}",
        )
    raise InputError(
        f"The run has no session {name!r}.{suggest_name(name, ids)}",
        where=where,
        next=f"Its ids are like {', '.join(map(to_line, ids[:5]))}." if ids else "It is empty.",
    )


async def explain_nothing(store: RunStore, options: SelectOptions) -> InputError:
    """Return the error for a selection without a session: it names the nearest role of the run."""
    by_case = {
        role.name.casefold(): role.name
        async for session in store.sessions()
        for role in (session.assistant, session.user)
    }
    for wanted in _list_words(options.get("role", ())):
        near = suggest_name(wanted.casefold(), by_case)
        if wanted.casefold() not in by_case and near:
            nearest = next(role for key, role in by_case.items() if repr(key) in near)
            return InputError(
                f"No session has the role {wanted!r}. Did you mean {nearest!r}?", where=str(store.path)
            )
    return InputError(
        "No session of the run is like that.",
        where=str(store.path),
        next="Leave one of the filters out." if any(options.values()) else "Generate or import some first.",
    )


def _list_words(words: Words) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)


def _check_codes(words: Words, known: Sequence[str], what: str) -> tuple[str, ...]:
    codes = _list_words(words)
    for code in codes:
        if code not in known:
            listed = ", ".join(dict.fromkeys(known))
            raise InputError(
                f"There is no {what} {code!r}.{suggest_name(code, known)}",
                where=f"--{what}",
                next=f"There are {listed}." if listed else f"The run has no {what}s.",
            )
    return codes


def _compile(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise InputError(
            f"{pattern!r} is not a regular expression: {error}.",
            where="--grep",
            next="Put a backslash before characters such as ( [ * +.",
        ) from error


def _find_lines(session: Session, pattern: re.Pattern[str]) -> Iterable[tuple[int, str]]:
    for turn in session.turns:
        text = str(turn.text)
        if (match := pattern.search(text)) is not None:
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            yield turn.number, text[max(start, match.start() - 60) : end if end >= 0 else None]


def _find_code(session: Session) -> str:
    return session.ending.code if session.ending else UNFINISHED


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name.casefold(), pattern.casefold())


def _has_id(session: Session, pattern: str) -> bool:
    return fnmatchcase(session.id, pattern)


def _has_role(session: Session, pattern: str) -> bool:
    cast = session.provenance.cast.values() or (session.assistant, session.user)
    return any(_fits(role.name, pattern) for role in cast)


def _has_pair(session: Session, text: str) -> bool:
    parts = _PAIR.split(text.strip())
    if len(parts) != 2:
        raise InputError(
            f"{text!r} is not a pair of roles.", where="--pair", next="Write it as 'ASSISTANT x USER'."
        )
    return _fits(session.assistant.name, parts[0]) and _fits(session.user.name, parts[1])


def _has_task(session: Session, words: str) -> bool:
    return words.casefold() in f"{session.task.original}\n{session.task.specified or ''}".casefold()


# One session as JSON, Markdown or a page, with its findings and marks.


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
        "findings": [
            {name: getattr(finding, name) for name in ("turn", "behaviour", "confidence", "quote")}
            for finding in findings
        ],
        "marks": [{name: getattr(mark, name) for name in ("mark", "note", "created")} for mark in marks],
    }


def write_markdown(session: Session, findings: Sequence[Finding] = (), marks: Sequence[Mark] = ()) -> str:
    """Return the session as Markdown. What the agents said stays as it is."""
    cast = session.provenance.cast.values() or (session.assistant, session.user)
    lines = [f"# {to_markdown(' × '.join(role.name for role in cast))}", ""]
    task = session.task
    steps = (("Idea", task.original), ("Task", task.specified), ("Plan", task.planned))
    lines += [f"**{name}:** {to_markdown(text)}  " for name, text in steps if text is not None]
    lines.append(f"**Session:** {to_markdown(session.id)}  ")
    lines += [f"**Mark:** {to_markdown(f'{mark.mark}. {mark.note}')}  " for mark in marks]
    for turn in session.turns:
        lines += ["", f"## {turn.number}. {to_markdown(turn.role)} ({to_markdown(turn.speaker)})", ""]
        lines.append(to_printable(turn.text).strip())
        lines += [f"\n> {line}" for line in write_findings(findings, turn.number)]
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
    pairs = [(session, find_behaviours(session)) for session in sessions]
    if suffix == ".html":
        return render_page(pairs, sessions[0].task.original)
    if suffix == ".json":
        written = [write_session(*pair) for pair in pairs]
        return to_json(written[0] if len(written) == 1 else written) + "\n"
    return "\n".join(write_markdown(*pair) for pair in pairs)


def write_findings(findings: Sequence[Finding], turn: int | None = None) -> list[str]:
    """Return a line for each finding: behaviour, turn and quote; only those of ``turn`` if it is given."""
    return [
        to_printable(
            finding.behaviour
            + (f" at turn {finding.turn}" if turn is None else "")
            + (f": “{' '.join(finding.quote.split())}”" if finding.quote else "")
        )
        for finding in sorted(findings, key=lambda finding: finding.turn)
        if turn in (None, finding.turn)
    ]


def _render_findings(findings: Sequence[Finding]) -> str:
    items = "".join(f"<li>{escape(to_printable(line))}</li>" for line in write_findings(findings))
    return f"<ul>{items}</ul>" if items else ""


def _write_ending(session: Session) -> str:
    if session.ending is None:
        return f"not ended, {len(session.turns)} messages"
    return f"{session.ending.code} at turn {session.ending.turn}: {session.ending.evidence}"


def _drop_event(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "event"}
