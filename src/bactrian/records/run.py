"""Records of a run beside its sessions: calls, lists, progress, failures, marks, votes, commands, behaviours."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args

from bactrian._version import __version__
from bactrian.records.session import HUMAN, Kind
from bactrian.records.turn import Usage

# What a voter says of the two texts as they were shown.
Preference = Literal["left", "right", "equal", "both_bad", "skip"]
PREFERENCES: tuple[Preference, ...] = get_args(Preference)


BROKEN_OFF = "The reply was broken off."
"""The error of a call that a person or the system stopped: no fault, but it may be paid for."""


@dataclass(frozen=True, slots=True)
class Call:
    """One model call, answered or failed."""

    session: str
    agent: str
    ordinal: int  # 0-based position among the session's calls; a repeated call has the same position.
    model: str  # The model as the endpoint named it; the user's name for it if the call failed.
    seconds: float
    raw: bytes = b""  # The raw bytes of the reply; after a failure, up to 2 KB of the response.
    error: str | None = None  # The error; None if the model answered.
    # After a failure what it is estimated to have cost; None if it was refused, or nothing is known.
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class ItemList:
    """The items of an axis that are known so far."""

    id: str
    items: tuple[str, ...]
    complete: bool  # False while items are missing; generation stops early if no call returns new items.
    usage: Usage
    calls: int


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a session."""

    id: str
    ending: str | None
    turns: int | None  # Number of turns at its ending; None if it has not ended.
    prompt: int | None  # Total tokens; None if it has not ended.
    completion: int | None
    cached: int | None

    @property
    def goes_on(self) -> bool:
        """True if the command that made the session continues it: it has not ended, failed, or was stopped."""
        return self.ending in (None, "failed", "stopped")


@dataclass(frozen=True, slots=True)
class Failure:
    """A session that failed, or whose last request was not answered, with the response to its last failed call."""

    session: str  # Its id, or that of a list.
    turns: int  # Number of turns so far.
    reason: str
    error: str | None  # The error of its last failed call; None if no call failed.
    raw: bytes  # Up to 2 KB of the response to that call.
    open: bool = False  # True if it has not ended: the run, resumed, asks again.


@dataclass(frozen=True, slots=True)
class Mark:
    """A name that a person gave to a session, such as ``good`` or ``look-again``."""

    session: str  # The session's id.
    mark: str  # The name. A session has a mark once.
    note: str  # What the person wrote about it; may be empty.
    created: float  # Seconds since 1970 when the mark was set or its note changed.


@dataclass(frozen=True, slots=True)
class Vote:
    """A person's vote on one pair of solutions of a task.

    It keeps what was on the left and what was chosen, and not only the winner, so that a mistake in either can be seen.
    """

    session: str  # Id of the task's session, which contains the solutions.
    pair: str  # The two solutions, as an item of the axis `pair`: `extraction | single_shot`.
    voter: str  # A pseudonym.
    repeated: bool  # True if the voter had seen the pair before, the other way round: a check of attention.
    left: str  # The solution that was shown on the left.
    choice: str  # One of `PREFERENCES`.
    comment: str
    texts: str  # SHA-256, hexadecimal, of both texts as the voter saw them, the first of the pair first.
    seconds: float  # From showing the pair to the vote.
    created: float = field(default_factory=time.time)  # Seconds since 1970.

    @property
    def preferred(self) -> str | None:
        """The solution that won the vote; None for neither."""
        if self.choice not in ("left", "right"):
            return None
        right = next(way for way in self.pair.split(" | ") if way != self.left)
        return self.left if self.choice == "left" else right


@dataclass(frozen=True, slots=True)
class Command:
    """One call of ``play`` or ``generate``, with the options that the run does not store elsewhere.

    Keys are never among the options.
    """

    verb: str  # `play` or `generate`.
    session: str  # The id of the session that `play` made; empty for `generate`.
    options: Mapping[str, Any]  # JSON values by name of the option.
    version: str  # The version of this program.
    created: float  # Seconds since 1970.

    @classmethod
    def begin(cls, verb: str, options: Mapping[str, Any], session: str = "") -> Command:
        """Return the record of a command that begins now."""
        return cls(verb, session, options, __version__, time.time())


PAID = "paid"
"""The option of a command with other prices than before it: what was paid for until then, as ``[session, agent, tier,
prompt, completion, cached, written]`` each, without sessions that had ended."""


def list_keys(session: str) -> tuple[str, ...]:
    """Return the keys by which the sessions of a call of ``play`` are found.

    The stages of a society share its command: their ids differ in what follows the last hyphen.
    """
    stages, hyphen, _ = session.rpartition("-")
    return (f"{stages}-", session) if hyphen else (session,)


