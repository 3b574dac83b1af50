"""The behaviours that analyses detect: those that rules find, and those that code of users and packages finds.

A package offers a behaviour under the entry-point group ``bactrian.behaviours``: a function of a turn, or an object
or a class with ``detect``.
"""

from __future__ import annotations

import re
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cache
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, cast

from bactrian.analyze import learned
from bactrian.analyze.code_runs import CODE_FAILS, DEFINITION, CodeRunner
from bactrian.detect.detector import LIKELY, POSSIBLE
from bactrian.errors import InputError, explain_own_errors
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.files.toml import suggest_name
from bactrian.protocol.fences import is_blank
from bactrian.protocol.markers import DONE, find_instruction, identify_language, strip_code
from bactrian.records.run import BEHAVIOURS, LONGEST_QUOTE, Behaviour, Finding, FindingKey
from bactrian.records.session import Session, find_kind
from bactrian.records.turn import Instruction, Turn

# The behaviours that rules find; ``behaviours.toml`` says what each is, ``rule_checks.toml`` has their words.


@cache
def _load_words() -> Mapping[str, Any]:
    return tomllib.loads(resources.files("bactrian.analyze").joinpath("rule_checks.toml").read_text("utf-8"))


@cache
def _load_pattern(name: str) -> re.Pattern[str]:
    return re.compile("".join(line.strip() for line in _load_words()[name].splitlines()))


# Empty turn.


Evidence = tuple[float, str]  # the confidence that a turn shows a behaviour, and the words that show it


def find_emptiness(_reading: learned.SessionReading, view: learned.TurnView) -> Evidence | None:
    """Find that a turn says nothing."""
    return (1.0, view.turn.text) if _is_empty(view) else None


def _is_empty(view: learned.TurnView) -> bool:
    return not view.is_done and is_blank(view.body, by_user=view.by_user)


# Missing marker.


def find_missing_marker(reading: learned.SessionReading, view: learned.TurnView) -> Evidence | None:
    """Find that the protocol cannot read a turn of a role-play."""
    if not reading.role_play or view.turn.said is not None or view.is_done or _is_empty(view):
        return None
    form = _load_pattern("instruction_form" if view.by_user else "solution_form")
    return 0.4 if form.search(view.plain) else 1.0, view.turn.text


# Refusal.


_OPENING = 400  # characters in which a refusal must begin
_LONGEST_REST = 500  # characters after which the rest is taken for work
# Praise such as "I cannot recommend it enough", which is no refusal.
_PRAISES = re.compile(r"\b(?:enough|stress|overstate|ignore|forget|help (?:but|\w+ing))\b")


def find_refusal(_reading: learned.SessionReading, view: learned.TurnView) -> Evidence | None:
    """Find that a turn declines."""
    if view.turn.finish == "content_filter":
        return 1.0, view.turn.text
    if isinstance(view.turn.said, Instruction):
        return None
    opening = view.body[:_OPENING].lower()
    if not any(map(opening.__contains__, _load_words()["refusal_hints"])):
        return None
    prose = strip_quotations(opening)
    match = _load_pattern("refusal").search(prose)
    if match is None or _PRAISES.search(prose, match.start()) or prose.count(". ", 0, match.start()) > 1:
        return None
    rest = view.body[match.end() :]
    goes_on = len(rest) > _LONGEST_REST or any(
        _load_pattern(name).search(rest.lower()) for name in ("asks_for_material", "still_works")
    )
    return 0.4 if goes_on else 0.9, view.body[match.start() :]


# Truncated turn.


