"""Lists that a model wrote: read in every common shape, and cleared of doubles."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, cast

_BOLD = r"(?:\*\*|__)?"
_NUMBERED = re.compile(
    rf"^(?P<indent>[ \t]*){_BOLD}(?:(?:item|task|role|topic|subtopic|problem|question)[ \t]+)?#?\(?"
    rf"(?P<number>\d{{1,6}}){_BOLD}[ \t]*(?:\\?[.):\]]|[ \t]-|[ \t](?=\S)){_BOLD}[ \t]*(?P<item>.*)$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^(?P<indent>[ \t]*)[-*•‣◦–—+][ \t]+(?P<item>.*)$")
_FENCE = re.compile(r"```[a-z]*\n(?P<inside>.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_TRIMMED = " \t\r\n\"'\u201c\u201d\u2018\u2019"
_WORD = re.compile(r"\w+")
_NEAR = 0.85
"""Share of their words from which two items count as one."""


def read_list(text: str) -> list[str]:
    """The items of a list: numbered (``1.``, ``1)``, ``(1)``, ``1:``, ``#1``, ``**1.**``, ``Task 1:``), with bullets,
    one on each line, or JSON (an array of texts, or an object that holds one).

    Lines before and after a numbered or bulleted list are not items, and a line that goes on with an item belongs
    to it. Only one number is taken off an item: ``1. 3. Liga table`` is ``3. Liga table``.
    """
    items = _json_items(text)
    if items is None:
        lines = [line.rstrip() for line in text.splitlines()]
        items = _marked(lines, _NUMBERED) or _marked(lines, _BULLET) or _plain(lines)
    cleaned = (_cleaned(item) for item in items)
    return [item for item in cleaned if item]


def distinct(items: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """The items that are new: neither among ``known`` nor said before in other letters or nearly the same words.

    Two items are one if they are the same but for case, accents' form, punctuation and spaces, or, from four words
    on, if they share 85 % of their words.
    """
    exact: set[str] = set()
    by_word: dict[str, list[frozenset[str]]] = {}

    def is_new(item: str) -> bool:
        words = _words(item)
        key = " ".join(words)
        if key in exact:
            return False
        bag = frozenset(words)
        # Two bags this much alike share at least one of the rarer words; any shared word leads to the other.
        if len(bag) >= 4 and any(
            len(bag & other) >= _NEAR * len(bag | other) for word in bag for other in by_word.get(word, ())
        ):
            return False
        exact.add(key)
        if len(bag) >= 4:
            # The word that fewest others have keeps the places to look at few.
            for word in sorted(bag, key=lambda word: len(by_word.get(word, ())))[: _places(len(bag))]:
                by_word.setdefault(word, []).append(bag)
        return True

    for item in known:
        is_new(item)
    return [item for item in items if is_new(item)]


def list_schema() -> Mapping[str, object]:
    """JSON schema of a list, for endpoints that take ``response_format``."""
    return {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "string"}}},
        "required": ["items"],
        "additionalProperties": False,
    }


def list_grammar(count: int, *, longest: int = 120) -> str:
    """GBNF grammar of a numbered list of ``count`` items of up to ``longest`` characters, for llama.cpp."""
    lines = " ".join(f'"{number}. " item "\\n"' for number in range(1, count + 1))
    return f"root ::= {lines}\nitem ::= [A-Z] [A-Za-z0-9 ,'()&/-]{{2,{longest}}}\n"


def _places(size: int) -> int:
    """How many words of a bag must lead to it, so that a bag that is near to it cannot miss all of them."""
    return size - int(_NEAR * size) + 1


def _json_items(text: str) -> list[str] | None:
    fenced = _FENCE.search(text)
    found = fenced["inside"] if fenced else text
    starts = [position for position in (found.find("["), found.find("{")) if position >= 0]
    if not starts or (not fenced and found[: min(starts)].count("\n") > 2):
        return None
    try:
        value: Any = json.JSONDecoder().raw_decode(found[min(starts) :])[0]
    except (ValueError, RecursionError):
        return None
    if isinstance(value, dict):
        inner = list(cast("dict[str, Any]", value).values())
        value = inner[0] if len(inner) == 1 else None
    if not isinstance(value, list):
        return None
    return [item for item in cast("list[Any]", value) if isinstance(item, str)] or None


def _marked(lines: list[str], shape: re.Pattern[str]) -> list[str]:
    """Items whose lines begin with a mark, those further in left to the item they stand under."""
    items: list[str] = []
    depth = -1
    blank = False
    for line in lines:
        match = shape.match(line)
        if match and (depth < 0 or len(match["indent"]) <= depth) and not _goes_on(match, items):
            depth = max(depth, len(match["indent"]))
            items.append(match["item"])
        elif items and line.strip() and (not blank or line.startswith((" ", "\t"))):
            items[-1] = f"{items[-1]} {line.strip()}".strip()
        elif items and line.strip():
            break  # a closing remark
        blank = not line.strip()
    return items


def _goes_on(match: re.Match[str], items: list[str]) -> bool:
    """True if a line that begins with a number is no new item: ``20 pages`` in the middle of the third one."""
    number = match.groupdict().get("number")
    if number is None:
        return False
    separator = match.string[match.end("number") : match.start("item")].strip()
    return not separator.strip("*_ ") and int(number) != len(items) + 1


def _plain(lines: list[str]) -> list[str]:
    """One item a line, without an introduction that ends with a colon."""
    found = [line.strip() for line in lines if line.strip()]
    return found[1:] if len(found) > 1 and found[0].endswith(":") else found


def _cleaned(item: str) -> str:
    item = item.strip(_TRIMMED)
    while len(item) > 4 and item[:2] == item[-2:] and item[:2] in ("**", "__"):
        item = item[2:-2].strip(_TRIMMED)
    if item.count("**") == 1 and item.endswith("**"):  # the other half stood before the number
        item = item[:-2].strip(_TRIMMED)
    return item.replace("\0", "")


def _words(item: str) -> list[str]:
    return _WORD.findall(unicodedata.normalize("NFKC", item).casefold())
