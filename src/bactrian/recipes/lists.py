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
    rf"(?P<number>\d{{1,6}}){_BOLD}"
    rf"(?:[ \t]*\\?[.):\]\uff0e\u3001\uff09\uff1a]|[ \t]*[-–—](?=[ \t])|[ \t]+(?=\S)){_BOLD}[ \t]*(?P<item>.*)$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^(?P<indent>[ \t]*)[-*•‣◦–—+][ \t]+(?P<item>.*)$")
_MARK = re.compile(r"^[ \t]*(?:\(?\d{1,6}[.):]|[-*•])[ \t]", re.MULTILINE)
_FENCE = re.compile(r"```[a-z]*\n(?P<inside>.*?)(?:```|\Z)", re.DOTALL | re.IGNORECASE)
_LINE_END = re.compile(r"\r\n?|\n")
_JSON_CUT_OFF = re.compile(r'(?:\{\s*"[^"]*"\s*:\s*)?\[\s*(?=")')
_COMMA = re.compile(r"\s*,?\s*")
_TRIMMED = " \t\r\n\"'\u201c\u201d\u2018\u2019"
_TOKEN = re.compile(r"[^\W_]+|[^\w\s]")
_MINUS = re.compile(r"[-–](?=\s?(?:\d|[b-z]\b))")
_SIGNS = "#%&/*@"
"""Punctuation, to Unicode, without which an item would be another: C and C#."""
_NEAR = 0.85
"""Share of their words from which two items count as one."""


def read_list(text: str) -> list[str]:
    """The items of a list: numbered (``1.``, ``1)``, ``(1)``, ``1:``, ``#1``, ``**1.**``, ``Task 1:``), with bullets,
    one on each line, or JSON (an array of texts, or an object that holds one).

    Lines before and after a numbered or bulleted list are not items, and a line that goes on with an item belongs
    to it. Only one number is taken off an item: ``1. 3. Liga table`` is ``3. Liga table``.
    """
    fence = _FENCE.search(text)
    if fence and not _MARK.search(text, 0, fence.start()):  # else the fence belongs to an item
        text = fence["inside"]
    items = _json_items(text)
    if items is None:
        lines = [line.rstrip() for line in _LINE_END.split(text)]
        items = _marked(lines, _NUMBERED) or _marked(lines, _BULLET) or _plain(lines)
    cleaned = (_cleaned(item) for item in items)
    return [item for item in cleaned if item]


def distinct(items: Iterable[str], known: Iterable[str] = ()) -> list[str]:
    """The items that are new: neither among ``known`` nor said before in other letters or nearly the same words.

    Two items are one if they are the same but for case, accents' form, punctuation and spaces, or, from four words
    on, if they share 85 % of their words. What has other numbers or signs is another item: ``C`` and ``C#``, or
    ``2 + 3`` and ``2 - 3``.
    """
    exact: set[str] = set()
    by_word: dict[tuple[str, str], list[frozenset[str]]] = {}

    def is_new(item: str) -> bool:
        tokens = _tokens(item)
        key = " ".join(tokens) or item
        if key in exact:
            return False
        bag = frozenset(tokens)
        figures = " ".join(token for token in tokens if _is_figure(token))
        # Two bags this much alike share at least one of the rarer words; any shared word leads to the other.
        if len(bag) >= 4 and any(
            len(bag & other) >= _NEAR * len(bag | other)
            for word in bag
            for other in by_word.get((word, figures), ())
        ):
            return False
        exact.add(key)
        if len(bag) >= 4:
            # The word that fewest others have keeps the places to look at few.
            rarest = sorted(bag, key=lambda word: len(by_word.get((word, figures), ())))
            for word in rarest[: _places(len(bag))]:
                by_word.setdefault((word, figures), []).append(bag)
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
    starts = [position for position in (text.find("["), text.find("{")) if position >= 0]
    if not starts:
        return None
    before, written = text[: min(starts)], text[min(starts) :]
    introduced = before.rpartition("\n")[2].strip()
    if before.count("\n") > 2 or _MARK.search(before) or (introduced and introduced[-1] not in ".!:"):
        return None  # brackets inside an item
    try:
        value: Any = json.JSONDecoder().raw_decode(written)[0]
    except RecursionError:
        return None
    except ValueError:
        return _whole_texts(written)
    if isinstance(value, dict):
        values = cast("dict[str, Any]", value).values()
        lists = [cast("list[Any]", inner) for inner in values if isinstance(inner, list)]
        value = lists[0] if len(lists) == 1 else None
    if not isinstance(value, list):
        return None
    found = [_only_text(item) for item in cast("list[Any]", value)]
    return [item for item in found if item is not None] or None


def _only_text(item: Any) -> str | None:
    """The item, or the one text that an object holds."""
    if isinstance(item, dict):
        values = list(cast("dict[str, Any]", item).values())
        item = values[0] if len(values) == 1 else None
    return item if isinstance(item, str) else None


def _whole_texts(written: str) -> list[str] | None:
    """The texts of a JSON array that ends before it is closed, without the one in which it was cut off."""
    opened = _JSON_CUT_OFF.match(written)
    if opened is None:
        return None
    items: list[str] = []
    position = opened.end()
    while position < len(written):
        try:
            item, position = json.JSONDecoder().raw_decode(written, position)
        except ValueError:
            return items if written[position] == '"' else None
        if not isinstance(item, str):
            return None
        items.append(item)
        comma = _COMMA.match(written, position)
        position = comma.end() if comma else position
    return items


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
    """One item a line, without an introduction that ends with a colon, and without sentences set apart."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.strip())
        elif blocks[-1]:
            blocks.append([])
    longest = max(blocks, key=len)
    beside = [line for block in blocks if block is not longest for line in block]
    if len(longest) > 1 and not any(map(_is_sentence, longest)) and all(map(_is_sentence, beside)):
        found = longest
    else:
        found = [line for block in blocks for line in block]
    return found[1:] if len(found) > 1 and found[0].endswith(":") else found


def _is_sentence(line: str) -> bool:
    return line[-1] in ".!?"


def _cleaned(item: str) -> str:
    item = item.strip(_TRIMMED)
    while len(item) > 4 and item[:2] == item[-2:] and item[:2] in ("**", "__"):
        item = item[2:-2].strip(_TRIMMED)
    if item.count("**") == 1 and item.endswith("**"):  # the other half stood before the number
        item = item[:-2].strip(_TRIMMED)
    return item.replace("\0", "")


def _tokens(item: str) -> list[str]:
    """Words, numbers and signs of an item, without punctuation."""
    text = unicodedata.normalize("NFKC", item).casefold().replace("**", "")
    return [
        token
        for token in _TOKEN.findall(_MINUS.sub("\u2212", text))
        if token.isalnum() or token in _SIGNS or unicodedata.category(token[0])[0] != "P"
    ]


def _is_figure(token: str) -> bool:
    """True for what holds a digit or is a sign, and no mark of a script that writes its vowels as marks."""
    return not token.isalpha() and unicodedata.category(token[0])[0] != "M"
