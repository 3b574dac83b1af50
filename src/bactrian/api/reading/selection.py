"""Selects sessions of a run by id, roles, task, ending, behaviour, mark and words."""

from __future__ import annotations

import random
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TypedDict

from bactrian.analyze.behaviours.catalogue import find_behaviours
from bactrian.analyze.behaviours.own import BehaviourLike, OwnBehaviour, find_installed, read_behaviours
from bactrian.analyze.running.code_fails import CODE as CODE_FAILS
from bactrian.analyze.session_summary import UNFINISHED
from bactrian.errors import InputError
from bactrian.files.toml import suggest_name
from bactrian.language.escape import to_line
from bactrian.records.ending import ENDING_CODES
from bactrian.records.finding import BEHAVIOURS, Finding
from bactrian.records.session import Session
from bactrian.store import RunReader

Words = str | Sequence[str]
"""One value, or several of which one is enough."""
_PAIR = re.compile(r"\s+[×x]\s+")


class SelectOptions(TypedDict, total=False):
    """Which sessions of a run: each option narrows the selection, and of several values one is enough."""

    id: Words
    """Ids; ``*`` stands for any characters."""
    role: Words
    """Role of either agent, in any case; ``*`` stands for any characters."""
    pair: Words
    """Roles of assistant and user: ``"Programmer × Trader"``, or with an x between spaces."""
    task: Words
    """Words of the task, in any case."""
    ending: Words
    """Codes of endings; ``unfinished`` for sessions without one."""
    behaviour: Words
    """Codes of behaviours that a turn shows."""
    mark: Words
    """Marks that a person gave to the session."""
    grep: str
    """A regular expression that a turn matches, in any case."""


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
        codes = (*BEHAVIOURS, *(one.code for one in own))
        self._behaviours = _check_codes(options.get("behaviour", ()), codes, "behaviour")
        self._grep = _compile(grep) if (grep := options.get("grep")) else None
        self._add("id", options.get("id", ()), _has_id)
        self._add("role", options.get("role", ()), _has_role)
        self._add("pair", options.get("pair", ()), _has_pair)
        self._add("task", options.get("task", ()), _has_task)
        ending = _check_codes(options.get("ending", ()), known_endings, "ending")
        self._add("ending", ending, lambda session, code: _find_code(session) == code)
        given = {mark for marks in self._marks.values() for mark in marks}
        mark = _check_codes(options.get("mark", ()), tuple(sorted(given)), "mark")
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
            own = [one for one in self._own if one.code in self._behaviours]
            found = find_behaviours(session, own=own)
            findings = tuple(one for one in found if one.behaviour in self._behaviours)
            if not findings:
                return None
        return SelectedSession(session, findings, matches)

    def _add(self, name: str, given: Words, test: Callable[[Session, str], bool]) -> None:
        if values := _list_words(given):
            self._tests[f"{name}={','.join(values)}"] = lambda session: any(
                test(session, value) for value in values
            )


async def read_selection(store: RunReader, options: SelectOptions) -> Selection:
    """Return the selection, checked against what the run contains. Raises InputError for an unknown code."""
    marks: dict[str, set[str]] = {}
    for one in await store.marks():
        marks.setdefault(one.session, set()).add(one.mark)
    endings = {one.ending: None async for one in store.progress() if one.ending is not None}
    asked = [code for code in _list_words(options.get("behaviour", ())) if code == CODE_FAILS]
    return Selection(
        options,
        marks={session: frozenset(names) for session, names in marks.items()},
        endings=endings,
        own=merge_installed(asked),
    )


def merge_installed(behaviours: Iterable[BehaviourLike]) -> tuple[OwnBehaviour, ...]:
    """Return the user's behaviours, and those of installed packages with other codes."""
    given = read_behaviours(behaviours)
    codes = {one.code for one in given}
    return (*given, *(one for one in find_installed() if one.code not in codes))


async def iterate_selected(
    store: RunReader, selection: Selection, *, sample: int | None = None, seed: int = 0
) -> AsyncIterator[SelectedSession]:
    """Yield the selected sessions in the order in which they began, or ``sample`` of them chosen at random.

    The same seed chooses the same sessions. A hundred sessions are in memory, and the ids of a sample.
    """
    if sample is None:
        async for session in store.sessions():
            if (found := selection.match(session)) is not None:
                yield found
        return
    if selection.is_everything:
        ids = [one.id async for one in store.progress()]
    else:
        ids = [one.id async for one in store.sessions() if selection.match(one) is not None]
    for session_id in random.Random(seed).sample(ids, min(sample, len(ids))):  # noqa: S311
        session = await store.session(session_id)
        found = None if session is None else selection.match(session)
        if found is not None:
            yield found


async def find_session(store: RunReader, name: str) -> Session:
    """Return the session with this id, or the only one whose id begins with it.

    Raises:
        InputError: there is none, or there are several.
    """
    if (session := await store.session(name)) is not None:
        return session
    ids = [one.id async for one in store.progress()]
    begun = [one for one in ids if name and one.startswith(name)]
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


async def explain_nothing(store: RunReader, options: SelectOptions) -> InputError:
    """Return the error for a selection without a session: it names the nearest role of the run."""
    roles = {name async for one in store.sessions() for name in (one.assistant.name, one.user.name)}
    by_case = {role.casefold(): role for role in roles}
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


def _list_words(given: Words) -> tuple[str, ...]:
    return (given,) if isinstance(given, str) else tuple(given)


def _check_codes(given: Words, known: Sequence[str], what: str) -> tuple[str, ...]:
    codes = _list_words(given)
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
        if (found := pattern.search(text)) is not None:
            start = text.rfind("\n", 0, found.start()) + 1
            end = text.find("\n", found.end())
            yield turn.number, text[max(start, found.start() - 60) : end if end >= 0 else None]


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
