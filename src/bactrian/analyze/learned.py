"""The behaviours that trained models find in a session: the paper's four failures, and those that users train.

These are the paper's four failures of cooperation (section 4.1), found by the detector of :mod:`bactrian.detect`, and
those that a user has trained. Where the protocol itself speaks, a rule decides: an assistant's line that begins with
``Instruction:``, a user's that begins with ``Solution:``, and a user that asks for the next instruction are role flips.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from math import inf
from pathlib import Path

from bactrian.detect import detector
from bactrian.detect.loops import LOOP, SHORTEST_LOOP, count_repeats, count_void_turns, is_sure
from bactrian.detect.turn_text import ReadTurn, Sentence, read_turn, read_turns
from bactrian.errors import InputError, explain_os_errors
from bactrian.files.atomic import write_atomically
from bactrian.protocol.fences import read_body
from bactrian.protocol.markers import find_instruction, is_done, strip_code
from bactrian.records.run import LONGEST_QUOTE, Behaviour, Finding
from bactrian.records.session import Session, find_kind
from bactrian.records.turn import Instruction, Solution, Turn
from bactrian.store.locations import find_data_folder

# A session as the detectors read it: what several of them need of a turn is computed once, when first used.


# Not slotted: cached properties need a ``__dict__``. Not comparable: each turn refers to the one before it.
@dataclass(frozen=True, eq=False, repr=False)
class TurnView:
    """One turn, with the one that it answers."""

    turn: Turn
    before: TurnView | None  # the turn before it; None for the first
    position: int = 0  # among the session's turns; the number of an imported turn may be larger

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
    def words(self) -> list[str]:
        """The words of :attr:`body` in lower case, with the signs around them."""
        return self.body.lower().split()

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
    model: detector.DetectorModel | None = None  # the learned detector; the built-in one if None
    context: detector.ContextHead | None = None  # the one that sees all turns; the built-in one if None
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
    def has_instructor(self) -> bool:
        """True if it is somebody's part to instruct."""
        return has_instructor(self.session)

    @cached_property
    def is_marked(self) -> bool:
        """True if the turns have the markers of the protocol."""
        return has_markers(self.session)

    @cached_property
    def detected(self) -> detector.DetectedConversation:
        """The turns with the scores of the learned detector."""
        return detector.DetectedConversation(
            self.model or detector.load_model(), read_turns(self.session.turns)
        )

    def find_context(self, head: detector.Head) -> detector.ContextHead | None:
        """Return the model of whole conversations if it goes with ``head``.

        It knows the built-in detector only, and has nothing to say of a question and its answer.
        """
        if self.model is not None or len(self.views) <= _ANSWERED:
            return None
        context = self.context or detector.load_context()
        return context if context.head == head.name else None

    def make_finding(
        self, view: TurnView, behaviour: Behaviour, confidence: float, quote: str, reason: str = ""
    ) -> Finding:
        """Make the finding of a behaviour in ``view``; its quotation is cut to the length that a finding may have."""
        return Finding(
            self.session.id, view.turn.number, behaviour, confidence, quote.strip()[:LONGEST_QUOTE], reason
        )


# Roles of a conversation between somebody who asks and somebody who serves.
_ASKS = re.compile(
    r"\b(?:user|human|person|customer|client|caller|student|patient|guest|buyer|prompter)s?\b", re.IGNORECASE
)
_SERVES = re.compile(
    r"\b(?:assistant|agent|ai|gpt|bot|chatbot|model|system|support|helper|clerk|expert)s?\b", re.IGNORECASE
)
# Marks of a discussion of equals: offices of one company (ChatDev), and the token that ends such a discussion.
_PEERS = re.compile(r"\bchief \w+ officer\b|\bcode reviewer\b", re.IGNORECASE)
_AGREED = "<INFO>"


