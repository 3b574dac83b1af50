"""Which endings a session may have, as text: ``paper``, or ``task_done,user_no_instruct=3,max_messages=40``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bactrian.errors import InputError
from bactrian.files.plugins import list_plugins
from bactrian.files.toml import suggest_name

GROUP = "bactrian.endings"
"""Entry points of other packages: an ending by its code."""
SETS: dict[str, tuple[str, ...]] = {
    "paper": ("task_done", "assistant_instruct", "user_no_instruct", "max_messages"),
    "default": ("task_done", "assistant_instruct", "user_no_instruct", "repeat_loop", "max_messages"),
    "camel": ("user_no_instruct", "assistant_instruct", "repeat_words", "task_done", "max_messages"),
}
"""The sets that have a name, with their endings in the order in which they are asked."""
THRESHOLDS: dict[str, int | None] = {
    "task_done": None,
    "refused": None,
    "assistant_instruct": 1,
    "user_no_instruct": 3,
    "repeat_loop": 4,
    "repeat_words": 4,
    "max_messages": 40,
}
"""The endings of this program by code, and how often in a row each has to show; None for one that counts nothing."""
_MOST = 1_000_000
_ITEM = re.compile(r"(-?)([a-z][a-z0-9_]{0,63})(?:=(\d{1,7}))?")


@dataclass(frozen=True, slots=True)
class EndingList:
    """A list of endings, read and checked."""

    codes: tuple[str, ...]
    """In the order in which they are asked; those of other packages too."""
    thresholds: tuple[tuple[str, int], ...] = ()
    """Those that were given, by code."""
    substrings: bool = False
    """True for CAMEL's rules, which look for substrings."""

    @property
    def text(self) -> str:
        """The same list in one way of writing."""
        counts = dict(self.thresholds)
        listed = [f"{code}={counts[code]}" if code in counts else code for code in self.codes]
        return ",".join(["camel:"] * self.substrings + listed)

    @property
    def max_messages(self) -> int | None:
        """Messages at which the session ends; None if the list leaves it open."""
        return dict(self.thresholds).get("max_messages")


def parse_endings(text: str) -> EndingList:
    """Read a list of endings: names of sets, codes, ``code=threshold`` and ``-code``, separated by commas.

    A list of codes alone means these and no others.

    Raises:
        InputError: an item is not an ending, or its threshold does not fit.
    """
    codes: list[str] = []
    counts: dict[str, int] = {}
    substrings = False
    for item in filter(None, re.split(r"[,\s]+", text.strip())):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise _refuse(f"{item!r} is not an ending.")
        drop, code, count = match.groups()
        if code in SETS and not drop and count is None:
            substrings = substrings or code == "camel"
            codes += [each for each in SETS[code] if each not in codes]
            continue
        if code not in THRESHOLDS and code not in list_plugins(GROUP):
            known = [*SETS, *THRESHOLDS, *list_plugins(GROUP)]
            raise _refuse(f"There is no ending {code!r}.{suggest_name(code, known)}")
        if drop:
            if code not in codes:
                raise _refuse(f"{item!r} leaves out an ending that is not in the list.")
            codes.remove(code)
            continue
        if count is not None:
            if THRESHOLDS.get(code) is None or not 0 < int(count) <= _MOST:
                raise _refuse(f"{item!r}: this threshold does not fit.")
            counts[code] = int(count)
        if code not in codes:
            codes.append(code)
    if not codes:
        raise _refuse("The list of endings is empty.")
    return EndingList(
        tuple(codes), tuple((code, counts[code]) for code in codes if code in counts), substrings
    )


def _refuse(what: str) -> InputError:
    known = [f"{code}={count}" if count else code for code, count in THRESHOLDS.items()]
    return InputError(
        what,
        where="endings",
        next=f"Sets: {', '.join(SETS)}. Endings, with their thresholds: {', '.join([*known, *list_plugins(GROUP)])}.",
    )