_SHORTEST = 60  # Characters; no text that is shorter was cut at a limit
_ENDED = ".!?…。！？।؟:\"'”’»」)]}>`*_|~$%;"
_OPEN = re.compile(r"(?:[(\[{,，、=+]|[–—-])\Z")
_FENCE_LINE = re.compile(r"^[ \t]*(```|~~~)", re.MULTILINE)
_NUMBER = re.compile(r"(\d{1,2})[.)]")
_SENTENCES = re.compile(r"[a-zà-ÿ)\"”][.!?]\s+[A-ZÀ-Þ\"“]")
_LIST_ITEM = re.compile(r"\s*(?:[-*•#>|]|\d+[.)])")
_FEWEST_WORDS = 4


def find_truncation(_reading: learned.SessionReading, view: learned.TurnView) -> Evidence | None:
    """Find that a turn is cut off."""
    confidence = _measure_truncation(view)
    return (confidence, view.turn.text.rstrip()[-60:]) if confidence else None


def _measure_truncation(view: learned.TurnView) -> float:
    """Return the confidence that a turn is cut off."""
    if view.turn.finish == "length":
        return 1.0
    text = view.turn.text.rstrip()
    if len(text) < _SHORTEST or view.is_done:
        return 0.0
    if "```" in text and len(_FENCE_LINE.findall(text)) % 2:
        return 0.8
    if text[-1] in _ENDED:
        return 0.8 if _ends_with_number(text) else 0.0
    last = text[text.rfind("\n") + 1 :]
    # Code, and text after the marker of the input, end in other ways than prose.
    if view.plain.rstrip() != text or "=" in last[:-1]:
        return 0.0
    words = last.split()
    if len(words) < _FEWEST_WORDS:
        return 0.0
    if _OPEN.search(last) or words[-1].lower() in _load_words_in_need():
        return 0.8
    return 0.6 if _is_cut_prose(last) else 0.0


@cache
def _load_words_in_need() -> frozenset[str]:
    return frozenset(_load_words()["needs_another"].split())


def _is_cut_prose(line: str) -> bool:
    """Return True if a line contains whole sentences and then one without an end."""
    if not line[-1].isalpha() or _LIST_ITEM.match(line) or "://" in line:
        return False
    ends = [match.end() - 1 for match in _SENTENCES.finditer(line)]
    return bool(ends) and len(line[ends[-1] :].split()) >= _FEWEST_WORDS


def _ends_with_number(text: str) -> bool:
    """Return True if the last line is a number of a list that lacks its item."""
    before, _, last = text.rpartition("\n")
    number = _NUMBER.fullmatch(last.strip())
    if number is None or not before:
        return False
    return re.search(rf"^\s*{int(number[1]) - 1}[.)] ", before, re.MULTILINE) is not None


# Near-duplicate turn.


_FEWEST_REPEATED = 6  # words
_ALIKE = 0.9  # least similarity in order, from 0 to 1 (difflib's ratio, over words)
# Words; of longer turns the different words are compared, in any order: that takes no longer than reading.
_LONGEST = 400
_DIGIT = re.compile(r"\d")
_SHARED = 0.8  # share of different words in common, below which the order is not compared


class _TurnWords(NamedTuple):
    """The words of a turn, in order and as a set."""

    listed: list[str]
    different: set[str]


def detect_near_duplicates(reading: learned.SessionReading) -> Iterator[Finding]:
    """Yield turns that their speaker has almost said before."""
    # Most turns have new words, so comparing with the words of all earlier turns is usually enough.
    earlier: defaultdict[tuple[bool, frozenset[str]], tuple[list[_TurnWords], set[str]]]
    earlier = defaultdict(lambda: ([], set()))
    for view in reading.views:
        listed = view.words
        if len(listed) < _FEWEST_REPEATED:
            continue
        words = _TurnWords(listed, set(listed))
        # Turns that differ in a word with a digit are no duplicates.
        numbers = frozenset(filter(_DIGIT.search, [word for word in words.different if not word.isalpha()]))
        turns, known = earlier[view.by_user, numbers]
        if len(words.different & known) >= _SHARED * len(words.different):
            likeness = max((_measure_likeness(words, other) for other in turns), default=0.0)
            if likeness >= _ALIKE:
                yield reading.make_finding(view, "near_duplicate", round(likeness, 2), view.body)
        turns.append(words)
        known |= words.different