def has_instructor(session: Session) -> bool:
    """Return False if nobody's part is to instruct, as where equals discuss: no role can flip there.

    A role-play of Bactrian has an AI user who instructs, by its prompts. In a conversation of another program, somebody
    instructs if turns have the markers of the protocol, or if the roles are those of a user and of a service.
    """
    turns = session.turns
    if find_kind(session) == "talk":
        return False
    if ("user" in session.provenance.models and not session.provenance.is_imported) or has_markers(session):
        return True
    names = {session.user.name, session.assistant.name, *(turn.role for turn in turns)}
    if any(map(_PEERS.search, names)) or any(_AGREED in turn.text for turn in turns):
        return False
    if not session.provenance.is_imported:
        return True
    return bool(_ASKS.search(session.user.name) or _SERVES.search(session.assistant.name))


def has_markers(session: Session) -> bool:
    """Return True if the turns of a conversation have the markers of the protocol."""
    return detector.follow_protocol([isinstance(turn.said, Instruction | Solution) for turn in session.turns])


def read_session(session: Session) -> SessionReading:
    """Prepare ``session`` for the detectors."""
    views: list[TurnView] = []
    for turn in session.turns:
        views.append(TurnView(turn, views[-1] if views else None, len(views)))
    return SessionReading(session, tuple(views))


# The paper's four failures.


# The four behaviours.
FLIP, REPETITION, FLAKE = "role_flip", "repeats_instruction", "flake_reply"
PAPER: tuple[Behaviour, ...] = (FLIP, REPETITION, FLAKE, LOOP)
OF_INSTRUCTIONS: tuple[Behaviour, ...] = PAPER[:3]  # Need somebody who instructs.
_NEXT = r"(?:(?:next|new|first|further|another|following) )+(?:instructions?|tasks?|requests?|orders?|commands?)\b"
# Begins with a space, which the search looks for far faster than for a choice of patterns.
_THAT = rf" (?:{_NEXT}|instructions?(?=[.!?]|\Z))"
_NAMES_ONE = re.compile(_THAT)
# Words by which an agent asks for an instruction, in English. All of them name it.
_ASKS_FOR_ONE = re.compile(
    rf"(?:\A|[.!?:\n][ ]*|\b(?:please|kindly|you) )(?:give|provide|send|share|state)"
    rf"(?: me| us)?(?: with)?(?: the| an?| your| any)?{_THAT}"
    rf"|\b(?:waiting for|awaiting|await|ready for|ready to receive|look(?:ing)? forward to)"
    rf"(?: the| an?| your| any)?{_THAT}"
    rf"|\bwhat(?:['’]s| is| are) (?:your|the) {_NEXT}"
)
# How a user announces an instruction of its own.
_PREPARES = re.compile(
    r"\b(?:i|we)\b(?:(?!\byou\b)[^.!?\n])*\b(?:prepare|provide|give|send|write)\b[^.!?\n]*\Z"
)
# Limits on real text (docs/behaviours.md has the figures).
_SHORT = 60  # words of a turn; longer ones are another kind of text than the invented conversations
_FLIP_WITHOUT_MARKERS, _FLIP_OF_BOTH = 0.9, 0.7
_SURE_REPETITION, _FEW_NEW, _MORE_NEW = 0.7, 4, 8  # confidence, and words that the instruction does not have
_SURE_FLAKE = 0.6
# Of a turn that goes round: words at least, share of them that are different, words that are not the instruction's.
_MANY, _FEW_SHARE, _FEW_OTHERS, _SURE_ROUND = 40, 0.25, 6, 0.85
_ASKED_SHARE = 0.5  # of the words of a promise that are the instruction's
# How an agent asks for what it needs, which is no flake; in English.
_ASKS_MATERIAL = re.compile(
    r"\b(?:please|could you|can you|kindly|once you|if you|do you have|may i have|what is your)\b[^.?!\n]{0,60}"
    r"\b(?:provide|attach|share|send|give|specify|clarify|tell|confirm|have|let me know|check)\b"
    r"[^.?!\n]{0,60}\byour?\b|\bif you (?:can|could) (?:provide|share|give|tell)\b"
    r"|\bi(?:'ll| will)? need (?:to (?:gather|collect|have|know)|some|a few|more|your)\b"
)
# How an agent announces what it does next, and asks to wait; in English.
_SOFT = frozenset(("promise", "delay", "accept", "thanks", "leave"))
_WILL = re.compile(
    r"\b(?:i(?:'ll| will| am going to|'m going to)|let me(?! know)|let's|we(?:'ll| will)|i(?:'m| am)"
    r" (?:currently |now |just )?(?:checking|retrieving|fetching|verifying|looking|processing|working|getting))\b"
)
_WAITS = re.compile(
    r"\b(?:wait|hold on|(?:a|one) moment|shortly|bear with|patience|as soon as|in a minute|right away|once i have)\b"
)
# How an agent says what it will do itself, and how anybody speaks of what is to come; in English and Chinese.
_I_WILL = re.compile(r"\bi(?:'ll| will| shall| am going to|'m going to| plan to)\b|我们?[将会]")
_TO_COME = re.compile(
    r"\b(?:will|shall|would|going to|we (?:need to|can|should)|let's|let us)\b|'ll\b|[将会]"
)
# Share of the instruction's words in a turn that promises it. Shares of sentences that say what the speaker will do:
# the first is enough, the second if less than the last share of its words are new and in sentences on the present.
_COVERED, _PLANNED, _PARTLY_PLANNED, _NEW_BESIDE = 0.75, 0.5, 0.2, 0.2
# A tool call that is written instead of made.
_TAGGED = r"<\s*/?\s*(?:tool_calls?|function[-_]calls?|tool_use|invoke)\b"
_CALLED = (
    r"\{\s*\"(?:name|function|tool|action)\"\s*:\s*\"[\w.-]+\"\s*,"
    r"\s*\"(?:arguments|parameters|args|input|action_input|kwargs)\"\s*:\s*[{\"]"
)
CALL = re.compile(f"{_TAGGED}|{_CALLED}")
_TAG = re.compile(r"<[^<>]*>|```\w*")
_ANSWERED = 2  # turns of a question and its answer
_UNSURE = 0.49  # highest confidence of a candidate
_UNLIKELY = 0.39  # highest confidence of what is none
_DOUBTFUL = 0.1  # confidence below which a turn is not even a doubtful finding
_ECHOED = 0.5  # share of an instruction, input included, that an echo of it says
_LONGEST_OPENING, _CHEER = 16, 3  # words of a sentence that announces an echo, and of one such as "Great!"


