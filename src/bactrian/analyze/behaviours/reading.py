"""A session as the detectors read it: what several of them need of a turn is computed once, when first used."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from bactrian.detect.conversation import DetectedConversation
from bactrian.detect.model import DetectorModel, load_model
from bactrian.detect.turns import read_turns
from bactrian.language.body import read_body
from bactrian.language.protocol import is_done, strip_code
from bactrian.records.finding import LONGEST_QUOTE, Behaviour, Finding
from bactrian.records.session import Session
from bactrian.records.turn import Turn


# Not slotted: cached properties need a ``__dict__``. Not comparable: each turn refers to the one before it.
@dataclass(frozen=True, eq=False, repr=False)
class HeardTurn:
    """One turn, with the one that it answers."""

    turn: Turn
    before: HeardTurn | None
    """The turn before it; None for the first."""

    @property
    def by_user(self) -> bool:
        """True if the AI user speaks."""
        return self.turn.speaker == "user"

    @cached_property
    def plain(self) -> str:
        """The text with fenced code blanked out; positions are the text's."""
        return strip_code(self.turn.text)

    @cached_property
    def lower(self) -> str:
        """:attr:`plain` in lower case, for a quick look."""
        return self.plain.lower()

    @cached_property
    def body(self) -> str:
        """What is said, code included, without the words of the protocol."""
        return read_body(self.turn)

    @cached_property
    def is_done(self) -> bool:
        """True if it says that the task is done."""
        return self.by_user and self.turn.said is None and is_done(self.turn.text)

    @property
    def asked(self) -> str:
        """What the turn before asks for, as far as a turn can tell: instruction and input, or all of it."""
        return self.before.body if self.before is not None and self.before.by_user else ""


@dataclass(frozen=True, eq=False, repr=False)
class SessionReading:
    """A session with its turns prepared for the detectors."""

    session: Session
    heard: tuple[HeardTurn, ...]
    model: DetectorModel | None = None
    """The learned detector; the built-in one if None."""
    least: float = 0.0
    """Confidence below which a finding is not used: learned detectors need not explain it."""
    explains: bool = True
    """False if findings are only counted: then learned detectors give neither words nor reasons."""

    @property
    def role_play(self) -> bool:
        """False for a question and its answer, which follow no protocol."""
        first = self.session.turns[0] if self.session.turns else None
        return not (first is not None and first.said is None and first.text == self.session.task.original)

    @cached_property
    def detected(self) -> DetectedConversation:
        """The turns with the scores of the learned detector."""
        return DetectedConversation(self.model or load_model(), read_turns(self.session.turns))

    def make_finding(
        self, heard: HeardTurn, behaviour: Behaviour, confidence: float, quote: str, reason: str = ""
    ) -> Finding:
        """Make the finding of a behaviour in ``heard``; its quotation is cut to the length that a finding may have."""
        return Finding(
            self.session.id, heard.turn.number, behaviour, confidence, quote.strip()[:LONGEST_QUOTE], reason
        )


def read_session(session: Session) -> SessionReading:
    """Prepare ``session`` for the detectors."""
    heard: list[HeardTurn] = []
    for turn in session.turns:
        heard.append(HeardTurn(turn, heard[-1] if heard else None))
    return SessionReading(session, tuple(heard))
