"""Reads the lists that models write: JSON, numbers or bullets, one item a line, or several between commas.

Lists are asked for with a schema where an endpoint takes one, and asked for again where a reply has no item. So only
the forms are read that models write. Of 923 real answers that are lists, 83 % have numbers, 11 % bullets, 3 % a word
and a number and 1 % letters. Headings and titles in bold, 2 %, are read as lines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, cast

from pydantic_core import from_json

from bactrian.protocol.markers import AFTER, BOLD, NUMBERED, strip_count

_THOUGHT = re.compile(r"^\s*<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHT = re.compile(r"\A.*</(?:think|thinking)>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(
    r"^(?P<fence>```|~~~)[^\n`]*\n(?P<inside>.*?)(?:^(?P=fence)|\Z)", re.DOTALL | re.MULTILINE
)
_LINE_END = re.compile(r"\r\n?|\n")
# A divider or a code fence.
_NO_LINE = re.compile(r"\s*(?:(?:[-*_=]\s?){3,}|\.{2,}|…|```\w*|~~~\w*)\s*")
_DECLINES = re.compile(
    r"(?:i['\u2019]?m|i am|we['\u2019]?re)? ?(?:so |very )?sorry\b|as an ai\b"
    r"|(?:i|we) (?:can ?not|can['\u2019]t|am unable|won['\u2019]t|will not)\b",
    re.IGNORECASE,
)
# Characters of a refusal; a longer text may be a real item that begins with an apology.
_LONGEST_EXCUSE = 300
_ENDS = (".", "!", "?", ":", "\uff1a")


def read_list(text: str, *, single: bool = False) -> list[str]:
    """Return the items of a list.

    Lines before and after a list are not items; a continuation line belongs to its item. Thoughts before the list
    are skipped. Only one number is removed from an item: ``1. 3. Liga table`` becomes ``3. Liga table``. With
    ``single``, a line is not split at commas. A refusal yields no items.
    """
    text = _strip_thoughts(text)
    fence = _FENCE.search(text)
    if fence and not _has_markers(text[: fence.start()]):  # else the fence belongs to an item
        text = fence["inside"]
    lines = [line.rstrip().removeprefix("> ") for line in _LINE_END.split(text)]
    lines = [line for line in lines if not line or not _NO_LINE.fullmatch(line)]
    items = strip_count(_read_json(text)) or _read_marked_lines(lines)
    if len(items) == 1 and not single:
        items = _split_counted(items[0])
    items = items or _read_plain_lines(lines, single=single)
    items = [item for item in map(_clean_item, items) if item and item.lower() != "n/a"]
    if len(items) > 1 and all(item.count(".") == 1 and _NAME.fullmatch(item) for item in items):
        return [item[:-1] for item in items]  # names with a full stop after each; sentences keep theirs
    return items


def read_item(text: str) -> str:
    """Return the single item of a reply with all its lines; empty for a refusal. Thoughts before it are skipped."""
    item = _strip_thoughts(text).strip()
    return "" if _DECLINES.match(item) and len(item) <= _LONGEST_EXCUSE else item


def _strip_thoughts(text: str) -> str:
    return _END_OF_THOUGHT.sub("", _THOUGHT.sub("", text.lstrip("\ufeff")))


# JSON, or nearly JSON.

_NUMBERED_KEY = re.compile(r"[A-Za-z_ ]*\d+")
_AFTER_JSON = re.compile(r"[\s,;.]*(?:```|~~~|\n|\Z)")
_DEEPEST = 4
_LONGEST_LITERAL = 100_000


def _read_json(text: str) -> list[str]:
    """Return the items of an array of texts, numbers or objects, of an object with one, or of JSON Lines.

    An array that was cut off yields its complete items; Python's quotes and a comma after the last item are read, too.
    """
    start = re.search(r"[\[{]", text)
    if start is None or _has_markers(text[: start.start()]):
        return []
    introduction = text[: start.start()].rpartition("\n")[2].strip()
    if introduction and introduction[-1] not in ".!:":
        return []  # brackets inside an item
    text = text[start.start() :]
    closed = text[: max(text.rfind("]"), text.rfind("}")) + 1]
    if closed and not _AFTER_JSON.match(text, len(closed)):
        return []  # [1] Actor
    lines = ",".join(line.strip().rstrip(",") for line in closed.splitlines())
    for written in (closed, text, f"[{lines}]"):
        with suppress(ValueError):
            if items := _list_texts(from_json(written, allow_partial=True)):
                return items
    with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
        return _list_texts(ast.literal_eval(closed[:_LONGEST_LITERAL]))
    return []


def _list_texts(value: Any, depth: int = 0) -> list[str]:
    """Return the items of a value: those of the only list in it, or its values if their keys are numbered."""
    if isinstance(value, list):
        return [text for item in cast("list[Any]", value) if (text := _to_text(item))]
    if not isinstance(value, dict) or depth == _DEEPEST:
        return []
    table = cast("dict[str, Any]", value)
    inner: list[Any] = [part for part in table.values() if isinstance(part, (list, dict))]
    if len(inner) == 1:
        return _list_texts(inner[0], depth + 1)
    if len(table) < 2 or not all(isinstance(text, str) for text in table.values()):
        return []
    is_numbered = all(map(_NUMBERED_KEY.fullmatch, table))
    return [text if is_numbered else f"{key}: {text}" for key, text in table.items()]


def _to_text(item: Any) -> str:
    """Return a text, a number as text, or the texts of an object joined by colons; empty for anything else."""
    if isinstance(item, dict):
        return ": ".join(text for text in cast("dict[str, Any]", item).values() if isinstance(text, str))
    is_number = isinstance(item, (int, float)) and not isinstance(item, bool)
    return item if isinstance(item, str) else str(item) if is_number else ""


# Lines that begin with a marker: a number, a word with a number, or a bullet.

_HEADING = re.compile(r"^#{1,6}\s|^(?:\*\*|__)[^*]+(?:\*\*|__):?$")
_BOLD_LINE = re.compile(r"^\*\*(?P<item>[^*]+)\*\*:?$")
_BULLET = re.compile(r"^(?:[-*‣–—+][^\S\n]+|[•◦●○■□▪▫►▸→✓✔✅·]\s*)(?:\[[ xX]?\]\s+)?(?P<item>.*)$")
_LABELLED = re.compile(
    rf"^(?:\#{{1,6}}\s+)?{BOLD}[^\W\d_]+\s*\#?(?P<value>\d{{1,6}}){BOLD}(?:\s*[.:)\uff1a]|\s+[-–—](?=\s)){AFTER}"
)
_LETTERED = re.compile(rf"^{BOLD}[(\uff08]?(?P<value>[a-zA-Z])[.)\uff09](?=\s){AFTER}")
# With the fewest items of each. Of words and letters only those are marks that count up from 1, or from a.
_MARKS = {NUMBERED: 1, _LABELLED: 2, _BULLET: 1, _LETTERED: 3}


def _has_markers(text: str) -> bool:
    return any(NUMBERED.match(line) or _BULLET.match(line) for line in map(str.strip, text.split("\n")))


@dataclass(slots=True)
class _Item:
    title: str
    indented: list[str] = field(default_factory=list[str])
    loose: list[str] = field(default_factory=list[str])
    """Unindented lines directly below it: the rest of the item, or a remark on the whole list."""
    paragraphs: list[str] = field(default_factory=list[str])
    """Unindented, after a blank line: a description of the item, or a remark on the whole list."""

    def join(self) -> str:
        title, below = self.title.rstrip(), [*self.loose, *self.indented, *self.paragraphs]
        half_bold = title.count("**") == 1 and title.endswith("**")  # the opening ** preceded the number
        title = title.removesuffix("**") if half_bold else title
        if below and (half_bold or _BOLD_LINE.match(title)) and not title.strip("*_").endswith(_ENDS):
            title += ":"
        return " ".join([title, *below]).strip()


def _read_marked_lines(lines: Sequence[str]) -> list[str]:
    """Return the items of the outermost list in ``lines``; an empty list if no line has a marker.

    Indented lines and lines directly below an item belong to it. Headings between items and text before or after the
    list do not.
    """
    parsed = [
        (len(line) - len(line.lstrip()), line.strip()) for line in (each.expandtabs(4) for each in lines)
    ]
    lists = [(*_collect_items(mark, parsed), mark) for mark in _MARKS]
    lists = [each for each in lists if len(each[1]) >= _MARKS[each[2]]]
    if not lists:
        return []
    _, items, mark = min(lists, key=lambda each: each[0])  # among equals, the first
    texts = [item.join() for item in items]
    return texts if mark is NUMBERED else strip_count(texts)


def _collect_items(mark: re.Pattern[str], lines: Sequence[tuple[int, str]]) -> tuple[int, list[_Item]]:
    """Return the indentation of the first marker, and the items; ``lines`` are indentations and texts."""
    items: list[_Item] = []
    outermost = deepest = last = 0
    after_blank = False
    for indent, text in lines:
        match = mark.match(text) if text else None
        value = last + 1
        if match and mark is not _BULLET:
            written = match["value"]
            value = int(written) if written.isdecimal() else ord(written.lower()) - ord("a") + 1
        # A marker that is indented further is that of a list inside an item; " 9." is no more than "10." is.
        inside = bool(items) and indent > deepest
        if match and not inside and (_MARKS[mark] == 1 or value == last + 1):
            if items and items[-1].paragraphs and (mark is _BULLET or value not in (last, last + 1)):
                break  # a remark ended the list, and this marker begins another one
            outermost = outermost if items else indent
            deepest, last = max(deepest, indent), value
            items.append(_Item(match["item"]))
        elif text and items and not ((after_blank or _HEADING.match(text)) and _is_heading(text)):
            item = items[-1]
            part = (
                item.indented
                if indent > outermost and not item.paragraphs
                else item.paragraphs
                if after_blank or item.paragraphs
                else item.loose
            )
            part.append(text)
        after_blank = not text
    if len(items) > 1:
        *others, final = items
        # The text below the last item belongs to it or is a remark on the whole list.
        del final.paragraphs[1 if all(item.paragraphs for item in others) else 0 :]
        if final.loose and final.loose[0][0].isupper() and final.loose[-1].endswith(_ENDS):
            final.loose = final.loose if any(item.loose for item in others) else []
    return outermost, items


def _is_heading(line: str) -> bool:
    """Return True for a heading: bold, marked as one, or a few words and a colon."""
    return bool(_HEADING.match(line)) or (line.endswith((":", "\uff1a")) and len(line.split()) <= 10)


# Lines without markers, and lines that contain several items.

_NAME = re.compile(r"\S+(?: \S+){0,3}\.")
_COUNTED = re.compile(r"(?:^|(?<![\s,;|])[\s,;|]+)\(?(\d{1,3})[.)]\s*(?=[^\W\d_])")
_AND = re.compile(r"^(?:and|or|&|und|et|y|e)\s+", re.IGNORECASE)
_LAST_TWO = re.compile(r"(.+?) (?:and|or|&) (.+)")
_SEPARATORS = {";": ";", ",": r",(?![^()]*\))", "、": "、", "|": r"\s[|•●▪·]\s"}
# Words of an item in a line with several items, and characters of such a line.
_LONGEST_PART = 5
_LONGEST_ROW = 10_000


def _split_counted(line: str) -> list[str]:
    """Split ``1. Actor 2. Baker 3. Cook`` into items, also behind an introduction or without the first number."""
    before, *counted = _COUNTED.split(line)
    numbers, items = list(map(int, counted[::2])), counted[1::2]
    if numbers and numbers[0] == 2:
        numbers, items = [1, *numbers], [before, *items]
    if len(items) > 1 and numbers == list(range(1, len(items) + 1)):
        return items
    parts = re.split(_SEPARATORS["|"], line.strip(" |•"))
    return parts if len(parts) > 2 else [line]


def _read_plain_lines(lines: Sequence[str], *, single: bool) -> list[str]:
    """Return one item per line, or several per line between commas, without introductions and separate sentences."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip():
            blocks[-1].append(line.strip().lstrip("# "))
        elif blocks[-1]:
            blocks.append([])
    longest = max(blocks, key=len)
    beside = [line for block in blocks if block is not longest for line in block]
    is_list = len(longest) > 1 and not any(map(_is_sentence, longest)) and all(map(_is_sentence, beside))
    items = longest if is_list else [line for block in blocks for line in block]
    if items and _DECLINES.match(items[0]) and (len(items) == 1 or _is_sentence(items[0])):
        return []
    if len(items) == 1 and not single and len(counted := _split_counted(items[0])) > 1:
        return counted
    items = items[1:] if len(items) > 1 and items[0].endswith((":", "\uff1a")) else items
    parts = [] if single else [_split_names(line) for line in items]
    return [part for line in parts for part in line] if parts and all(parts) else items