def detect_failure(behaviour: Behaviour) -> Callable[[SessionReading], Iterator[Finding]]:
    """Return the detector of one of the four."""
    if behaviour == LOOP:
        return _detect_loops

    def detect(reading: SessionReading) -> Iterator[Finding]:
        if behaviour not in OF_INSTRUCTIONS or reading.has_instructor:
            yield from detect_turns(reading, reading.detected, behaviour)

    return detect


def detect_turns(
    reading: SessionReading, detected: detector.DetectedConversation, behaviour: Behaviour
) -> Iterator[Finding]:
    """Yield the turns that show ``behaviour`` by the heads of a model."""
    for head in filter(lambda head: head.behaviour == behaviour, detected.model.heads):
        context, surroundings = reading.find_context(head), detector.Surroundings(detected, head)
        for position, view in enumerate(reading.views):
            if not head.applies_to(detected.turns[position]):
                continue
            rule = _find_marker(reading, view) if behaviour == FLIP else None
            if behaviour == REPETITION and is_echo(detected, position):
                rule = view.body, "it is the instruction"
            if rule is not None:
                yield reading.make_finding(view, behaviour, 1.0, *rule)
                continue
            promises = behaviour == FLAKE and (
                _promises_only(detected, position) or (reading.is_marked and _plans_only(detected, position))
            )
            shown = detected.is_shown(head, position)
            score = -inf if context is None else context.score(surroundings.make_row(position))
            sure = context is not None and score >= context.sure
            if not (shown or promises or sure) and reading.least >= detector.LIKELY:
                continue
            # An agent that asks for what is missing does not put the work off.
            if behaviour == FLAKE and _ASKS_MATERIAL.search(detected.turns[position].prose):
                promises = False
            alone = head.calibrate(detected.score(head, position))
            confidence = _weigh(reading, behaviour, position, alone)
            if context is not None:
                confidence = _join_opinions(confidence, context, score)
                agree = alone >= _FLIP_OF_BOTH and sure
                if behaviour == FLIP and _is_doubtful_flip(reading, position, agree=agree):
                    confidence = min(confidence, _UNSURE)
            if promises:
                confidence = max(confidence, _SURE_FLAKE)
            if confidence >= max(_DOUBTFUL, reading.least):
                reason, quote = detected.explain(head, position) if reading.explains else ("", "")
                if promises and not shown:
                    reason = "it only promises what was asked"
                yield reading.make_finding(view, behaviour, confidence, _find_quote(view, quote), reason)


