"""Lists that a model wrote, read in every common shape."""

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
"""A line that only divides, or a fence."""
_QUOTED = re.compile(r"^\s*>\s?")
_DECLINES = re.compile(
    r"(?:i['\u2019]?m|i am|we['\u2019]?re)? ?(?:so |very )?sorry\b|as an ai\b"
    r"|(?:i|we) (?:can ?not|can['\u2019]t|am unable|won['\u2019]t|will not)\b",
    re.IGNORECASE,
)
_LONGEST_EXCUSE = 300
"""Characters of a refusal; what is longer may be a problem about somebody who is sorry."""
_PARTS = {
    ";": re.compile(";"),
    ",": re.compile(r",(?![^()]*\))"),
    "、": re.compile("、"),
    "|": re.compile(r"\s[|•●▪·]\s"),
}
_AND = re.compile(r"^(?:and|or|&|und|et|y|e)\s+", re.IGNORECASE)
_LAST_TWO = re.compile(r"(.+?) (?:and|or|&) (.+)")
_LONGEST_PART = 5
"""Words of an item that stands among others on one line."""
_LONGEST_NAME = 4
_LONGEST_ROW = 10_000
"""Characters of a line of names."""
_BREAK = re.compile(r"(?:\\|<br\s*/?>|[,;\uff0c\uff1b])$", re.IGNORECASE)
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
    """The items of a list: numbered (``1.``, ``(1)``, ``1:``, ``#1``, ``**1.**``, ``Task 1:``, ``a)``, ``ii.``, ``①``,
    ``一、``), with bullets or under headings, one on each line, several on one line, JSON, a table, or HTML.

    Lines before and after a list are not items, and a line that goes on with an item belongs to it. Thoughts before
    the list are left out. Only one number is taken off an item: ``1. 3. Liga table`` is ``3. Liga table``. With
    ``single``, a line is not divided at its commas. A model that declines has written no list.
    """
    text = _without_thoughts(text)
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
        items = _on_one_line(items[0])
    items = items or _plain(lines, single=single)
    return _without_points([each for each in map(_cleaned, items) if each and each.lower() != "n/a"])


def read_item(text: str) -> str:
    """The one item that a model was asked for, with all of its lines; empty if it declines.

    Thoughts before it are left out.
    """
    item = _without_thoughts(text).strip()
    return "" if _DECLINES.match(item) and len(item) <= _LONGEST_EXCUSE else item


def _without_thoughts(text: str) -> str:
    return _END_OF_THOUGHT.sub("", _THOUGHT.sub("", text.lstrip("\ufeff")))


def _on_one_line(item: str) -> list[str]:
    """``Actor 2. Baker 3. Cook`` and ``Actor • Baker • Cook`` as three items; the first mark has been taken off."""
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


def _plain(lines: Sequence[str], *, single: bool) -> list[str]:
    """One item a line, or several between commas, without an introduction and without sentences set apart."""
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
        counted = _on_one_line(found[0][first.end() :])
        if len(counted) > 1:
            return counted
    found = found[1:] if len(found) > 1 and found[0].endswith((":", "\uff1a")) else found
    parts = [] if single else [_parts(line) for line in found]
    return [part for line in parts for part in line] if parts and all(parts) else found


def _parts(line: str) -> list[str]:
    """The items of a line that holds several names between commas or semicolons; none of any other line."""
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
    """True for a row of names, and not for the parts of a sentence, of which only the first has a capital."""
    capitals = [not part.lstrip("\"'“\u2018«")[:1].islower() for part in parts]
    return all(len(part.split()) <= _LONGEST_PART for part in parts) and (all(capitals) or not any(capitals))


def _is_sentence(line: str) -> bool:
    return line[-1] in ".!?"


def _cleaned(item: str) -> str:
    """The item without quotes and emphasis around the whole of it, and without what ended its line."""
    before = None
    while before != item:
        before = item
        item = _unwrapped(_BREAK.sub("", item.strip().strip("\ufeff\u200b")))
    item = _DASH.sub("", item)
    item = _BOLD_TITLE.sub(r"\g<title>\g<colon>", item)
    if item.count("**") == 1 and item.endswith("**"):  # the other half stood before the number
        item = item[:-2].rstrip()
    if item.count('"') == 1 and (item[0] == '"' or item[-1] == '"'):
        item = item.strip('"')
    return item.replace("\0", "").strip()


def _unwrapped(item: str) -> str:
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


def _without_points(items: list[str]) -> list[str]:
    """Names without the point after each; sentences keep theirs."""
    if len(items) > 1 and all(
        item.endswith(".") and "." not in item[:-1] and len(item.split()) <= _LONGEST_NAME for item in items
    ):
        return [item[:-1] for item in items]
    return items
