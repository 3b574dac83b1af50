"""User-defined endings: a function, an object, a code, or an entry point of another package."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast, overload

from bactrian.errors import BactrianError, InputError
from bactrian.files.plugins import load_plugin
from bactrian.play.endings.chosen import ChosenEndings, NamedEnding
from bactrian.play.endings.rules import (
    AssistantInstructs,
    EndpointRefused,
    MaxMessages,
    RepeatLoop,
    Rule,
    TaskDone,
    UserDoesNotInstruct,
    default_endings,
    paper_endings,
)
from bactrian.recipes.ending_list import GROUP, parse_endings
from bactrian.records.ending import Ending
from bactrian.records.turn import Turn

BUILT_IN: dict[str, type[Rule]] = {
    "task_done": TaskDone,
    "refused": EndpointRefused,
    "assistant_instruct": AssistantInstructs,
    "user_no_instruct": UserDoesNotInstruct,
    "repeat_loop": RepeatLoop,
    "max_messages": MaxMessages,
}
"""The built-in endings by code."""
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")

EndingFunction = Callable[[Sequence[Turn]], bool | str | Ending | None]
"""Checks the turns so far. True or a text, the evidence, ends the session; False or None continues it."""
EndingLike = str | Rule | EndingFunction
"""A code, a rule, or a function of the turns."""


@dataclass(frozen=True, slots=True)
class OwnEnding:
    """An ending decided by a function. Calling it calls the function."""

    code: str
    """The ending's code in records, reports, filters and exports."""
    function: EndingFunction

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        """Return the ending that the turns trigger, or None to continue.

        Raises:
            InputError: the function failed.
        """
        try:
            found = self.function(turns)
        except BactrianError:
            raise
        except Exception as error:
            raise InputError(
                f"The ending {self.code!r} failed at turn {len(turns)}: {type(error).__name__}: {error}.",
                where=self.code,
                next="Fix the function; a stored session keeps its turns.",
            ) from error
        if found is None or found is False or isinstance(found, Ending):
            return found or None
        last = turns[-1]
        evidence = found if isinstance(found, str) else last.text
        return Ending(self.code, last.number, last.speaker, evidence.strip()[:500])


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


def read_endings(given: Iterable[EndingLike] | EndingLike) -> tuple[tuple[Rule, ...], bool]:
    """Return the rules that ``given`` names or contains, and whether the paper's endings replace the default ones.

    Names are parsed by :func:`~bactrian.recipes.ending_list.parse_endings`: ``"paper"``, ``"camel"``, ``"default"``, or
    codes with thresholds, which replace the default endings. Rules and functions are added to them.

    Raises:
        InputError: a name stands for no ending, or something is neither a name nor can be called.
    """
    if isinstance(given, str) or callable(given):
        listed: list[EndingLike] = [given]
    elif isinstance(cast("object", given), Iterable):
        listed = list(given)
    else:
        raise InputError(
            f"{given!r} is not a list of endings.", where="endings", next="Give codes, functions or rules."
        )
    names = ",".join(one for one in listed if isinstance(one, str))
    rules = tuple(_read(one) for one in listed if not isinstance(one, str))
    if names in ("", "default", "paper"):
        return rules, names == "paper"
    return (ChosenEndings(parse_endings(names)), *rules), False


def combine_endings(
    own: Sequence[Rule], *, paper: bool, limit: int, language: str | None = None
) -> tuple[Rule, ...]:
    """Return the chosen, the paper's or the default endings with ``own``, checked last but for the limit of messages.

    An item of ``own`` of the same class as a default ending replaces it.
    """
    usual = (paper_endings if paper else default_endings)(limit, language=language)
    for rule in own:
        if isinstance(rule, ChosenEndings):
            usual = tuple(
                OwnEnding(one.code, load_ending(one.code)) if isinstance(one, NamedEnding) else one
                for one in rule.build_rules(limit=limit, language=language)
            )
    codes = {find_code(rule): rule for rule in own if not isinstance(rule, ChosenEndings)}
    kept = [codes.pop(find_code(rule), rule) for rule in usual]
    return (*kept[:-1], *codes.values(), kept[-1])


def load_ending(code: str) -> EndingFunction:
    """Load the ending that an installed package registers under ``code``.

    Raises:
        InputError: it cannot be loaded or called.
    """
    found = load_plugin(GROUP, code)
    made = found() if isinstance(found, type) else found
    if not callable(made):
        raise InputError(
            f"The ending {code!r} cannot be called.", where=GROUP, next="Fix the package that registers it."
        )
    return cast("EndingFunction", made)


def _read(given: Rule | EndingFunction) -> Rule:
    if not callable(given):
        raise InputError(
            f"{given!r} is not an ending.",
            where="endings",
            next="Pass a name or a function of the turns.",
        )
    if type(given) in BUILT_IN.values() or isinstance(given, OwnEnding):
        return cast("Rule", given)
    return OwnEnding(_check(find_code(given)), given)


def _check(code: str) -> str:
    if not _CODE.fullmatch(code):
        raise InputError(
            f"{code!r} cannot be the code of an ending.",
            where="endings",
            next="Use lower-case letters, digits and underscores, a letter first.",
        )
    return code
