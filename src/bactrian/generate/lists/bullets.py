"""Reads the items of lists whose lines begin with a marker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from bactrian.generate.lists.markers import BOLD_LINE, HEADING, MARKER_STYLES, MarkerStyle, normalize_digits
from bactrian.language.numbering import strip_count

_ENDS = (".", "!", "?", ":", "\uff1a")


def read_marked_items(lines: Sequence[str]) -> list[str]:
    """Return the items of the outermost list in ``lines``; an empty list if no line has a marker.

    Indented lines and lines directly below an item belong to it. Headings between items and text before or after the
    list do not.
    """
    parsed = [_parse_line(line) for line in lines]
    found = [found for shape in MARKER_STYLES if len((found := _collect(parsed, shape)).items) >= shape.least]
    if not found:
        return []
    best = min(found, key=lambda each: each.outermost)  # among equals, the first
    items = best.join()
    return items if best.shape.value is int else strip_count(items)


@dataclass(frozen=True, slots=True)
class _ListLine:
    indent: int
    text: str


@dataclass(slots=True)
class _Item:
    title: str
    own: list[str] = field(default_factory=list[str])
    """Continuation lines: indented, or in another paragraph."""
    loose: list[str] = field(default_factory=list[str])
    """Unindented lines directly below it: the rest of the item, or a remark on the whole list."""

    def join(self, *, titles: bool) -> str:
        below = [*self.loose, *self.own]
        title = self.title.rstrip()
        half_bold = title.count("**") == 1 and title.endswith("**")  # the opening ** preceded the number
        title = title.removesuffix("**") if half_bold else title
        if (
            below
            and (titles or half_bold or BOLD_LINE.match(title))
            and not title.strip("*_").endswith(_ENDS)
        ):
            return f"{title}: {' '.join(below)}"
        return " ".join([title, *below]).strip()


@dataclass(slots=True)
class _MarkedList:
    """The list with one marker style, as far as it has been read."""

    shape: MarkerStyle
    items: list[_Item] = field(default_factory=list[_Item])
    outermost: int = 0
    """Indentation of its first marker."""
    depth: int = 0
    """Largest indentation of its markers so far: ``9.`` may be indented further than ``10.``"""
    last: int = 0
    label: str | None = None
    paragraphs: list[list[str]] = field(default_factory=list[list[str]])
    """Unindented paragraphs since the last item."""
    described: int = 0
    """Number of items to which such paragraphs turned out to belong."""

    def mark(self, line: _ListLine) -> re.Match[str] | None:
        """Return the line's marker if it can belong to this list."""
        match = self.shape.pattern.match(line.text)
        if match is None or (self.items and line.indent > self.depth):
            return None
        if self.shape.counts and (
            self._value(match) != self.last + 1 or self.label not in (None, _label(match))
        ):
            return None
        return match

    def begin(self, line: _ListLine, match: re.Match[str]) -> bool:
        """Begin an item. Return False if a remark ended the list, so that this marker begins another one."""
        value = self._value(match)
        if remarks := self._find_remarks():
            goes_on = value in (self.last, self.last + 1) if self.shape.value else self.shape.titles
            if not goes_on:
                return False
            self.items[-1].own += [text for paragraph in remarks for text in paragraph]
            self.described += 1
        self.paragraphs = []
        self.outermost = self.outermost if self.items else line.indent
        self.depth = max(self.depth, line.indent)
        self.last, self.label = value, _label(match)
        self.items.append(_Item(match["item"]))
        return True

    def add(self, line: _ListLine, *, after_blank: bool) -> None:
        """Add a line without a marker below an item."""
        if not self.paragraphs and line.indent > self.outermost:
            self.items[-1].own.append(line.text)
        elif not self.paragraphs and not after_blank and not HEADING.match(line.text):
            self.items[-1].loose.append(line.text)
        elif after_blank or not self.paragraphs:
            self.paragraphs.append([line.text])
        else:
            self.paragraphs[-1].append(line.text)

    def end(self) -> None:
        """Decide whether the text below the last item belongs to it or is a remark on the whole list."""
        if not self.items:
            return
        *others, last = self.items
        if others and self.described == len(others) and (remarks := self._find_remarks()):
            last.own += remarks[0]
        if last.loose and others and not any(item.loose for item in others) and _is_sentence(last.loose):
            last.loose.clear()

    def join(self) -> list[str]:
        return [item.join(titles=self.shape.titles) for item in self.items]

    def _value(self, match: re.Match[str]) -> int:
        return self.shape.value(match["value"]) if self.shape.value else self.last + 1

    def _find_remarks(self) -> list[list[str]]:
        return [paragraph for paragraph in self.paragraphs if not _is_heading(paragraph)]


def _collect(lines: Sequence[_ListLine], shape: MarkerStyle) -> _MarkedList:
    marked = _MarkedList(shape)
    after_blank = False
    for line in lines:
        if match := marked.mark(line):
            if not marked.begin(line, match):
                break
        elif line.text and marked.items:
            marked.add(line, after_blank=after_blank)
        after_blank = not line.text
    marked.end()
    return marked


def _parse_line(line: str) -> _ListLine:
    wide = line.expandtabs(4)
    return _ListLine(len(wide) - len(wide.lstrip()), normalize_digits(line.strip()))


def _label(match: re.Match[str]) -> str | None:
    return match.groupdict().get("label")


def _is_heading(paragraph: Sequence[str]) -> bool:
    """Return True for a heading: bold, marked as one, or a few words and a colon."""
    line = paragraph[0]
    return len(paragraph) == 1 and bool(
        HEADING.match(line) or (line.endswith((":", "\uff1a")) and len(line.split()) <= 10)
    )


def _is_sentence(lines: Sequence[str]) -> bool:
    return lines[0][0].isupper() and lines[-1].endswith(_ENDS)
