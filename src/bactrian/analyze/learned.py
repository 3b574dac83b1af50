"""The behaviours that trained models find in a session.

These are the paper's four failures of cooperation (section 4.1), found by the detector of :mod:`bactrian.detect`, and
those that a user has trained. Where the protocol itself speaks, a rule decides: an assistant's line that begins with
``Instruction:``, a user's that begins with ``Solution:``, and a user that asks for the next instruction are role flips.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bactrian.detect.detector import (
    LIKELY,
    DetectedConversation,
    DetectorModel,
    load_model,
    read_model,
    write_model,
)
from bactrian.detect.loops import LOOP, SHORTEST_LOOP, count_void_turns
from bactrian.detect.turn_text import read_turns
from bactrian.errors import InputError
from bactrian.files.atomic import write_atomically
from bactrian.protocol.fences import read_body
from bactrian.protocol.markers import find_instruction, is_done, strip_code
from bactrian.records.run import LONGEST_QUOTE, Behaviour, Finding
from bactrian.records.session import Session
from bactrian.records.turn import Turn
from bactrian.store.locations import find_data_folder

# A session as the detectors read it: what several of them need of a turn is computed once, when first used.


# Not slotted: cached properties need a ``__dict__``. Not comparable: each turn refers to the one before it.
@dataclass(frozen=True, eq=False, repr=False)
class TurnView:
    """One turn, with the one that it answers."""

    turn: Turn
    before: TurnView | None  # the turn before it; None for the first

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
    views: tuple[TurnView, ...]
    model: DetectorModel | None = None  # the learned detector; the built-in one if None
    # Confidence below which a finding is not used: learned detectors need not explain it.
    least: float = 0.0
    # False if findings are only counted: then learned detectors give neither words nor reasons.
    explains: bool = True

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
        self, view: TurnView, behaviour: Behaviour, confidence: float, quote: str, reason: str = ""
    ) -> Finding:
        """Make the finding of a behaviour in ``view``; its quotation is cut to the length that a finding may have."""
        return Finding(
            self.session.id, view.turn.number, behaviour, confidence, quote.strip()[:LONGEST_QUOTE], reason
        )


def read_session(session: Session) -> SessionReading:
    """Prepare ``session`` for the detectors."""
    views: list[TurnView] = []
    for turn in session.turns:
        views.append(TurnView(turn, views[-1] if views else None))
    return SessionReading(session, tuple(views))


# The paper's four failures.


# The four behaviours.
PAPER: tuple[Behaviour, ...] = ("role_flip", "repeats_instruction", "flake_reply", LOOP)
_NEXT = r"(?: (?:next|new|first|further|another|following))+ (?:instructions?|tasks?|requests?|orders?|commands?)\b"
_THAT = rf"(?:{_NEXT}| instructions?(?=[.!?]|\Z))"
# Words by which an agent asks for an instruction, in English. They hold one of
_ASKS_FOR_ONE = re.compile(
    rf"(?:\A|[.!?:\n][ ]*|\b(?:please|kindly|you) )(?:give|provide|send|share|state)"
    rf"(?: me| us)?(?: with)?(?: the| an?| your| any)?{_THAT}"
    rf"|\b(?:waiting for|awaiting|await|ready for|ready to receive|look(?:ing)? forward to)"
    rf"(?: the| an?| your| any)?{_THAT}"
    rf"|\bwhat(?:['’]s| is| are) (?:your|the){_NEXT}"
)
_ASKED_FOR = ("instruction", "task", "request", "order", "command")
# How a user announces an instruction of its own.
_PREPARES = re.compile(
    r"\b(?:i|we)\b(?:(?!\byou\b)[^.!?\n])*\b(?:prepare|provide|give|send|write)\b[^.!?\n]*\Z"
)
_DOUBTFUL = 0.1  # confidence below which a turn is not even a doubtful finding


def detect_failure(behaviour: Behaviour) -> Callable[[SessionReading], Iterator[Finding]]:
    """Return the detector of one of the four."""
    if behaviour == LOOP:
        return _detect_loops
    return lambda reading: detect_turns(reading, reading.detected, behaviour)


def detect_turns(
    reading: SessionReading, detected: DetectedConversation, behaviour: Behaviour
) -> Iterator[Finding]:
    """Yield the turns that show ``behaviour`` by the heads of a model."""
    for head in detected.model.heads:
        if head.behaviour != behaviour:
            continue
        for position, view in enumerate(reading.views):
            if not head.applies_to(detected.turns[position]):
                continue
            marker = _find_marker(reading, view) if behaviour == "role_flip" else None
            if marker is not None:
                yield reading.make_finding(view, behaviour, 1.0, *marker)
            elif behaviour == "repeats_instruction" and is_echo(detected, position + 1):
                yield reading.make_finding(view, behaviour, 1.0, view.body, "it is the instruction")
            elif detected.is_shown(head, position) or reading.least < LIKELY:
                confidence = head.calibrate(detected.score(head, position))
                if confidence >= max(_DOUBTFUL, reading.least):
                    reason, quote = detected.explain(head, position) if reading.explains else ("", "")
                    quote = _find_quote(view, quote)
                    yield reading.make_finding(view, behaviour, confidence, quote, reason)


def is_echo(detected: DetectedConversation, number: int) -> bool:
    """Return True if a turn is word for word the instruction before it."""
    if number < 2:
        return False
    turn, before = detected.turns[number - 1], detected.turns[number - 2]
    return before.instructs and not turn.instructs and bool(turn.stems) and turn.prose == before.prose


def is_failure(reading: SessionReading, view: TurnView) -> bool:
    """Return True if a turn shows one of the four."""
    detected, position = reading.detected, view.turn.number - 1
    return is_echo(detected, view.turn.number) or any(
        detected.is_shown(head, position)
        for head in detected.model.heads
        if head.applies_to(detected.turns[position])
    )


def _detect_loops(reading: SessionReading) -> Iterator[Finding]:
    """Yield the turns from the fourth of a loop on."""
    detected = reading.detected
    head = detected.model.get_head(LOOP)
    for view, run in zip(reading.views, count_void_turns(detected), strict=True):
        if run >= SHORTEST_LOOP:
            number = view.turn.number
            scores = [detected.score(head, position) for position in range(number - run, number)]
            confidence = sum(map(head.calibrate, scores)) / run
            reason, quote = detected.explain(head, number - 1) if reading.explains else ("", "")
            reason = f"nothing new since turn {number - run + 1}" + (f"; {reason}" if reason else "")
            yield reading.make_finding(
                view, LOOP, max(round(confidence, 2), 0.5), _find_quote(view, quote), reason
            )


def _find_marker(reading: SessionReading, view: TurnView) -> tuple[str, str] | None:
    """Return the words by which a turn takes the other's place in the protocol, and the reason; None if not found.

    What a user gives as its input is not a flip.
    """
    if view.by_user:
        turn = reading.detected.turns[view.turn.number - 1]
        if turn.gives_input:
            return None
        if turn.solves:
            return view.turn.text, "a line begins with “Solution:”"
        if turn.asks_next and not _PREPARES.search(turn.prose):
            return view.turn.text.rstrip().rpartition("\n")[2], "it asks for the next instruction"
        asks = any(word in turn.prose for word in _ASKED_FOR) and _ASKS_FOR_ONE.search(turn.prose)
        if asks:
            return _find_quote(view, asks[0].lstrip(".!?:\n ")), "it asks for an instruction"
        return None
    marker = find_instruction(view.turn.text, reading.session.provenance.language)
    if marker is None or view.turn.text[: marker.start()].rpartition("\n")[2].strip(" \t>#*_-"):
        return None
    return view.turn.text[marker.start() :], "a line begins with “Instruction:”"


def _find_quote(view: TurnView, sentence: str) -> str:
    """Return a sentence as the turn writes it, from a sentence in lower case; all of the turn if not found."""
    text = view.turn.text
    begin = text.lower().replace("’", "'").find(sentence) if sentence else -1
    return text[begin : begin + len(sentence)] if begin >= 0 else view.body or text


# Learned behaviours of the user: trained by ``bactrian behaviours train``, stored in a file, used by name.
#
# The files are in the folder ``behaviours`` of the user's data folder. A path to such a file works instead of
# the name.


@dataclass(frozen=True, slots=True)
class LearnedBehaviour:
    """A behaviour that a trained model detects."""

    code: Behaviour
    description: str
    model: DetectorModel

    def detect(self, session: Session) -> Iterator[Finding]:
        """Yield the findings in a session, the doubtful ones with a confidence below 0.5."""
        reading = replace(read_session(session), model=self.model)
        yield from detect_turns(reading, reading.detected, self.code)


def list_learned() -> tuple[Behaviour, ...]:
    """Return the codes of the registered learned behaviours."""
    folder = find_data_folder() / "behaviours"
    return tuple(sorted(path.stem for path in folder.glob("*.json"))) if folder.is_dir() else ()


def load_learned(name: str) -> LearnedBehaviour:
    """Load a learned behaviour by its code, or from a file.

    Raises:
        InputError: the file does not exist, or does not contain a learned behaviour.
    """
    path = Path(name) if name.endswith(".json") else find_data_folder() / "behaviours" / f"{name}.json"
    try:
        model = read_model(path.read_text("utf-8"))
        return LearnedBehaviour(str(model.about["code"]), str(model.about["description"]), model)
    except OSError as error:
        raise InputError(
            f"The learned behaviour {name!r} cannot be read: {error.strerror}.",
            where=str(path),
            next="Train it with: bactrian behaviours train DATA.jsonl",
        ) from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(
            "The file does not contain a learned behaviour.",
            where=str(path),
            next="Train it again: bactrian behaviours train DATA.jsonl --overwrite",
        ) from error


def check_unregistered(code: str) -> None:
    """Refuse the code of a learned behaviour that exists, before anything is learned.

    Raises:
        InputError: one with this code exists.
    """
    if (path := _locate_learned(code)).exists():
        raise InputError("This exists already.", where=str(path), next="Use overwrite=True, or another name.")


def register_learned(learned: LearnedBehaviour, *, overwrite: bool = False) -> Path:
    """Store a learned behaviour under its code, and return its file.

    Raises:
        InputError: one with this code exists and ``overwrite`` is False.
    """
    path = _locate_learned(learned.code)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {**learned.model.about, "code": learned.code, "description": learned.description}
    with write_atomically(path, overwrite=overwrite) as stage:
        (stage / path.name).write_text(write_model(replace(learned.model, about=about)), "utf-8")
    return path


def _locate_learned(code: str) -> Path:
    return find_data_folder() / "behaviours" / f"{code}.json"