def _measure_likeness(turn: _TurnWords, other: _TurnWords) -> float:
    """Return the similarity, from 0 to 1, of two turns with the same numbers; 0 as soon as they are known to differ."""
    left, right = turn.different, other.different
    if not _SHARED * len(left) <= len(right) <= len(left) / _SHARED:
        return 0.0
    shared = len(left & right)
    if shared < _SHARED * (len(left) + len(right) - shared):
        return 0.0
    if turn.listed == other.listed:
        return 1.0
    if max(len(turn.listed), len(other.listed)) > _LONGEST:
        return shared / len(left | right)
    return SequenceMatcher(None, turn.listed, other.listed, autojunk=False).ratio()


# Done too early.


def find_early_done(reading: learned.SessionReading, view: learned.TurnView) -> Evidence | None:
    """Find that a turn has the done token before anything was solved, or goes on after it."""
    if not view.by_user or DONE not in view.turn.text:
        return None
    answers = (earlier for earlier in reading.views[: view.position] if not earlier.by_user)
    if view.is_done and not any(_is_work(reading, answer) for answer in answers):
        return 0.9, view.turn.text
    return (0.7, view.turn.text) if _goes_on(view) else None


def _is_work(reading: learned.SessionReading, view: learned.TurnView) -> bool:
    refusal = find_refusal(reading, view)
    return not (
        _is_empty(view)
        or find_instruction(view.turn.text)
        or (refusal is not None and refusal[0] >= LIKELY)
        or learned.is_failure(reading, view)
        or not reading.detected.describe(view.position)["work_sentences"]
    )


def _goes_on(view: learned.TurnView) -> bool:
    """Return True if the token ends a turn that instructs, not merely quoted in the middle of a sentence or in code."""
    if not isinstance(view.turn.said, Instruction):
        return False
    return any(line.strip(" *_`.") == DONE for line in strip_code(view.turn.text).splitlines())


# No code.


_FENCED = re.compile(r"^[ \t]*(?:```|~~~)[^\n]*\n(?=[^\n]*\S)(?![ \t]*(?:```|~~~))", re.MULTILINE)
_CODE_IN_LINE = re.compile(r"`[^`\n]*[=(;{<>$][^`\n]*`")
_EXPLAINS = re.compile(
    r"\b(?:explain|describe|discuss|why|what is|what are|list|name|tell|summari[sz]e|compare)\b"
)
_ASKS_FOR_CODE = re.compile(
    r"\b(?:code|program|function|script|class|method|implement\w*|quer(?:y|ies)|algorithm|snippet)\b"
)


def find_missing_code(reading: learned.SessionReading, view: learned.TurnView) -> Evidence | None:
    """Find that a solution contains no code, where code is needed."""
    if not reading.session.provenance.needs_code or view.by_user or _is_empty(view):
        return None
    lines = f"\n{view.body}"
    if any(pattern.search(lines) for pattern in (_FENCED, _load_pattern("code_line"), _CODE_IN_LINE)):
        return None
    asked = view.asked.lower()
    return 0.6 if _EXPLAINS.search(asked) and not _ASKS_FOR_CODE.search(asked) else 0.9, view.body


# Self-answer.


_ANSWER = re.compile(r"\n[ \t>#*_-]*(?:solution|answer|response)[*_]*[ ]?:(?!\s*\n*\s*$)", re.IGNORECASE)
_ANSWER_INLINE = re.compile(r"input:[ \t*_]*none[.]?[ \t*_]+(?:solution|answer)[*_]*:", re.IGNORECASE)
_NEXT = re.compile(r"\bnext request\.?[*_\s]*\Z", re.IGNORECASE)
_INPUT = re.compile(r"^[ \t>#*_]*input[*_]*:[*_ \t]*(\S+)?", re.IGNORECASE | re.MULTILINE)
# A turn without any of these does not answer itself: a quick look.
_ANSWER_HINTS = ("solution", "answer", "response", "next request", "assistant")


