"""Endings that a user chooses: CAMEL's, lists of codes with thresholds, and functions of the user's own."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast, overload

from bactrian.errors import InputError, explain_own_errors
from bactrian.files.plugins import load_plugin
from bactrian.protocol.markers import DONE
from bactrian.recipes.parameters import GROUP, THRESHOLDS, EndingList, parse_endings
from bactrian.records.session import Ending
from bactrian.records.turn import Turn
from bactrian.roleplay import endings

# CAMEL's own rules, which look for substrings (its role-playing data script, as of November 2023).
#
# They serve for comparison. Two things are not copied. CAMEL asks the AI assistant once more after the done
# token; here the session ends. CAMEL's rule of repeated words sets its reason and continues; here it ends the
# session, and counts rounds that contain any of the words.


_INSTRUCTION = "Instruction:"
WORDS = ("goodbye", "good bye", "thank", "bye", "welcome", "language model")
"""A round that contains one of these, in either message, is a round of repetition."""


@dataclass(frozen=True, slots=True)
class SaysDoneToken:
    """Ends the session if the AI user's turn contains the done token anywhere."""

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        last = turns[-1]
        return (
            endings.make_ending("task_done", last) if last.speaker == "user" and DONE in last.text else None
        )


@dataclass(frozen=True, slots=True)
class LacksInstruction:
    """Ends the session if several AI user's turns in a row do not contain ``Instruction:``."""

    limit: int = 3

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        recent = endings.list_last("user", turns, self.limit)
        silent = bool(recent) and not any(_INSTRUCTION in turn.text for turn in recent)
        return endings.make_ending("user_no_instruct", turns[-1]) if silent else None


@dataclass(frozen=True, slots=True)
class HoldsInstruction:
    """Ends the session if several AI assistant's turns in a row contain ``Instruction:``."""

    limit: int = 1

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        recent = endings.list_last("assistant", turns, self.limit)
        instructs = bool(recent) and all(_INSTRUCTION in turn.text for turn in recent)
        return endings.make_ending("assistant_instruct", turns[-1]) if instructs else None


@dataclass(frozen=True, slots=True)
class RepeatWords:
    """Ends the session if several rounds in a row contain one of six words of courtesy."""

    rounds: int = 4

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        if turns[-1].speaker != "assistant" or len(turns) < 2 * self.rounds:
            return None
        texts = [turn.text.lower() for turn in turns[-2 * self.rounds :]]
        rounds = map(" ".join, zip(texts[::2], texts[1::2], strict=True))
        polite = all(any(word in texts for word in WORDS) for texts in rounds)
        return endings.make_ending("repeat_loop", turns[-1]) if polite else None


# Endings chosen one by one, with thresholds of their own.


@dataclass(frozen=True, slots=True)
class ChosenEndings:
    """The endings of a list, which replace the default ones."""

    listed: EndingList

    @property
    def code(self) -> str:
        """The list as text. It is part of a session's identity: a session with other endings is another session."""
        return self.listed.text

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        """Return the ending that the turns trigger, or None."""
        return endings.find_ending(self.build_rules(limit=40), turns)

    def build_rules(self, *, limit: int, language: str | None = None) -> tuple[endings.Rule, ...]:
        """Return the rules in their order, the endpoint's refusal first and the limit of messages last.

        A session ends at ``limit`` messages even if the list does not name that ending.
        """
        codes = [code for code in self.listed.codes if code not in ("refused", "max_messages")]
        rules = [self._build_rule(code, language) for code in codes]
        return (endings.EndpointRefused(), *rules, endings.MaxMessages(self.listed.max_messages or limit))

    def _build_rule(self, code: str, language: str | None) -> endings.Rule:
        count = dict(self.listed.thresholds).get(code) or THRESHOLDS.get(code) or 1
        substrings = self.listed.substrings
        match code:
            case "task_done":
                return SaysDoneToken() if substrings else endings.TaskDone(language=language)
            case "assistant_instruct":
                return HoldsInstruction(count) if substrings else endings.AssistantInstructs(language, count)
            case "user_no_instruct":
                return LacksInstruction(count) if substrings else endings.UserDoesNotInstruct(count)
            case "repeat_loop":
                return endings.RepeatLoop(count)
            case "repeat_words":
                return RepeatWords(count)
            case _:
                return OwnEnding(code, load_ending(code))


# User-defined endings: a function, an object, a code, or an entry point of another package.


# The built-in endings by code.
BUILT_IN: dict[str, type[endings.Rule]] = {
    "task_done": endings.TaskDone,
    "refused": endings.EndpointRefused,
    "assistant_instruct": endings.AssistantInstructs,
    "user_no_instruct": endings.UserDoesNotInstruct,
    "repeat_loop": endings.RepeatLoop,
    "max_messages": endings.MaxMessages,
}
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")

EndingFunction = Callable[[Sequence[Turn]], bool | str | Ending | None]
"""Checks the turns so far. True or a text, the evidence, ends the session; False or None continues it."""
EndingLike = str | endings.Rule | EndingFunction  # A code, a rule, or a function of the turns.


