"""User-defined behaviours: a function of a turn, an object, or an entry point of another package."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol, cast

from bactrian.analyze.behaviours.learned import list_learned, load_learned
from bactrian.analyze.behaviours.reading import SessionReading
from bactrian.analyze.running import code_fails
from bactrian.errors import BactrianError, InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.files.toml import suggest_name
from bactrian.records.finding import BEHAVIOURS, LONGEST_QUOTE, Finding
from bactrian.records.session import Session
from bactrian.records.turn import Turn

GROUP = "bactrian.behaviours"
"""Entry points of other packages: a behaviour by its code."""
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")

TurnTest = Callable[[Turn], bool | str | None]
"""Tests one turn. True, or a text to quote as evidence, makes a finding."""


class SessionDetector(Protocol):
    """Detects a behaviour in a whole session."""

    @property
    def code(self) -> str:
        """Code of the behaviour."""
        ...

    def detect(self, session: Session, /) -> Iterable[Finding]:
        """Return the findings in the session."""
        ...


@dataclass(frozen=True, slots=True)
class OwnBehaviour:
    """A user-defined behaviour. Calling it tests a turn."""

    code: str
    """Code of the behaviour in findings, reports, filters and exports."""
    description: str
    """One sentence that defines the behaviour for a judge."""
    test: TurnTest | None = None
    """Tests single turns."""
    detector: SessionDetector | None = None
    """Tests whole sessions instead."""

    def __call__(self, turn: Turn) -> bool | str | None:
        """Return the result of the test of ``turn``; None if the behaviour is detected in whole sessions."""
        return None if self.test is None else self.test(turn)

    def detect(self, reading: SessionReading) -> Iterator[Finding]:
        """Yield the findings in a session.

        Raises:
            InputError: the function failed.
        """
        session = reading.session
        try:
            if self.detector is not None:
                yield from self.detector.detect(session)
                return
            for turn in session.turns:
                if found := self(turn):
                    quote = found if isinstance(found, str) else turn.text
                    yield Finding(session.id, turn.number, self.code, 1.0, quote.strip()[:LONGEST_QUOTE])
        except BactrianError:
            raise
        except Exception as error:
            raise InputError(
                f"The behaviour {self.code!r} failed in session {session.id}: {type(error).__name__}: {error}.",
                where=self.code,
                next="Fix the function.",
            ) from error


BehaviourLike = str | OwnBehaviour | SessionDetector | TurnTest
"""A code, a behaviour, an object with ``code`` and ``detect``, or a function of a turn."""


def behaviour(description: str, /, *, code: str | None = None) -> Callable[[TurnTest], OwnBehaviour]:
    """Make a behaviour of a function of one turn. Its name, or ``code``, is the behaviour's code in every report.

    The function returns True, or a text that the finding quotes as evidence.

    Example:
        >>> import bactrian as bt
        >>> @bt.behaviour("The assistant apologises.")
        ... def apology(turn):
        ...     return turn.speaker == "assistant" and "sorry" in turn.text.lower()
        >>> apology.code
        'apology'

    Raises:
        InputError: the code is taken, or not made of lower-case letters, digits and underscores.
    """
    return lambda test: OwnBehaviour(check_code(code or _name(test)), description, test)


def read_behaviours(given: Iterable[BehaviourLike]) -> tuple[OwnBehaviour, ...]:
    """Return the user-defined behaviours in ``given``, without the codes of built-in ones.

    Raises:
        InputError: a code is unknown, or an object is not a behaviour.
    """
    return tuple(_read(one) for one in given if not (isinstance(one, str) and one in BEHAVIOURS))


def find_installed() -> tuple[OwnBehaviour, ...]:
    """Return the behaviours of other packages, and learned ones. Raises InputError if one cannot be loaded."""
    return tuple(_read(code) for code in (*list_plugins(GROUP), *list_learned()))


def _read(given: BehaviourLike) -> OwnBehaviour:
    if isinstance(given, OwnBehaviour):
        return given
    if isinstance(given, str):
        if given == code_fails.CODE:
            return OwnBehaviour(given, code_fails.DEFINITION, detector=code_fails.CodeRunner())
        if given in list_learned() or given.endswith(".json"):
            learned = load_learned(given)
            return OwnBehaviour(learned.code, learned.description, detector=learned)
        if given not in list_plugins(GROUP):
            known = [*BEHAVIOURS, code_fails.CODE, *list_plugins(GROUP), *list_learned()]
            raise InputError(
                f"There is no behaviour {given!r}.{suggest_name(given, known)}",
                where="behaviours",
                next=f"Behaviours: {', '.join(known)}.",
            )
        found = load_plugin(GROUP, given)
        made = _read(cast("BehaviourLike", found() if isinstance(found, type) else found))
        return OwnBehaviour(given, made.description, made.test, made.detector)
    description = (given.__doc__ or "").strip().partition("\n")[0]
    if hasattr(given, "detect"):
        detector = cast("SessionDetector", given)
        code = check_code(getattr(detector, "code", None) or _name(detector))
        return OwnBehaviour(code, description or code, detector=detector)
    if not callable(given):
        raise InputError(
            f"{given!r} is not a behaviour.", where="behaviours", next="Pass a code or a function of a turn."
        )
    code = check_code(_name(given))
    return OwnBehaviour(code, description or code, given)


def _name(of: object) -> str:
    return str(
        getattr(of, "__name__", None) or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(of).__name__)
    ).lower()


def check_code(code: str) -> str:
    """Return a code that a behaviour of the user's own may have. Raises InputError."""
    built_in = (*BEHAVIOURS, code_fails.CODE)
    if not _CODE.fullmatch(code) or code in built_in:
        taken = (
            "is the code of a built-in behaviour" if code in built_in else "cannot be the code of a behaviour"
        )
        raise InputError(
            f"{code!r} {taken}.",
            where="behaviours",
            next="Use lower-case letters, digits and underscores, a letter first.",
        )
    return code