def find_self_answer(reading: learned.SessionReading, view: learned.TurnView) -> Evidence | None:
    """Find that the AI user answers itself."""
    if not view.by_user:
        return None
    name = reading.session.assistant.name.lower()
    hinted = any(hint in view.lower for hint in _ANSWER_HINTS)
    if not (hinted or (len(name) > 2 and f"{name}:" in view.lower)):
        return None
    instruction = find_instruction(view.turn.text)
    return _find_answer(view.plain[instruction.end() :], name) if instruction else None


def _find_answer(rest: str, name: str) -> tuple[float, str] | None:
    """Return the confidence that an answer follows an instruction, and the answer; None if not found."""
    answer = _ANSWER.search(rest) or _ANSWER_INLINE.search(rest)
    if answer is not None:
        # An input of its own lines, between the instruction that is about it and the end, may contain the word.
        input_line = _INPUT.search(rest[: answer.start() + 1])
        handed_over = (
            input_line is not None
            and (input_line[1] or "").strip("*_.").lower() not in ("none", "n/a")
            and _load_pattern("about_solution").search(rest[: input_line.start()]) is not None
        )
        return 0.4 if handed_over else 0.9, rest[answer.start() :]
    speaker = re.search(rf"\n[ \t>#*_-]*(?:(?:ai )?assistant|{re.escape(name)})[*_]*:", rest, re.IGNORECASE)
    request = speaker or _NEXT.search(rest)
    return None if request is None else (0.8, rest[request.start() :])


# Control text.


_TEMPLATE = re.compile(
    r"<\|(?:im_(?:start|end)|eo[tm]_id|end(?:_?of_?text)?|(?:start|end)_header_id|assistant|user|system)\|>"
    r"|<(?:start|end)_of_turn>|\[/?INST\]|<</?SYS>>"
)
_DONE_WORD = DONE.strip("<>")
_ASKS_FOR_CALLS = re.compile(
    r"\b(?:json|api|schema|function call|tool call|chat template|special token)", re.IGNORECASE
)


def find_control_text(_reading: learned.SessionReading, view: learned.TurnView) -> Evidence | None:
    """Find words for a program in what is said: a tool call, a token of a chat template, the other's done token."""
    text = view.turn.text
    if not any(sign in text for sign in ("<", '"', "[", _DONE_WORD)):
        return None
    match = learned.CALL.search(text) or _TEMPLATE.search(view.plain)
    if match is not None:
        return 0.4 if _ASKS_FOR_CALLS.search(view.asked) else 0.9, text[match.start() :]
    says_done = not view.by_user and any(
        line.strip(" <>*_`.") == _DONE_WORD for line in view.plain.splitlines()
    )
    return (0.9, DONE) if says_done else None


# Wrong language.


def find_wrong_language(reading: learned.SessionReading, view: learned.TurnView) -> Evidence | None:
    """Find that a turn is in another language."""
    language = identify_language(reading.session.provenance.language)
    # The words of the body are known; where they are the language's, no other test is needed.
    if view.body.isascii() and view.plain is view.turn.text and not _compare_words(view.words, language):
        return None
    # The markers are English words in every language; what is said is cut out only where it matters.
    if not (
        detect_other_language(view.lower, language)
        and detect_other_language(strip_code(view.body).lower(), language)
    ):
        return None
    asked = view.lower if view.by_user else view.asked.lower()
    return None if _load_pattern("about_language").search(asked) else (0.9, view.turn.text)


# Language identification by script and by common words: a coarse check of whole turns that takes microseconds.