def _join_opinions(confidence: float, context: detector.ContextHead, score: float) -> float:
    """Return the confidence of both: what either is sure of counts; what the second doubts is no candidate."""
    second = context.calibrate(score)
    if score >= context.sure:
        return max(confidence, second, detector.LIKELY)
    if confidence >= detector.LIKELY:
        return confidence
    if score >= context.possible:
        return min(max(confidence, second, detector.POSSIBLE), _UNSURE)
    return min(confidence, _UNLIKELY)


def _is_doubtful_flip(reading: SessionReading, position: int, *, agree: bool) -> bool:
    """Return True in a role-play without markers, unless both models are sure that a user offers help or awaits orders.

    Very small models leave the markers out, and much of what they write is neither instruction nor answer.
    """
    sentences = reading.detected.turns[position].sentences
    serves = agree and any("serve" in sentence.acts for sentence in sentences)
    return not (reading.is_marked or reading.session.provenance.is_imported or serves)


def _promises_only(detected: detector.DetectedConversation, position: int) -> bool:
    """Return True if each sentence of a turn promises, and mostly in the words of the instruction.

    So does a turn that only announces what its speaker will do, and asks to wait or writes a tool call.
    """
    turn = detected.turns[position]
    return _asks_to_wait(detected, position) or (
        bool(turn.sentences)
        and not turn.has_code
        and all("promise" in sentence.acts for sentence in turn.sentences)
        and detected.describe(position)["said_before_asked"] >= _ASKED_SHARE
        and not detected.describe(position)["new_numbers"]
    )


def _plans_only(detected: detector.DetectedConversation, position: int) -> bool:
    """Return True if a turn makes a promise of the instruction, and few of its sentences, or none that is new, do more.

    Measured where turns have the markers of the protocol. There, long turns are flakes, too.
    """
    turn, before = detected.turns[position], detected.turns[max(0, position - 1)]
    features = detected.describe(position)
    promises = features["promise_share"] >= _PARTLY_PLANNED and features["covers_asked"] >= _COVERED
    if not promises or turn.has_code or before.is_done:
        return False
    planned = sum(bool(_I_WILL.search(sentence.text)) for sentence in turn.sentences) / len(turn.sentences)
    others = [sentence.stems for sentence in turn.sentences if not _TO_COME.search(sentence.text)]
    new = set(chain.from_iterable(others)).difference(before.stems)
    return planned >= _PLANNED or (
        planned >= _PARTLY_PLANNED and len(new) < _NEW_BESIDE * len(set(turn.stems))
    )


def _separate_call(turn: ReadTurn) -> tuple[ReadTurn, bool]:
    """Return a turn of the assistant without the tool call that it writes, and whether it writes one."""
    text = turn.text
    call = CALL.search(text) if "{" in text or "<" in text else None
    if call is None:
        return turn, False
    return read_turn(_TAG.sub(" ", text[: call.start()] + text[text.rfind("}") + 1 :]), by_user=False), True


