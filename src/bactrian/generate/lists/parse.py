"""Reads the lists that models write, in every common format."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bactrian.generate.lists.bullets import read_marked_items
from bactrian.generate.lists.html_tables import read_html_items, read_table_items
from bactrian.generate.lists.json import read_json_items
from bactrian.generate.lists.markers import has_numbers
from bactrian.language.numbering import strip_count

_THOUGHT = re.compile(r"^\s*<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_END_OF_THOUGHT = re.compile(r"\A.*</(?:think|thinking)>", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(
    r"^(?P<fence>```|~~~)[^\n`]*\n(?P<inside>.*?)(?:^(?P=fence)|\Z)", re.DOTALL | re.MULTILINE
)
_LINE_END = re.compile(r"\r\n?|\n")
_NO_LINE = re.compile(r"\s*(?:(?:[-*_=]\s?){3,}|\.{2,}|…|```\w*|~~~\w*)\s*")
"""A divider or a code fence."""
_QUOTED = re.compile(r"^\s*>\s?")
_DECLINES = re.compile(
    r"(?:i['\u2019]?m|i am|we['\u2019]?re)? ?(?:so |very )?sorry\b|as an ai\b"
    r"|(?:i|we) (?:can ?not|can['\u2019]t|am unable|won['\u2019]t|will not)\b",
    re.IGNORECASE,
)
_LONGEST_EXCUSE = 300
"""Maximum number of characters of a refusal; a longer text may be a real item that begins with an apology."""
_PARTS = {
    ";": re.compile(";"),
    ",": re.compile(r",(?![^()]*\))"),
    "、": re.compile("、"),
    "|": re.compile(r"\s[|•●▪·]\s"),
}
_AND = re.compile(r"^(?:and|or|&|und|et|y|e)\s+", re.IGNORECASE)
_LAST_TWO = re.compile(r"(.+?) (?:and|or|&) (.+)")
_LONGEST_PART = 5
"""Maximum number of words of an item in a line with several items."""
_LONGEST_NAME = 4
_LONGEST_ROW = 10_000
"""Maximum number of characters of a line with several items."""
_BREAK = re.compile(r"(?:\\|<br\s*/?>)$", re.IGNORECASE)
_LAYERS = 10
"""Maximum number of quotes, emphases and separators that are removed from an item one by one."""
_FIRST_OF_ROW = re.compile(r"(?:^|[\s:])\(?1[.)]\s*(?=[^\W\d_])")
_DASH = re.compile(r"^[-–•*]\s+(?=[^\W\d_])")
_BOLD_TITLE = re.compile(
    r"^(?:\*\*|__)(?P<title>[^*]+?)(?P<colon>:?)(?:\*\*|__)(?=\s*[:\uff1a–—-]|(?<=:\*\*))"
)
_WRAPS = (
    *(("**", "**"), ("__", "__"), ("*", "*"), ("_", "_"), ("`", "`"), ('"', '"'), ("'", "'")),
    *(("“", "”"), ("\u2018", "\u2019"), ("„", "“"), ("«", "»"), ("»", "«"), ("「", "」"), ("『", "』")),
)


def read_list(text: str, *, single: bool = False) -> list[str]:
    """Return the items of a list: numbered (``1.``, ``(1)``, ``1:``, ``#1``, ``**1.**``, ``Task 1:``, ``a)``, ``ii.``,
    ``①``, ``一、``), with bullets or under headings, one on each line, several on one line, JSON, a table, or HTML.

    Lines before and after a list are not items; a continuation line belongs to its item. Thoughts before the list
    are skipped. Only one number is removed from an item: ``1. 3. Liga table`` becomes ``3. Liga table``. With
    ``single``, a line is not split at commas. A refusal yields no items.
    """
    text = _strip_thoughts(text)
    fence = _FENCE.search(text)
    if fence and not has_numbers(text[: fence.start()]):  # else the fence belongs to an item
        text = fence["inside"]
    lines = [line.rstrip() for line in _LINE_END.split(text)]
    lines = [line for line in lines if not _NO_LINE.fullmatch(line) or not line]
    if sum(bool(_QUOTED.match(line)) for line in lines) > 1:
        lines = [_QUOTED.sub("", line) for line in lines]
    items = strip_count(
        read_json_items(text) or read_html_items(text) or read_table_items(lines)
    ) or read_marked_items(lines)
    if len(items) == 1 and not single:
        items = _split_line(items[0])
    items = items or _read_plain_lines(lines, single=single)
    return _strip_full_stops([each for each in map(_clean_item, items) if each and each.lower() != "n/a"])


def read_item(text: str) -> str:
    """Return the single item of a reply with all its lines; empty for a refusal. Thoughts before it are skipped."""
    item = _strip_thoughts(text).strip()
    return "" if _DECLINES.match(item) and len(item) <= _LONGEST_EXCUSE else item


def _strip_thoughts(text: str) -> str:
    return _END_OF_THOUGHT.sub("", _THOUGHT.sub("", text.lstrip("\ufeff")))


def _split_line(item: str) -> list[str]:
    """Split ``Actor 2. Baker 3. Cook`` and ``Actor • Baker • Cook`` into items; the first marker is already removed."""
    items: list[str] = []
    for mark in (".", ")"):
        rest, items = item, []
        while found := re.search(rf"(?<![\s,;|])[\s,;|]+\(?{len(items) + 2}\{mark}\s*(?=[^\W\d_])", rest):
            items.append(rest[: found.start()])
            rest = rest[found.end() :]
        if items:
            return [*items, rest]
    parts = _PARTS["|"].split(item)
    return parts if len(parts) > 2 else [item]


def _read_plain_lines(lines: Sequence[str], *, single: bool) -> list[str]:
    """Return one item per line, or several per line between commas, without introductions and separate sentences."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if line.strip() and not line.startswith("#"):
            blocks[-1].append(line.strip())
        elif blocks[-1]:
            blocks.append([])
    longest = max(blocks, key=len)
    beside = [line for block in blocks if block is not longest for line in block]
    if len(longest) > 1 and not any(map(_is_sentence, longest)) and all(map(_is_sentence, beside)):
        found = longest
    else:
        found = [line for block in blocks for line in block]
    if found and _DECLINES.match(found[0]) and (len(found) == 1 or _is_sentence(found[0])):
        return []
    if len(found) == 1 and not single and (first := _FIRST_OF_ROW.search(found[0])):
        counted = _split_line(found[0][first.end() :])
        if len(counted) > 1:
            return counted
    found = found[1:] if len(found) > 1 and found[0].endswith((":", "\uff1a")) else found
    parts = [] if single else [_split_names(line) for line in found]
    return [part for line in parts for part in line] if parts and all(parts) else found


