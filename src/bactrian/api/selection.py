"""Selects sessions of a run, and shows one as JSON, Markdown or a page with its findings and marks."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from html import escape
from importlib.resources import files
from typing import Any

from bactrian.analyze.behaviours import (
    BehaviourLike,
    OwnBehaviour,
    find_behaviours,
    find_installed,
    read_behaviours,
)
from bactrian.analyze.code_runs import CODE_FAILS
from bactrian.blocks import keep_line_breaks, to_markdown
from bactrian.errors import InputError
from bactrian.figures.chart import read_look
from bactrian.files.toml import suggest_name
from bactrian.options import SelectOptions, Words
from bactrian.records.event_json import write_event
from bactrian.records.events import Ended, Spoke, Started
from bactrian.records.run import BEHAVIOURS, Finding, FindingKey, Mark
from bactrian.records.session import (
    ENDING_CODES,
    UNFINISHED,
    Session,
    describe_models,
    name_agents,
    name_part,
)
from bactrian.records.text import to_json, to_line, to_printable, write_count
from bactrian.runs.plan import RED_TEAM
from bactrian.store import RunStore

_PAIR = re.compile(r"\s+[×x]\s+")


@dataclass(frozen=True, slots=True)
class SelectedSession:
    """A session of the selection, and why it is in it."""

    session: Session
    findings: tuple[Finding, ...] = ()  # The findings of the behaviours that were asked for
    # Turns that match `grep`: their number, and the line of the first match.
    matches: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Selection:
    """Decides which sessions belong to a selection."""

    # What a session must pass, by name, apart from behaviours and words.
    tests: Mapping[str, Callable[[Session], bool]]
    behaviours: tuple[str, ...] = ()
    custom: tuple[OwnBehaviour, ...] = ()
    grep: re.Pattern[str] | None = None
    # Of readers, to findings
    answers: Mapping[FindingKey, bool] = field(default_factory=dict[FindingKey, bool])

    def match(self, session: Session) -> SelectedSession | None:
        """Return the session with the reasons why it belongs to the selection; None if it does not."""
        if not all(test(session) for test in self.tests.values()):
            return None
        matches = () if self.grep is None else tuple(_find_lines(session, self.grep))
        if self.grep is not None and not matches:
            return None
        # Behaviours come last, because finding them takes longest.
        findings: tuple[Finding, ...] = ()
        if self.behaviours:
            custom = [behaviour for behaviour in self.custom if behaviour.code in self.behaviours]
            every = find_behaviours(session, custom=custom, answers=self.answers)
            findings = tuple(finding for finding in every if finding.behaviour in self.behaviours)
            if not findings:
                return None
        return SelectedSession(session, findings, matches)


async def read_selection(store: RunStore, options: SelectOptions) -> Selection:
    """Return the selection, checked against what the run contains.

    Raises:
        InputError: a code is unknown, or an expression is not valid.
    """
    marks: dict[str, set[str]] = {}
    for mark in await store.marks():
        marks.setdefault(mark.session, set()).add(mark.mark)
    endings = {session.ending: None async for session in store.progress() if session.ending is not None}
    words = {name: _list_words(options.get(name, ())) for name in ("behaviour", *_TESTS, "ending", "mark")}
    custom = merge_installed([code for code in words["behaviour"] if code == CODE_FAILS])
    known: Mapping[str, Collection[str]] = {
        "behaviour": (*BEHAVIOURS, *(behaviour.code for behaviour in custom)),
        "ending": (*ENDING_CODES, UNFINISHED, *endings),
        # The mark of a session that was made to study misuse is its own, and not one that a person set.
        "mark": sorted(
            {name for names in marks.values() for name in names} | {RED_TEAM} & set(words["mark"])
        ),
    }
    for name, codes in known.items():
        for code in words[name]:
            check_code(name, code, codes, name)
    grep = options.get("grep")
    try:
        pattern = re.compile(grep, re.IGNORECASE) if grep else None
    except re.error as error:
        raise InputError(
            f"{grep!r} is not a regular expression: {error}.",
            option="grep",
            next="Put a backslash before characters such as ( [ * +.",
        ) from error
    tests: Mapping[str, Callable[[Session, str], bool]] = {
        **_TESTS,
        "ending": lambda session, code: (session.ending.code if session.ending else UNFINISHED) == code,
        "mark": lambda session, name: name == session.mark or name in marks.get(session.id, ()),
    }
    return Selection(
        {
            f"{name}={','.join(words[name])}": _pass_any(test, words[name])
            for name, test in tests.items()
            if words[name]
        },
        words["behaviour"],
        custom,
        pattern,
        await store.answers(),
    )


def _pass_any(test: Callable[[Session, str], bool], words: Sequence[str]) -> Callable[[Session], bool]:
    return lambda session: any(test(session, word) for word in words)


def check_code(what: str, code: str, known: Collection[str], option: str) -> None:
    """Refuse a code that is not ``known``. Raises InputError with the nearest."""
    if code not in known:
        listed = ", ".join(dict.fromkeys(known))
        raise InputError(
            f"There is no {what} {code!r}.{suggest_name(code, known)}",
            option=option,
            next=f"There are {listed}." if listed else f"The run has no {what}s.",
        )


def merge_installed(behaviours: Iterable[BehaviourLike]) -> tuple[OwnBehaviour, ...]:
    """Return the user's behaviours, and those of installed packages with other codes."""
    custom = read_behaviours(behaviours)
    codes = {behaviour.code for behaviour in custom}
    return (*custom, *(behaviour for behaviour in find_installed() if behaviour.code not in codes))


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
    if not (selection.tests or selection.behaviours or selection.grep):
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
    """Return the error for a selection without a session: it names the nearest role, or pair, of the run."""
    pairs = [(session.assistant.name, session.user.name) async for session in store.sessions()]
    known = {"role": {name for pair in pairs for name in pair}, "pair": {" x ".join(pair) for pair in pairs}}
    for what, names in known.items():
        by_case = {name.casefold(): name for name in names}
        for wanted in _list_words(options.get(what, ())):  # type: ignore[arg-type]
            word = " x ".join(_PAIR.split(wanted.casefold().strip()))
            if word not in by_case and (near := get_close_matches(word, by_case, n=1)):
                return InputError(
                    f"No session has the {what} {wanted!r}. Did you mean {by_case[near[0]]!r}?",
                    where=str(store.path),
                )
    filters = sum(map(bool, options.values()))
    hint = "Leave one of the filters out." if filters > 1 else "Leave the filter out, or change it."
    return InputError(
        "No session of the run is like that.",
        where=str(store.path),
        next=hint if filters else "Generate or import some first.",
    )