def _asks_to_wait(detected: detector.DetectedConversation, position: int) -> bool:
    turn, calls = _separate_call(detected.turns[position])
    known = detected.turns[position - 1].numbers if position else frozenset[str]()
    return (
        all(_is_soft(sentence) and not sentence.asks for sentence in turn.sentences)
        and any(_announces_act(sentence) for sentence in turn.sentences)
        and (calls or _WAITS.search(turn.prose) is not None)
        and not turn.has_code
        and turn.numbers <= known
    )


def _announces_act(sentence: Sentence) -> bool:
    return "promise" in sentence.acts or _WILL.search(sentence.text) is not None


def _is_soft(sentence: Sentence) -> bool:
    """Return True if a sentence promises, thanks, asks to wait or is a short courtesy."""
    return (
        not _SOFT.isdisjoint(sentence.acts)
        or _announces_act(sentence)
        or _WAITS.search(sentence.text) is not None
        or (len(sentence.stems) <= _CHEER and not sentence.has_number)
    )


def _weigh(reading: SessionReading, behaviour: Behaviour, position: int, confidence: float) -> float:
    """Return the confidence as real text allows it: of what does not count, less than one half.

    The detector learned from invented conversations, whose turns are a sixth as long as those of real models. From each
    limit on, findings on real text were mostly right.
    """
    detected = reading.detected
    turn, features = detected.turns[position], detected.describe(position)
    is_long = len(turn.stems) > _SHORT
    if behaviour == FLIP:
        # Without markers, a customer's manners look like a flip.
        counts = confidence >= (detector.LIKELY if reading.is_marked else _FLIP_WITHOUT_MARKERS)
    elif behaviour == REPETITION:
        if _goes_round(detected, position):
            return confidence if confidence >= _SURE_ROUND else min(confidence, _UNSURE)
        # A real model begins with the instruction, and then solves it.
        if features["new_numbers"] or features["new_words"] > _MORE_NEW or is_long:
            return 0.0
        few_new = 0 if reading.session.provenance.is_imported else _FEW_NEW
        counts = confidence >= _SURE_REPETITION and features["new_words"] <= few_new
    elif behaviour == FLAKE:
        if is_long and not _I_WILL.search(turn.prose):
            return 0.0
        # After the done token, courtesy is all that is left to say.
        may_be = not (is_long or (position and detected.turns[position - 1].is_done))
        counts = may_be and confidence >= _SURE_FLAKE and not _ASKS_MATERIAL.search(turn.prose)
    else:
        return confidence
    return confidence if counts else min(confidence, _UNSURE)


def _goes_round(detected: detector.DetectedConversation, position: int) -> bool:
    """Return True if a long turn says few words over and over, and hardly one that the instruction does not have.

    So do very small models; their numbers are those of a list.
    """
    if not position:
        return False
    turn, before = detected.turns[position], detected.turns[position - 1]
    # Of scripts without spaces, a stem is a pair of characters.
    words = [stem for stem in turn.stems if len(stem) > 2 and not stem.isdigit()]
    if not before.instructs or len(words) < _MANY:
        return False
    said = set(words)
    return len(said) <= _FEW_SHARE * len(words) and len(said.difference(before.stems)) <= _FEW_OTHERS


def is_echo(detected: detector.DetectedConversation, position: int) -> bool:
    """Return True if a turn says the instruction before it word for word, and nothing else but an announcement."""
    if not position:
        return False
    turn, before = detected.turns[position], detected.turns[position - 1]
    if turn.by_user or turn.has_code > before.has_code:
        return False
    # Of other programs' users nobody knows where they instruct: a question is a request in any case.
    if not (before.instructs or any(sentence.asks for sentence in before.sentences)):
        return False
    turn, _ = _separate_call(turn)
    asked = [sentence.stems for sentence in before.sentences if sentence.stems]
    said = [sentence for sentence in turn.sentences if sentence.stems]
    while said and said[0].stems not in asked and _announces(said[0]):
        del said[0]
    if not said or any(sentence.stems not in asked for sentence in said):
        return False
    again = [sentence.stems for sentence in said]
    return sum(len(stems) for stems in asked if stems in again) > _ECHOED * sum(map(len, asked))


