"""The behaviours that analyses detect: the built-in ones, and those of users and of other packages by their code.

A package offers a behaviour under the entry-point group ``bactrian.behaviours``: a function of a turn, or an object
or a class with ``detect``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Protocol, cast

from bactrian.analyze.code_runs import CODE_FAILS, DEFINITION, CodeRunner
from bactrian.analyze.learned import (
    PAPER,
    SessionReading,
    detect_failure,
    list_learned,
    load_learned,
    read_session,
)
from bactrian.analyze.rule_checks import RULES
from bactrian.detect.detector import LIKELY, POSSIBLE
from bactrian.errors import BactrianError, InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.files.toml import suggest_name
from bactrian.records.run import BEHAVIOURS, LONGEST_QUOTE, Behaviour, Finding, FindingKey
from bactrian.records.session import Session, find_kind
from bactrian.records.turn import Turn

# The detector of each behaviour, which yields its findings in a session.
DETECTORS: Mapping[Behaviour, Callable[[SessionReading], Iterator[Finding]]] = MappingProxyType(
    {**{behaviour: detect_failure(behaviour) for behaviour in PAPER}, **RULES}
)

# Behaviours that do not depend on the inception protocol: the only ones detected in group chats.
_OF_ANYONE: tuple[Behaviour, ...] = ("empty_turn", "truncated_turn", "wrong_language", "refusal")


@cache
def load_definitions() -> Mapping[Behaviour, str]:
    """Return the definition of every built-in behaviour, in words."""
    text = resources.files("bactrian.analyze").joinpath("behaviours.toml").read_text("utf-8")
    return MappingProxyType(tomllib.loads(text))


GROUP = "bactrian.behaviours"  # Entry points of other packages: a behaviour by its code
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")

# Tests one turn. True, or a text to quote as evidence, makes a finding.
TurnTest = Callable[[Turn], bool | str | None]


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
                if evidence := self(turn):
                    quote = evidence if isinstance(evidence, str) else turn.text
                    yield Finding(session.id, turn.number, self.code, 1.0, quote.strip()[:LONGEST_QUOTE])
        except BactrianError:
            raise
        except Exception as error:
            raise InputError(
                f"The behaviour {self.code!r} failed in session {session.id}: {type(error).__name__}: {error}.",
                where=self.code,
                next="Fix the function.",
            ) from error


# A code, a behaviour, an object with ``code`` and ``detect``, or a function of a turn.
BehaviourLike = str | OwnBehaviour | SessionDetector | TurnTest


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
    return lambda test: OwnBehaviour(check_code(code or _derive_code(test)), description, test)


def read_behaviours(behaviours: Iterable[BehaviourLike]) -> tuple[OwnBehaviour, ...]:
    """Return the user-defined ones of ``behaviours``, without the codes of built-in ones.

    Raises:
        InputError: a code is unknown, or an object is not a behaviour.
    """
    return tuple(_read(each) for each in behaviours if not (isinstance(each, str) and each in BEHAVIOURS))


def _list_registered() -> tuple[str, ...]:
    """Return the codes that other packages register; built-in behaviours take precedence."""
    return tuple(code for code in list_plugins(GROUP) if code not in (*BEHAVIOURS, CODE_FAILS))


def find_installed() -> tuple[OwnBehaviour, ...]:
    """Return the behaviours of other packages, and learned ones. Raises InputError if one cannot be loaded."""
    return tuple(_find(code) for code in (*_list_registered(), *list_learned()))


def _find(code: str) -> OwnBehaviour:
    """Return the behaviour with this code that is not built in, or that a file describes."""
    if code == CODE_FAILS:
        return OwnBehaviour(code, DEFINITION, detector=CodeRunner())
    if code in list_learned() or code.endswith(".json"):
        learned = load_learned(code)
        return OwnBehaviour(learned.code, learned.description, detector=learned)
    if code in _list_registered():
        loaded = load_plugin(GROUP, code)
        return replace(
            _read(cast("BehaviourLike", loaded() if isinstance(loaded, type) else loaded)), code=code
        )
    known = [*BEHAVIOURS, CODE_FAILS, *_list_registered(), *list_learned()]
    raise InputError(
        f"There is no behaviour {code!r}.{suggest_name(code, known)}",
        where="behaviours",
        next=f"Behaviours: {', '.join(known)}.",
    )


def _read(behaviour: BehaviourLike) -> OwnBehaviour:
    if isinstance(behaviour, OwnBehaviour):
        return behaviour
    if isinstance(behaviour, str):
        return _find(behaviour)
    description = (behaviour.__doc__ or "").strip().partition("\n")[0]
    if hasattr(behaviour, "detect"):
        detector = cast("SessionDetector", behaviour)
        code = check_code(getattr(detector, "code", None) or _derive_code(detector))
        return OwnBehaviour(code, description or code, detector=detector)
    if not callable(behaviour):
        raise InputError(
            f"{behaviour!r} is not a behaviour.",
            where="behaviours",
            next="Pass a code or a function of a turn.",
        )
    code = check_code(_derive_code(behaviour))
    return OwnBehaviour(code, description or code, behaviour)


def _derive_code(behaviour: object) -> str:
    """Return the name of a function, or of an object's class in small letters and underscores."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(behaviour).__name__)
    return str(getattr(behaviour, "__name__", None) or words).lower()


def check_code(code: str) -> str:
    """Return a code that a behaviour of the user's own may have. Raises InputError."""
    if code in (*BEHAVIOURS, CODE_FAILS):
        problem = "is the code of a built-in behaviour"
    elif not _CODE.fullmatch(code):
        problem = "cannot be the code of a behaviour"
    else:
        return code
    raise InputError(
        f"{code!r} {problem}.",
        where="behaviours",
        next="Use lower-case letters, digits and underscores, a letter first.",
    )


def find_behaviours(
    session: Session,
    behaviours: Iterable[Behaviour] | None = None,
    least: float = LIKELY,
    custom: Sequence[OwnBehaviour] | None = None,
    *,
    explain: bool = True,
    answers: Mapping[FindingKey, bool] | None = None,
) -> tuple[Finding, ...]:
    """Return the findings in ``session``, in the order of its turns.

    Args:
        session: Finished or not.
        behaviours: Codes to detect; all if None.
        least: Minimum confidence of a finding.
        custom: User-defined behaviours to detect as well; those of installed packages if None.
        explain: False if findings are only counted: those of learned detectors then have no quote and no reason.
        answers: What readers say of findings: those that they reject are left out, candidates that they confirm are in.
    """
    answers = answers or {}
    detected = min(least, POSSIBLE) if answers else least
    reading = replace(read_session(session), least=detected, explains=explain)
    if find_kind(session) == "talk":
        behaviours = [name for name in _OF_ANYONE if behaviours is None or name in behaviours]
    custom = find_installed() if custom is None else custom
    detectors = [DETECTORS[behaviour] for behaviour in (DETECTORS if behaviours is None else behaviours)]
    detectors += [behaviour.detect for behaviour in custom]
    findings = (finding for detect in detectors for finding in detect(reading))
    counted = (finding for finding in findings if answers.get(finding.key, finding.confidence >= least))
    return tuple(sorted(counted, key=lambda finding: finding.turn))