def _list_words(words: Words) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)


def _find_lines(session: Session, pattern: re.Pattern[str]) -> Iterable[tuple[int, str]]:
    for turn in session.turns:
        text = str(turn.text)
        if (match := pattern.search(text)) is not None:
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            yield turn.number, text[max(start, match.start() - 60) : end if end >= 0 else None]


def _fits(name: str, pattern: str) -> bool:
    return fnmatchcase(name.casefold(), pattern.casefold())


def _has_pair(session: Session, text: str) -> bool:
    parts = _PAIR.split(text.strip())
    if len(parts) != 2:
        raise InputError(
            f"{text!r} is not a pair of roles.", option="pair", next="Write it as 'ASSISTANT x USER'."
        )
    if session.provenance.cast:  # Several have no pair.
        return False
    return _fits(session.assistant.name, parts[0]) and _fits(session.user.name, parts[1])


def _has_task(session: Session, words: str) -> bool:
    return words.casefold() in f"{session.task.original}\n{session.task.specified or ''}".casefold()


_TESTS: Mapping[str, Callable[[Session, str], bool]] = {
    "id": lambda session, pattern: fnmatchcase(session.id, pattern),
    "role": lambda session, pattern: any(_fits(name, pattern) for name in name_agents(session)),
    "pair": _has_pair,
    "task": _has_task,
}


# One session as JSON, Markdown or a page, with its findings and marks.


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
    """Return the session as Markdown. What the agents said stays as it is, line by line."""
    lines = [f"# {to_markdown(' × '.join(name_agents(session)))}", ""]
    task = session.task
    steps = (("Idea", task.original), ("Task", task.specified), ("Plan", task.planned))
    steps += (("Model", describe_models(session) or None),)
    lines += [f"**{name}:** {to_markdown(text)}  " for name, text in steps if text is not None]
    lines.append(f"**Session:** {to_markdown(session.id)}  ")
    lines += [f"**Mark:** {to_markdown(f'{mark.mark}. {mark.note}')}  " for mark in marks]
    for turn in session.turns:
        part = name_part(session, turn) or to_markdown(turn.speaker)
        lines += ["", f"## {turn.number}. {to_markdown(turn.role)} ({part})", ""]
        lines.append(keep_line_breaks(to_printable(turn.text).strip()).rstrip())
        lines += [f"\n> {line}" for line in write_findings(findings, turn.number)]
    end = session.ending
    text = (
        f"{end.code} at turn {end.turn}: {end.evidence}"
        if end
        else f"not ended, {write_count(len(session.turns), 'message')}"
    )
    lines += ["", "---", "", to_markdown(text), ""]
    return "\n".join(lines)


def render_page(sessions: Sequence[tuple[Session, Sequence[Finding]]], title: str) -> str:
    """Return the sessions as one self-contained HTML page for light and dark screens; all text is escaped."""
    style = read_look() + files("bactrian.api").joinpath("conversation.css").read_text("utf-8")
    parts: list[str] = []
    for session, findings in sessions:
        items = "".join(f"<li>{escape(line)}</li>" for line in write_findings(findings))
        page = session._repr_html_()  # pyright: ignore[reportPrivateUsage]
        parts.append(page + (f"<ul>{items}</ul>" if items else ""))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(to_printable(title))}</title>"
        f"<style>{style}</style></head>"
        f"<body><main>{'<hr>'.join(parts)}</main><footer>{_FOOTER}</footer></body></html>\n"
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


def _drop_event(line: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if name != "event"}
