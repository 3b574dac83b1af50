"""Reads the lists that models write: JSON, numbers or bullets, one item a line, or several between commas.

Lists are asked for with a schema where an endpoint takes one, and asked for again where a reply has no item. So only
the forms are read that models write: of 300 real answers to questions for a list, none had a table, Roman or circled
numerals, or HTML.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from bactrian.protocol.markers import AFTER, BOLD, NUMBERED, strip_count

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
    lines = [line.rstrip() for line in _LINE_END.split(text)]
    lines = [line for line in lines if not line or not _NO_LINE.fullmatch(line)]
    if sum(bool(_QUOTED.match(line)) for line in lines) > 1:
        lines = [_QUOTED.sub("", line) for line in lines]
    items = strip_count(_read_json(text)) or _read_marked_lines(lines)
    if len(items) == 1 and not single:
        items = _split_counted(items[0])
    items = items or _read_plain_lines(lines, single=single)
    return _strip_full_stops([item for item in map(_clean_item, items) if item and item.lower() != "n/a"])


def read_item(text: str) -> str:
    """Return the single item of a reply with all its lines; empty for a refusal. Thoughts before it are skipped."""
    item = _strip_thoughts(text).strip()
    return "" if _DECLINES.match(item) and len(item) <= _LONGEST_EXCUSE else item


def _strip_thoughts(text: str) -> str:
    return _END_OF_THOUGHT.sub("", _THOUGHT.sub("", text.lstrip("\ufeff")))


# JSON, or nearly JSON.


_CUT_OFF = re.compile(r'(?:\{\s*"[^"]*"\s*:\s*)?\[\s*(?=")')
_TEXT = re.compile(r'\s*(?P<text>"(?:[^"\\]|\\.)*")\s*(?:,|(?=\])|\Z)')
_BARE = re.compile(r"^\[(?P<inside>[^\[\]{}\"]*,[^\[\]{}\"]*)\]$")
_NUMBERED_KEY = re.compile(r"[A-Za-z_ ]*\d+")
_AFTER_JSON = re.compile(r"[\s,;.]*(?:```|~~~|\n|\Z)")
_DEEPEST = 4
_LONGEST_LITERAL = 100_000


def _read_json(text: str) -> list[str]:
    """Return the items of an array of texts, numbers or objects, of an object with one, or of JSON Lines.

    An array that was cut off yields its complete items. Python's quotes, a comma after the last item and an array
    without quotes are read, too.
    """
    start = re.search(r"[\[{]", text)
    if start is None:
        return []
    before, written = text[: start.start()], text[start.start() :]
    introduction = before.rpartition("\n")[2].strip()
    if before.count("\n") > 2 or _has_markers(before) or (introduction and introduction[-1] not in ".!:"):
        return []  # brackets inside an item
    try:
        value, end = json.JSONDecoder().raw_decode(written)
    except RecursionError:
        return []
    except ValueError:
        return _read_broken_json(written)
    if not _AFTER_JSON.match(written, end):
        return []  # [1] Actor
    if isinstance(value, dict) and len(values := _read_json_lines(written)) > 1:
        value = values
    return _list_texts(value)


def _list_texts(value: Any, depth: int = 0) -> list[str]:
    """Return the items of a value: those of the only list in it, or its values if their keys are numbered."""
    if isinstance(value, list):
        return [text for item in cast("list[Any]", value) if (text := _to_text(item)) is not None]
    if not isinstance(value, dict) or depth == _DEEPEST:
        return []
    table = cast("dict[str, Any]", value)
    inner: list[Any] = [part for part in table.values() if isinstance(part, (list, dict))]
    if len(inner) == 1:
        return _list_texts(inner[0], depth + 1)
    texts = {key: text for key, text in table.items() if isinstance(text, str)}
    if len(texts) < 2 or len(texts) != len(table):
        return []
    if all(map(_NUMBERED_KEY.fullmatch, texts)):
        return list(texts.values())
    return [f"{key}: {text}" for key, text in texts.items()]


def _to_text(item: Any) -> str | None:
    """Return a text, a number as text, or the texts of an object joined by colons."""
    if isinstance(item, dict):
        texts = [text for text in cast("dict[str, Any]", item).values() if isinstance(text, str)]
        return ": ".join(texts) or None
    if isinstance(item, (int, float)) and not isinstance(item, bool):
        return str(item)
    return item if isinstance(item, str) else None


def _read_json_lines(written: str) -> list[Any]:
    values: list[Any] = []
    for line in written.splitlines():
        try:
            values.append(json.loads(line.strip().rstrip(",")))
        except (ValueError, RecursionError):
            break
    return values


def _read_broken_json(written: str) -> list[str]:
    if opened := _CUT_OFF.match(written):
        items: list[str] = []
        position = opened.end()
        while text := _TEXT.match(written, position):
            items.append(json.loads(text["text"], strict=False))
            position = text.end()
        return items if written[position:].lstrip()[:1] in ("", '"', "]") else []
    written = written.strip().strip("`~").strip()
    written = written[: max(written.rfind("]"), written.rfind("}")) + 1]
    if len(written) <= _LONGEST_LITERAL:
        try:
            return _list_texts(ast.literal_eval(written))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            pass
    bare = _BARE.match(written)
    return [item.strip() for item in bare["inside"].split(",")] if bare else []


# Lines that begin with a marker: a number, a letter, a bullet or a heading.


_HEADING = re.compile(r"^#{1,6}\s|^(?:\*\*|__)[^*]+(?:\*\*|__):?$")
_BOLD_LINE = re.compile(r"^\*\*(?P<item>[^*]+)\*\*:?$")
_BULLET = re.compile(r"^(?:[-*‣–—+][^\S\n]+|[•◦●○■□▪▫►▸→✓✔✅·]\s*)(?:\[[ xX]?\]\s+)?(?P<item>.*)$")


class _MarkStyle(NamedTuple):
    """One way to mark items."""

    pattern: re.Pattern[str]
    """Its groups: the item, ``value`` where it says which item it is, ``label`` where all have the same word."""
    least: int = 2
    """Items below which the marks may be something else."""
    counts: bool = False
    """True if only lines that count up from 1 are items."""
    titles: bool = False
    """True if a marked line is a title and the text below it a description."""


_STYLES = (
    _MarkStyle(NUMBERED, least=1),
    _MarkStyle(
        re.compile(
            rf"^(?:\#{{1,6}}\s+)?{BOLD}(?P<label>[^\W\d_]+)\s*\#?(?P<value>\d{{1,6}}){BOLD}"
            rf"(?:\s*[.:)\uff1a]|\s+[-–—](?=\s)){AFTER}"
        ),
        counts=True,
    ),
    _MarkStyle(
        re.compile(rf"(?i)^{BOLD}(?:n[or]\.\s+)?\#?(?P<value>\d{{1,6}})(?:[.:]|\s){AFTER}"), counts=True
    ),
    _MarkStyle(_BULLET, least=1),
    _MarkStyle(re.compile(rf"^{BOLD}[(\uff08]?(?P<value>[a-z])[.)\uff09](?=\s){AFTER}"), counts=True),
    _MarkStyle(re.compile(rf"^{BOLD}\(?(?P<value>[A-Z])\)(?=\s){AFTER}"), counts=True),
    _MarkStyle(re.compile(rf"^{BOLD}(?P<value>[A-Z])\.(?=\s){AFTER}"), least=3, counts=True),
    _MarkStyle(re.compile(r"^(?:[-–]|\*(?![^*]*\*))(?P<item>[^\W\d_].*)$")),
    *(_MarkStyle(re.compile(rf"^#{{{level}}}\s+(?P<item>\S.*)$"), titles=True) for level in range(6, 0, -1)),
    _MarkStyle(_BOLD_LINE, titles=True),
)


def _has_markers(text: str) -> bool:
    return any(NUMBERED.match(line) or _BULLET.match(line) for line in map(str.strip, text.split("\n")))


def _read_marked_lines(lines: Sequence[str]) -> list[str]:
    """Return the items of the outermost list in ``lines``; an empty list if no line has a marker.

    Indented lines and lines directly below an item belong to it. Headings between items and text before or after the
    list do not.
    """
    wide = [line.expandtabs(4) for line in lines]
    parsed = [(len(line) - len(line.lstrip()), line.strip()) for line in wide]
    lists = [marked for style in _STYLES if len((marked := _MarkedList(style, parsed)).items) >= style.least]
    if not lists:
        return []
    best = min(lists, key=lambda marked: marked.outermost)  # among equals, the first
    items = [item.join(titles=best.style.titles) for item in best.items]
    return items if best.style.pattern is NUMBERED else strip_count(items)


@dataclass(slots=True)
class _Item:
    title: str
    below: list[str] = field(default_factory=list[str])
    """Lines that belong to it: indented, or in another paragraph."""
    loose: list[str] = field(default_factory=list[str])
    """Unindented lines directly below it: the rest of the item, or a remark on the whole list."""

    def join(self, *, titles: bool) -> str:
        below = [*self.loose, *self.below]
        title = self.title.rstrip()
        half_bold = title.count("**") == 1 and title.endswith("**")  # the opening ** preceded the number
        title = title.removesuffix("**") if half_bold else title
        is_title = titles or half_bold or _BOLD_LINE.match(title)
        if below and is_title and not title.strip("*_").endswith(_ENDS):
            title += ":"
        return " ".join([title, *below]).strip()


class _MarkedList:
    """The list in ``lines``, which are indentations and texts, whose items have the marks of ``style``."""

    def __init__(self, style: _MarkStyle, lines: Sequence[tuple[int, str]]) -> None:
        self.style = style
        self.items: list[_Item] = []
        self.outermost = 0
        """Indentation of its first marker."""
        deepest = last = described = 0
        label: str | None = None
        after_blank = False
        paragraphs: list[list[str]] = []  # unindented, since the last item
        for indent, text in lines:
            match = style.pattern.match(text) if text else None
            groups = match.groupdict() if match else {}
            value = _read_value(groups.get("value"), last + 1)
            # A marker that is indented further is that of a list inside an item; " 9." is no more than "10." is.
            inside = bool(self.items) and indent > deepest
            other = style.counts and (value != last + 1 or label not in (None, groups.get("label")))
            if match and not inside and not other:
                if remarks := [lines for lines in paragraphs if not _is_heading(lines)]:
                    goes_on = style.titles or ("value" in groups and value in (last, last + 1))
                    if not goes_on:
                        break  # a remark ended the list, and this marker begins another one
                    self.items[-1].below += [line for paragraph in remarks for line in paragraph]
                    described += 1
                self.outermost = self.outermost if self.items else indent
                deepest, last, label, paragraphs = max(deepest, indent), value, groups.get("label"), []
                self.items.append(_Item(match["item"]))
            elif text and self.items:
                if not paragraphs and indent > self.outermost:
                    self.items[-1].below.append(text)
                elif not paragraphs and not after_blank and not _HEADING.match(text):
                    self.items[-1].loose.append(text)
                elif after_blank or not paragraphs:
                    paragraphs.append([text])
                else:
                    paragraphs[-1].append(text)
            after_blank = not text
        if len(self.items) > 1:
            self._end(described, [lines for lines in paragraphs if not _is_heading(lines)])

    def _end(self, described: int, remarks: Sequence[Sequence[str]]) -> None:
        """Decide whether the text below the last item belongs to it or is a remark on the whole list."""
        *others, last = self.items
        if described == len(others) and remarks:
            last.below += remarks[0]
        is_sentence = last.loose and last.loose[0][0].isupper() and last.loose[-1].endswith(_ENDS)
        if is_sentence and not any(item.loose for item in others):
            last.loose.clear()


def _read_value(value: str | None, following: int) -> int:
    """Return which item a marker says it is; the ``following`` one if it does not say it."""
    if value is None:
        return following
    return int(value) if value.isdecimal() else ord(value.lower()) - ord("a") + 1


def _is_heading(paragraph: Sequence[str]) -> bool:
    """Return True for a heading: bold, marked as one, or a few words and a colon."""
    line = paragraph[0]
    short = line.endswith((":", "\uff1a")) and len(line.split()) <= 10
    return len(paragraph) == 1 and (short or bool(_HEADING.match(line)))


# Lines without markers, and lines that contain several items.


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
_FIRST_OF_ROW = re.compile(r"(?:^|[\s:])\(?1[.)]\s*(?=[^\W\d_])")


def _split_counted(item: str) -> list[str]:
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
    is_list = len(longest) > 1 and not any(map(_is_sentence, longest)) and all(map(_is_sentence, beside))
    items = longest if is_list else [line for block in blocks for line in block]
    if items and _DECLINES.match(items[0]) and (len(items) == 1 or _is_sentence(items[0])):
        return []
    if len(items) == 1 and not single and (first := _FIRST_OF_ROW.search(items[0])):
        counted = _split_counted(items[0][first.end() :])
        if len(counted) > 1:
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
    for mark, split in _PARTS.items():
        parts = [_AND.sub("", part.strip()) for part in split.split(line.rstrip(".,; "))]
        last = _LAST_TWO.fullmatch(parts[-1]) if mark == "," else None
        if last and not any(" and " in part for part in parts[:-1]):
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


# Items without what surrounds them.


_BREAK = re.compile(r"(?:\\|<br\s*/?>)$", re.IGNORECASE)
_LAYERS = 10
"""Maximum number of quotes, emphases and separators that are removed from an item one by one."""
_DASH = re.compile(r"^[-–•*]\s+(?=[^\W\d_])")
_BOLD_TITLE = re.compile(
    r"^(?:\*\*|__)(?P<title>[^*]+?)(?P<colon>:?)(?:\*\*|__)(?=\s*[:\uff1a–—-]|(?<=:\*\*))"
)
_WRAPS = (
    *(("**", "**"), ("__", "__"), ("*", "*"), ("_", "_"), ("`", "`"), ('"', '"'), ("'", "'")),
    *(("“", "”"), ("\u2018", "\u2019"), ("„", "“"), ("«", "»"), ("»", "«"), ("「", "」"), ("『", "』")),
)


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
        wrapped = item.startswith(opens) and item.endswith(closes)
        if inner and wrapped and opens not in inner and closes not in inner:
            return inner
    return item


def _strip_full_stops(items: list[str]) -> list[str]:
    """Return names without a full stop after each; sentences keep theirs."""
    if len(items) > 1 and all(
        item.endswith(".") and "." not in item[:-1] and len(item.split()) <= _LONGEST_NAME for item in items
    ):
        return [item[:-1] for item in items]
    return items


# Builds grammars and schemas that constrain a model's reply to a list.


_WITHIN_WORDS = "A-Za-z'()&/+#-"
_LONGEST = 120
"""Maximum characters of an item."""
_BEGINNINGS = "ABCDEFGHIJKLMNOPRSTUVW"
"""Initial letters for which a small model finds a real word."""
_GROUPS = 10
_MOST_WORDS = 12
_SHIFT = 3
"""Number of letters by which the groups shift from one question to the next."""


def build_list_schema() -> Mapping[str, object]:
    """Return the JSON schema of a list, for endpoints that take ``response_format``."""
    return {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "string"}}},
        "required": ["items"],
        "additionalProperties": False,
    }


def build_list_grammar(count: int) -> str:
    """Return the GBNF grammar of a numbered list of ``count`` items for llama.cpp."""
    return _grammar(["A-Z"], count, f"[0-9 ,%{_WITHIN_WORDS}]{{0,{_LONGEST - 1}}}")


def build_varied_list_grammar(count: int, question: int) -> str:
    """Return the GBNF grammar of a list that keeps a very small model from repeating one item on every line.

    Each of ten consecutive items must begin with one of its own two or three letters, which change from ``question``
    to ``question``. Items have up to twelve words and no digits, after which such a model only continues counting.
    """
    word = f'[{_WITHIN_WORDS}]* ","?'
    return _grammar(_beginnings(question), count, f'{word} (" " [A-Za-z(&] {word}){{0,{_MOST_WORDS - 1}}}')


def _grammar(beginnings: Sequence[str], count: int, rest: str) -> str:
    lines = " ".join(
        f'"{number}. " [{beginnings[(number - 1) % len(beginnings)]}] rest "\\n"'
        for number in range(1, count + 1)
    )
    return f"root ::= {lines}\nrest ::= {rest}\n"


def _beginnings(question: int) -> Sequence[str]:
    """Return the letters in ten groups, shifted by the number of the question."""
    start = _SHIFT * question % len(_BEGINNINGS)
    letters = _BEGINNINGS[start:] + _BEGINNINGS[:start]
    edges = [group * len(letters) // _GROUPS for group in range(_GROUPS + 1)]
    return [letters[edges[group] : edges[group + 1]] for group in range(_GROUPS)]
