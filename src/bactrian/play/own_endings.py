"""Endings of the user's own: a function, an object, a code, or an entry point of another package."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast, overload

from bactrian.errors import BactrianError, InputError
from bactrian.files.plugins import list_plugins, load_plugin
from bactrian.files.toml import suggest_name
from bactrian.play.endings import (
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
from bactrian.records.ending import Ending
from bactrian.records.turn import Turn

GROUP = "bactrian.endings"
"""Entry points of other packages: an ending by its code."""
BUILT_IN: dict[str, type[Rule]] = {
    "task_done": TaskDone,
    "refused": EndpointRefused,
    "assistant_instruct": AssistantInstructs,
    "user_no_instruct": UserDoesNotInstruct,
    "repeat_loop": RepeatLoop,
    "max_messages": MaxMessages,
}
"""The endings of this program by code."""
PAPER = "paper"
"""Stands for the endings of the paper, in place of the default ones."""
_CODE = re.compile(r"[a-z][a-z0-9_]{0,63}")

EndingFunction = Callable[[Sequence[Turn]], bool | str | Ending | None]
"""Looks at the turns so far. True or a text, the evidence, ends the session; False or None lets it go on."""
EndingLike = str | Rule | EndingFunction
"""A code, a rule, or a function of the turns."""


@dataclass(frozen=True, slots=True)
class OwnEnding:
    """An ending that a function decides. Calling it calls the function."""

    code: str
    """Names the ending in records, reports, filters and exports."""
    function: EndingFunction

    def __call__(self, turns: Sequence[Turn]) -> Ending | None:
        """Return the ending that the turns so far call for, or None to go on.

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
                next="Mend the function; what was said is kept where the session is stored.",
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
    """The code of a rule: its own, or its name in lower case with underscores."""
    code = getattr(rule, "code", None)
    if isinstance(code, str):
        return code
    for known, kind in BUILT_IN.items():
        if type(rule) is kind:
            return known
    name = getattr(rule, "__name__", None) or type(rule).__name__
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name)).lower()


def read_endings(given: Iterable[EndingLike] | EndingLike) -> tuple[tuple[Rule, ...], bool]:
    """The rules that ``given`` names or holds, and whether the paper's endings are to be the others.

    Raises:
        InputError: a code stands for no ending, or something is neither a code nor can be called.
    """
    listed = [given] if isinstance(given, str) or callable(given) else list(given)
    paper = PAPER in listed
    rules = tuple(_read(one) for one in listed if one not in (PAPER, "default"))
    return rules, paper


def combine_endings(own: Sequence[Rule], *, paper: bool, limit: int) -> tuple[Rule, ...]:
    """The paper's or the default endings with ``own``, which are asked last but for the limit of messages.

    One of ``own`` that is of the kind of a usual ending takes its place.
    """
    usual = paper_endings(limit) if paper else default_endings(limit)
    codes = {find_code(rule): rule for rule in own}
    kept = [codes.pop(find_code(rule), rule) for rule in usual]
    return (*kept[:-1], *codes.values(), kept[-1])


def _read(given: EndingLike) -> Rule:
    if not isinstance(given, str):
        if not callable(given):
            raise InputError(
                f"{given!r} is not an ending.",
                where="endings",
                next="Pass a code or a function of the turns.",
            )
        if type(given) in BUILT_IN.values() or isinstance(given, OwnEnding):
            return cast("Rule", given)
        return OwnEnding(_check(find_code(given)), given)
    if given in BUILT_IN:
        return BUILT_IN[given]()
    if given not in list_plugins(GROUP):
        known = [*BUILT_IN, *list_plugins(GROUP)]
        raise InputError(
            f"There is no ending {given!r}.{suggest_name(given, known)}",
            where="endings",
            next=f"Endings: {', '.join(known)}.",
        )
    found = load_plugin(GROUP, given)
    made = found() if isinstance(found, type) else found
    if not callable(made):
        raise InputError(
            f"The ending {given!r} cannot be called.", where=GROUP, next="Mend the package that registers it."
        )
    return OwnEnding(given, cast("EndingFunction", made))


def _check(code: str) -> str:
    if not _CODE.fullmatch(code):
        raise InputError(
            f"{code!r} cannot be the code of an ending.",
            where="endings",
            next="Use lower-case letters, digits and underscores, a letter first.",
        )
    return code