# Texts with fewer words are not identified; in Chinese and Japanese, two characters count as a word.
_FEWEST_FOR_LANGUAGE = 8
_SCRIPTS = {
    "japanese": re.compile(r"[\u3040-\u30ff]"),
    "chinese": re.compile(r"[\u3400-\u9fff]"),
    "korean": re.compile(r"[\uac00-\ud7af]"),
    "russian": re.compile(r"[\u0400-\u04ff]+"),
    "arabic": re.compile(r"[\u0600-\u06ff]+"),
    "hindi": re.compile(r"[\u0900-\u097f]+"),
}
_CHARACTERS_PER_WORD = {"japanese": 2, "chinese": 2, "korean": 3}
_LATIN = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_ENOUGH = 0.16  # Minimum share of common words that identifies a language
# Minimum ratio of this share to that of the expected language, because languages share words.
_CLEARLY = 1.5


@cache
def _load_common_words() -> Mapping[str, frozenset[str]]:
    return {language: frozenset(words.split()) for language, words in _load_words()["common_words"].items()}


def detect_other_language(text: str, language: str) -> str | None:
    """Return the language of ``text`` if it differs from ``language``; None if it is the same or unclear.

    Args:
        text: In lower case, without code.
        language: A name from :func:`~bactrian.protocol.markers.identify_language`.
    """
    if not text.isascii():
        script = _detect_script(text)
        if script is not None:
            # Cyrillic, Devanagari and Arabic are used by several languages.
            known = language in _load_common_words() or language in _SCRIPTS
            return script if known and script != language else None
    return _compare_words(text.split(), language)


def _compare_words(words: list[str], language: str) -> str | None:
    """Return the language of ``words`` if it clearly differs from ``language``."""
    if len(words) < _FEWEST_FOR_LANGUAGE:
        return None
    expected = _measure_share(words, language)
    if language == "english" and expected >= _ENOUGH:
        return None
    # For an unknown language, only English can be recognized as different.
    common = _load_common_words()
    known = language in common or language in _SCRIPTS
    others = [name for name in common if name != language] if known else ["english"]
    best = max(others, key=lambda name: _measure_share(words, name))
    share = _measure_share(words, best)
    return best if share >= max(_ENOUGH, _CLEARLY * expected) else None


def _measure_share(words: list[str], language: str) -> float:
    common = _load_common_words().get(language)
    return sum(map(common.__contains__, words)) / len(words) if common else 0.0


def _detect_script(text: str) -> str | None:
    """Return the language whose script most of ``text`` uses; None for Latin script or too little text."""
    if max(text) < "\u0400":
        return None
    counts = {
        language: sum(map(len, pattern.findall(text)))
        if _CHARACTERS_PER_WORD.get(language, 0) == 0
        else len(pattern.findall(text))
        for language, pattern in _SCRIPTS.items()
    }
    kana = counts["japanese"]
    if kana and kana > 0.1 * (kana + counts["chinese"]):
        counts["japanese"] += counts.pop("chinese")
    best = max(counts, key=lambda language: counts[language])
    latin = sum(map(len, _LATIN.findall(text))) - sum(counts.values())
    words = counts[best] / _CHARACTERS_PER_WORD.get(best, 5)
    return best if words >= _FEWEST_FOR_LANGUAGE and words > latin / 5 else None


_QUOTED = re.compile(r"\"[^\"\n]{1,400}\"|“[^”\n]{1,400}”|«[^»\n]{1,400}»|「[^」\n]{1,400}」")


def strip_quotations(text: str) -> str:
    """Replace text in quotation marks with spaces, so that positions stay the same."""
    if '"' not in text and text.isascii():
        return text
    return _QUOTED.sub(lambda quoted: " " * len(quoted[0]), text)


# All rules.