def _split_names(line: str) -> list[str]:
    """Return the names of a line that contains several between commas or semicolons; empty for any other line."""
    if len(line) > _LONGEST_ROW:
        return []
    introduction, colon, after = line.partition(": ")
    if colon and (len(introduction.split()) > 2 or not after[:1].islower()):
        line = after
    for mark, separator in _SEPARATORS.items():
        parts = [_AND.sub("", part.strip()) for part in re.split(separator, line.strip("[]").rstrip(".,; "))]
        last = _LAST_TWO.fullmatch(parts[-1]) if mark == "," else None
        if last and not any(" and " in part for part in parts[:-1]):
            parts[-1:] = last.groups()
        # Names; of the parts of a sentence, only the first is capitalized.
        capitals = {not part.lstrip("\"'“\u2018«")[:1].islower() for part in parts}
        are_names = len(capitals) == 1 and all(len(part.split()) <= _LONGEST_PART for part in parts)
        if len(parts) >= 3 and all(parts) and (mark != "," or are_names):
            return parts
    return []


def _is_sentence(line: str) -> bool:
    return line.endswith((".", "!", "?"))


# Items without what surrounds them.

_BREAK = re.compile(r"(?:\\|<br\s*/?>)$", re.IGNORECASE)
# Quotes, emphases and separators that are removed from an item one by one.
_LAYERS = 10
_DASH = re.compile(r"^[-–•*]\s+(?=[^\W\d_])")
_BOLD_TITLE = re.compile(
    r"^(?:\*\*|__)(?P<title>[^*]+?)(?P<colon>:?)(?:\*\*|__)(?=\s*[:\uff1a–—-]|(?<=:\*\*))"
)
_WRAPS = "** __ * _ ` \" ' “” \u2018\u2019 „“ «» »« 「」 『』".split()