@dataclass(frozen=True, slots=True)
class OwnEnding:
    """An ending decided by a function. Calling it calls the function."""

    code: str  # The ending's code in records, reports, filters and exports.
    function: EndingFunction

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        """Return the ending that the turns trigger, or None to continue.

        Raises:
            InputError: the function failed.
        """
        what = f"The ending {self.code!r} failed at turn {len(turns)}"
        with explain_own_errors(what, self.code, "Fix the function; a stored session keeps its turns."):
            answer = self.function(turns)
        if answer is None or answer is False or isinstance(answer, Ending):
            return answer or None
        return endings.make_ending(self.code, turns[-1], answer if isinstance(answer, str) else None)


@overload
def ending(function: EndingFunction, /) -> OwnEnding: ...
@overload
def ending(code: str, /) -> Callable[[EndingFunction], OwnEnding]: ...
def ending(function: EndingFunction | str, /) -> OwnEnding | Callable[[EndingFunction], OwnEnding]:
    """Make an ending of a function, whose name is the ending's code in records, reports, filters and exports.

    The function receives the turns so far, at least one. True ends the session, and so does a text, which is kept as
    the evidence. Pass a code to use it instead of the name: ``@ending("polite")``.

    Example:
        >>> import bactrian as bt
        >>> @bt.ending
        ... def too_polite(turns):
        ...     return "thank you" in turns[-1].text.lower()
        >>> script = ["Instruction: Name a tea.\\nInput: None", "Solution: Sencha. Thank you!\\nNext request."]
        >>> session = bt.play("Choose a tea", model=bt.Scripted(script), specify=False, endings=[too_polite])
        >>> session.ending.code
        'too_polite'

    Raises:
        InputError: the code is not made of lower-case letters, digits and underscores.
    """
    if isinstance(function, str):
        code = function
        return lambda named: OwnEnding(_check(code), named)
    return OwnEnding(_check(find_code(function)), function)


def find_code(rule: object) -> str:
    """Return the code of a rule: its own, or its class name in lower case with underscores."""
    code = getattr(rule, "code", None)
    if isinstance(code, str):
        return code
    for known, kind in BUILT_IN.items():
        if type(rule) is kind:
            return known
    name = getattr(rule, "__name__", None) or type(rule).__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name)).lower()


def read_endings(endings: Iterable[EndingLike] | EndingLike) -> tuple[tuple[endings.Rule, ...], bool]:
    """Return the rules that ``endings`` names or contains, and whether the paper's endings replace the default ones.

    Names are parsed by :func:`~bactrian.recipes.parameters.parse_endings`: ``"paper"``, ``"camel"``, ``"default"``, or
    codes with thresholds, which replace the default endings. Rules and functions are added to them.

    Raises:
        InputError: a name stands for no ending, or something is neither a name nor can be called.
    """
    if isinstance(endings, str) or callable(endings):
        endings = [endings]
    elif not isinstance(cast("object", endings), Iterable):
        raise InputError(
            f"{endings!r} is not a list of endings.", option="endings", next="Give codes, functions or rules."
        )
    listed = list(endings)
    names = ",".join(item for item in listed if isinstance(item, str))
    rules: tuple[endings.Rule, ...] = ()
    for item in listed:
        if isinstance(item, str):
            continue
        if not callable(item):
            raise InputError(
                f"{item!r} is not an ending.",
                option="endings",
                next="Pass a name or a function of the turns.",
            )
        known = isinstance(item, OwnEnding) or type(item) in BUILT_IN.values()
        rules += (cast("endings.Rule", item) if known else OwnEnding(_check(find_code(item)), item),)
    if names in ("", "default", "paper"):
        return rules, names == "paper"
    return (ChosenEndings(parse_endings(names)), *rules), False


def combine_endings(
    chosen: Sequence[endings.Rule], *, paper: bool, limit: int, language: str | None = None
) -> tuple[endings.Rule, ...]:
    """Return the default, the paper's or the user's endings, and ``chosen``; only the limit of messages comes later.

    An item of ``chosen`` replaces a default ending of the same class.
    """
    usual = (endings.paper_endings if paper else endings.default_endings)(limit, language=language)
    for rule in chosen:
        if isinstance(rule, ChosenEndings):
            usual = rule.build_rules(limit=limit, language=language)
    codes = {find_code(rule): rule for rule in chosen if not isinstance(rule, ChosenEndings)}
    kept = [codes.pop(find_code(rule), rule) for rule in usual]
    return (*kept[:-1], *codes.values(), kept[-1])


def load_ending(code: str) -> EndingFunction:
    """Load the ending that an installed package registers under ``code``.

    Raises:
        InputError: it cannot be loaded or called.
    """
    loaded = load_plugin(GROUP, code)
    made = loaded() if isinstance(loaded, type) else loaded
    if not callable(made):
        raise InputError(
            f"The ending {code!r} cannot be called.", where=GROUP, next="Fix the package that registers it."
        )
    return cast("EndingFunction", made)


def _check(code: str) -> str:
    if not _CODE.fullmatch(code):
        raise InputError(
            f"{code!r} cannot be the code of an ending.",
            option="endings",
            next="Use lower-case letters, digits and underscores, a letter first.",
        )
    return code