def _detect_turns(
    behaviour: Behaviour, find: Callable[[learned.SessionReading, learned.TurnView], Evidence | None]
) -> Callable[[learned.SessionReading], Iterator[Finding]]:
    def detect(reading: learned.SessionReading) -> Iterator[Finding]:
        for view in reading.views:
            if evidence := find(reading, view):
                yield reading.make_finding(view, behaviour, *evidence)

    return detect


RULES: Mapping[Behaviour, Callable[[learned.SessionReading], Iterator[Finding]]] = {
    "missing_marker": _detect_turns("missing_marker", find_missing_marker),
    "empty_turn": _detect_turns("empty_turn", find_emptiness),
    "truncated_turn": _detect_turns("truncated_turn", find_truncation),
    "wrong_language": _detect_turns("wrong_language", find_wrong_language),
    "refusal": _detect_turns("refusal", find_refusal),
    "near_duplicate": detect_near_duplicates,
    "early_done": _detect_turns("early_done", find_early_done),
    "self_answer": _detect_turns("self_answer", find_self_answer),
    "no_code": _detect_turns("no_code", find_missing_code),
    "control_text": _detect_turns("control_text", find_control_text),
}


# The behaviours that analyses detect: the built-in ones, and those of users and of other packages by their code.


# The detector of each behaviour, which yields its findings in a session.
DETECTORS: Mapping[Behaviour, Callable[[learned.SessionReading], Iterator[Finding]]] = MappingProxyType(
    {**{behaviour: learned.detect_failure(behaviour) for behaviour in learned.PAPER}, **RULES}
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

    def detect(self, reading: learned.SessionReading) -> Iterator[Finding]:
        """Yield the findings in a session.

        Raises:
            InputError: the function failed.
        """
        session = reading.session
        what = f"The behaviour {self.code!r} failed in session {session.id}"
        with explain_own_errors(what, self.code, "Fix the function."):
            if self.detector is not None:
                turns = {turn.number for turn in session.turns}
                for found in cast("Iterable[object]", self.detector.detect(session)):
                    if (
                        not isinstance(found, Finding)
                        or found.session != session.id
                        or found.turn not in turns
                    ):
                        raise TypeError(f"{found!r:.200} is no finding in a turn of the session")
                    found.quote.encode()  # Raises an error if no file can hold it.
                    yield replace(found, behaviour=self.code)
                return
            for turn in session.turns:
                if evidence := self(turn):
                    quote = evidence if isinstance(evidence, str) else turn.text
                    yield Finding(session.id, turn.number, self.code, 1.0, quote.strip()[:LONGEST_QUOTE])


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
    return tuple(_find(code) for code in (*_list_registered(), *learned.list_learned()))


def _find(code: str) -> OwnBehaviour:
    """Return the behaviour with this code that is not built in, or that a file describes."""
    if code == CODE_FAILS:
        return OwnBehaviour(code, DEFINITION, detector=CodeRunner())
    if code in learned.list_learned() or code.endswith(".json"):
        behaviour = learned.load_learned(code)
        return OwnBehaviour(behaviour.code, behaviour.description, detector=behaviour)
    if code in _list_registered():
        loaded = load_plugin(GROUP, code)
        return replace(
            _read(cast("BehaviourLike", loaded() if isinstance(loaded, type) else loaded)), code=code
        )
    known = [*BEHAVIOURS, CODE_FAILS, *_list_registered(), *learned.list_learned()]
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
    reading = replace(learned.read_session(session), least=detected, explains=explain)
    if find_kind(session) == "talk":
        behaviours = [name for name in _OF_ANYONE if behaviours is None or name in behaviours]
    custom = find_installed() if custom is None else custom
    detectors = [DETECTORS[behaviour] for behaviour in (DETECTORS if behaviours is None else behaviours)]
    detectors += [behaviour.detect for behaviour in custom]
    findings = (finding for detect in detectors for finding in detect(reading))
    counted = (finding for finding in findings if answers.get(finding.key, finding.confidence >= least))
    return tuple(sorted(counted, key=lambda finding: finding.turn))