def _clean_item(item: str) -> str:
    """Return the item without quotes and emphasis around it and without the separator at its end."""
    for _ in range(_LAYERS):
        before = item
        item = _BREAK.sub("", item.strip().strip("\ufeff\u200b").rstrip(",;\uff0c\uff1b"))
        for wrap in _WRAPS:
            opens, closes = (wrap, wrap) if wrap.isascii() else (wrap[0], wrap[1])
            inner = item[len(opens) : len(item) - len(closes)]
            wrapped = item.startswith(opens) and item.endswith(closes)
            if inner and wrapped and opens not in inner and closes not in inner:
                item = inner
                break
        if item == before:
            break
    item = _BOLD_TITLE.sub(r"\g<title>\g<colon>", _DASH.sub("", item))
    if item.count("**") == 1 and item.endswith("**"):  # the opening ** preceded the number
        item = item[:-2].rstrip()
    if item.count('"') == 1 and (item[0] == '"' or item[-1] == '"'):
        item = item.strip('"')
    return item.replace("\0", "").strip()


# What constrains a model's reply to a list.

LIST_SCHEMA: Mapping[str, object] = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "string"}}},
    "required": ["items"],
    "additionalProperties": False,
}
"""The JSON schema of a list, for endpoints that take ``response_format``."""
_WITHIN_WORDS = "A-Za-z'()&/+#-"
_LONGEST = 120  # characters of an item
_BEGINNINGS = "ABCDEFGHIJKLMNOPRSTUVW"  # for each of which a small model finds a real word
_GROUPS = 10
_MOST_WORDS = 12
_SHIFT = 3  # letters by which the groups shift from one question to the next


def build_list_grammar(count: int, varied: int | None = None) -> str:
    """Return the GBNF grammar of a numbered list of ``count`` items for llama.cpp.

    ``varied``, a number that changes from question to question, keeps a very small model from repeating one item on
    every line: each of ten consecutive items must begin with one of its own two or three letters. Items then have up
    to twelve words and no digits, after which such a model only continues counting.
    """
    if varied is None:
        beginnings, rest = ["A-Z"], f"[0-9 ,%{_WITHIN_WORDS}]{{0,{_LONGEST - 1}}}"
    else:
        start = _SHIFT * varied % len(_BEGINNINGS)
        letters = _BEGINNINGS[start:] + _BEGINNINGS[:start]
        edges = [group * len(letters) // _GROUPS for group in range(_GROUPS + 1)]
        beginnings = [letters[edge:following] for edge, following in pairwise(edges)]
        word = f'[{_WITHIN_WORDS}]* ","?'
        rest = f'{word} (" " [A-Za-z(&] {word}){{0,{_MOST_WORDS - 1}}}'
    lines = " ".join(
        f'"{number + 1}. " [{beginnings[number % len(beginnings)]}] rest "\\n"' for number in range(count)
    )
    return f"root ::= {lines}\nrest ::= {rest}\n"