@dataclass(frozen=True, slots=True)
class Outline:
    """A session without its turns."""

    row: int  # Its position in the run, from 1; later sessions have higher ones.
    id: str
    assistant: str  # Names of the roles.
    user: str
    original_task: str
    specified_task: str | None
    language: str | None
    models: Mapping[str, str]  # Model names by agent.
    kind: Kind
    ending: str | None  # Code; None while the session is unfinished.
    turns: int  # Number of stored turns.
    created: float  # Seconds since 1970 when the session began.
    mark: str | None  # `red-team` for a session made to study misuse.
    values: Mapping[str, str]  # The items of the recipe's axes that it uses, by the axis's name.
    needs_code: bool  # True if a solution must contain code.
    is_imported: bool  # True if another program made it, so that its cost is not known.
    agents: tuple[str, ...]  # Names of all roles of a group chat; empty in other sessions.

    @property
    def final(self) -> bool:
        """False if turns may still be added."""
        return self.ending is not None and self.ending not in ("failed", "stopped")


class SpokenText(NamedTuple):
    """The text of a turn, with its cost."""

    session: str  # The session's id.
    number: int
    speaker: str
    text: str
    prompt: int  # Tokens of the turn, as in `Usage`.
    completion: int
    cached: int


class Spent(NamedTuple):
    """What an agent used in a session, or for lists."""

    session: str  # Id of a session or of a list; empty for lists, and for the whole run.
    agent: str
    usage: Usage


class TierUse(NamedTuple):
    """How turns were served at one tier, on average."""

    seconds: float  # Of a turn.
    cached: float  # Share of the prompt tokens that came from a prefix cache.
    written: float  # Share of them that was written to it.
    growth: float = 0.0  # Seconds that a turn takes longer than the one before it.
    middle: float = 0.0  # Mean number of the turns.


# Observed behaviours, and a judge's answers about them.


Behaviour = str  # Name of a behaviour: one of `BEHAVIOURS`, or one of the user's own.
# The built-in behaviours.
BEHAVIOURS: tuple[Behaviour, ...] = (
    "role_flip",
    "repeats_instruction",
    "flake_reply",
    "infinite_loop",
    "missing_marker",
    "empty_turn",
    "truncated_turn",
    "wrong_language",
    "refusal",
    "near_duplicate",
    "early_done",
    "self_answer",
    "no_code",
    "control_text",
)

LONGEST_QUOTE = 200  # Maximum number of characters of a turn that a finding quotes.


FindingKey = tuple[str, int, Behaviour]  # Session, turn and behaviour of a finding


@dataclass(frozen=True, slots=True)
class Finding:
    """A behaviour that one turn of a session shows."""

    session: str
    turn: int  # 1-based number of the turn.
    behaviour: Behaviour
    # Confidence of the detector, from 0 to 1. From 0.5 on, the finding counts; below, it is a candidate.
    confidence: float
    quote: str  # The words that show it; empty if no words do, as in an empty turn.
    reason: str = ""  # Why the detector found it, in words; empty if its definition says all.

    @property
    def key(self) -> FindingKey:
        """What a finding shares with the answers about it."""
        return self.session, self.turn, self.behaviour


@dataclass(frozen=True, slots=True)
class Confirmation:
    """The answer of a judge, or of a person (``human``), to whether a turn shows a behaviour."""

    session: str
    turn: int
    behaviour: Behaviour
    judge: str  # The judge's model, as the user named it.
    holds: bool | None  # None if the answer cannot be parsed.
    text: str  # The unparsed answer.
    usage: Usage
    seconds: float
    model: str  # The model as the endpoint named it.

    @property
    def key(self) -> FindingKey:
        """What a finding shares with the answers about it."""
        return self.session, self.turn, self.behaviour


def merge_answers(answers: Iterable[Confirmation]) -> dict[FindingKey, bool]:
    """Return what readers say of findings, given in the order of time.

    A person's word counts more than a judge's, a later one more than an earlier one.
    """
    merged: dict[FindingKey, bool] = {}
    for answer in sorted(answers, key=lambda answer: answer.judge == HUMAN):
        if answer.holds is not None:
            merged[answer.key] = answer.holds
    return merged


# The state of a run that a process writes.
WRITTEN = "being written"


def name_state(left: int) -> str:
    """Return the state of a run of which ``left`` jobs or sessions are left, and which no process writes."""
    return "incomplete" if left else "complete"