def _announces(sentence: Sentence) -> bool:
    """Return True if a sentence leads over to what follows it ("Great! Here's the next instruction:")."""
    words = len(sentence.stems)
    return words <= _LONGEST_OPENING and (sentence.text.endswith((":", "：")) or words <= _CHEER)


def is_failure(reading: SessionReading, view: TurnView) -> bool:
    """Return True if a turn shows one of the four."""
    detected, position = reading.detected, view.position
    return is_echo(detected, position) or any(
        detected.is_shown(head, position)
        for head in detected.model.heads
        if head.applies_to(detected.turns[position])
    )


def _detect_loops(reading: SessionReading) -> Iterator[Finding]:
    """Yield the turns from the fourth of a loop on; as candidates if the loop is not sure."""
    detected = reading.detected
    head = detected.model.get_head(LOOP)
    runs = count_void_turns(detected)
    repeats = count_repeats(detected.turns) if any(runs) else []
    for position, run in enumerate(runs):
        if run < SHORTEST_LOOP:
            continue
        begin = position - run + 1
        end = next((later for later in range(position + 1, len(runs)) if not runs[later]), len(runs))
        scores = [detected.score(head, turn) for turn in range(begin, end)]
        sure = is_sure(detected, range(begin, end)) or max(repeats[begin:end]) >= SHORTEST_LOOP
        confidence = round(sum(map(head.calibrate, scores)) / len(scores), 2)
        confidence = (
            max(confidence, detector.LIKELY) if sure else min(max(confidence, detector.POSSIBLE), _UNSURE)
        )
        if confidence < reading.least:
            continue
        reason, quote = detected.explain(head, position) if reading.explains else ("", "")
        reason = f"nothing new since turn {begin + 1}" + (f"; {reason}" if reason else "")
        view = reading.views[position]
        yield reading.make_finding(view, LOOP, confidence, _find_quote(view, quote), reason)


def _find_marker(reading: SessionReading, view: TurnView) -> tuple[str, str] | None:
    """Return the words by which a turn takes the other's place in the protocol, and the reason; None if not found.

    What a user gives as its input is not a flip.
    """
    if view.by_user:
        turn = reading.detected.turns[view.position]
        if turn.gives_input:
            return None
        if turn.solves:
            return view.turn.text, "a line begins with “Solution:”"
        if turn.asks_next and not _PREPARES.search(turn.prose):
            return view.turn.text.rstrip().rpartition("\n")[2], "it asks for the next instruction"
        if _NAMES_ONE.search(turn.prose) and (asks := _ASKS_FOR_ONE.search(turn.prose)):
            return _find_quote(view, asks[0].lstrip(".!?:\n ")), "it asks for an instruction"
        return None
    marker = find_instruction(view.turn.text, reading.session.provenance.language)
    if marker is None or view.turn.text[: marker.start()].rpartition("\n")[2].strip(" \t>#*_-"):
        return None
    return view.turn.text[marker.start() :], "a line begins with “Instruction:”"


def _find_quote(view: TurnView, sentence: str) -> str:
    """Return a sentence as the turn writes it, from a sentence in lower case; all of the turn if not found."""
    text = view.turn.text
    # The number of a list's item shows nothing.
    says = any(map(str.isalpha, sentence))
    begin = text.lower().replace("’", "'").find(sentence) if says else -1
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
    model: detector.DetectorModel

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
    what = f"The learned behaviour {name!r} cannot be read"
    try:
        with explain_os_errors(what, path, "Train it with: bactrian behaviours train DATA.jsonl"):
            model = detector.read_model(path.read_text("utf-8"))
        return LearnedBehaviour(str(model.about["code"]), str(model.about["description"]), model)
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
        (stage / path.name).write_text(detector.write_model(replace(learned.model, about=about)), "utf-8")
    return path


def _locate_learned(code: str) -> Path:
    return find_data_folder() / "behaviours" / f"{code}.json"