def _split_names(line: str) -> list[str]:
    """Return the names of a line that contains several between commas or semicolons; empty for any other line."""
    if len(line) > _LONGEST_ROW:
        return []
    introduction, colon, after = line.partition(": ")
    if colon and (len(introduction.split()) > 2 or not after[:1].islower()):
        line = after
    for mark, split in _PARTS.items():
        parts = [_AND.sub("", part.strip()) for part in split.split(line.rstrip(".,; "))]
        if (
            mark == ","
            and (last := _LAST_TWO.fullmatch(parts[-1]))
            and not any(" and " in part for part in parts[:-1])
        ):
            parts[-1:] = last.groups()
        if len(parts) >= 3 and all(parts) and (mark != "," or _are_names(parts)):
            return parts
    return []


def _are_names(parts: Sequence[str]) -> bool:
    """Return True for names, and False for the parts of a sentence, in which only the first is capitalized."""
    capitals = [not part.lstrip("\"'“\u2018«")[:1].islower() for part in parts]
    return all(len(part.split()) <= _LONGEST_PART for part in parts) and (all(capitals) or not any(capitals))


def _is_sentence(line: str) -> bool:
    return line[-1] in ".!?"


def _clean_item(item: str) -> str:
    """Return the item without quotes and emphasis around it and without the separator at its end."""
    for _ in range(_LAYERS):
        before = item
        item = _unwrap(_BREAK.sub("", item.strip().strip("\ufeff\u200b").rstrip(",;\uff0c\uff1b")))
        if item == before:
            break
    item = _DASH.sub("", item)
    item = _BOLD_TITLE.sub(r"\g<title>\g<colon>", item)
    if item.count("**") == 1 and item.endswith("**"):  # the opening ** preceded the number
        item = item[:-2].rstrip()
    if item.count('"') == 1 and (item[0] == '"' or item[-1] == '"'):
        item = item.strip('"')
    return item.replace("\0", "").strip()


def _unwrap(item: str) -> str:
    for opens, closes in _WRAPS:
        inner = item[len(opens) : len(item) - len(closes)]
        if (
            inner
            and item.startswith(opens)
            and item.endswith(closes)
            and opens not in inner
            and closes not in inner
        ):
            return inner
    return item


def _strip_full_stops(items: list[str]) -> list[str]:
    """Return names without a full stop after each; sentences keep theirs."""
    if len(items) > 1 and all(
        item.endswith(".") and "." not in item[:-1] and len(item.split()) <= _LONGEST_NAME for item in items
    ):
        return [item[:-1] for item in items]
    return items
