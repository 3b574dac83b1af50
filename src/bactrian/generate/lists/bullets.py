"""Items whose lines begin with a mark, gathered as a person would."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from bactrian.generate.lists.markers import BOLD_LINE, HEADING, MARKER_STYLES, MarkerStyle, normalize_digits
from bactrian.language.numbering import strip_count

_ENDS = (".", "!", "?", ":", "\uff1a")


def read_marked_items(lines: Sequence[str]) -> list[str]:
    """The items of the outermost list in ``lines``; none if no line bears a mark.

    Lines further in, and those directly below an item, belong to it. Headings between items do not, nor does what
    stands before and after the list.
    """
    laid_out = [_laid_out(line) for line in lines]
    found = [
        found for shape in MARKER_STYLES if len((found := _gathered(laid_out, shape)).items) >= shape.least
    ]
    if not found:
        return []
    best = min(found, key=lambda each: each.outermost)  # of those as far out, the first
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
    """Lines that go on with it: further in, or in another paragraph."""
    loose: list[str] = field(default_factory=list[str])
    """Lines directly below it that are no further in: its second half, or a remark on the whole list."""

    def join(self, *, titles: bool) -> str:
        below = [*self.loose, *self.own]
        title = self.title.rstrip()
        half_bold = title.count("**") == 1 and title.endswith("**")  # the other half stood before the number
        title = title.removesuffix("**") if half_bold else title
        if (
            below
            and (titles or half_bold or BOLD_LINE.match(title))
            and not title.strip("*_").endswith(_ENDS)
        ):
            return f"{title}: {' '.join(below)}"
        return " ".join([title, *below]).strip()


@dataclass(slots=True)
class _Gathering:
    """The list of one shape, as far as its lines have been seen."""

    shape: MarkerStyle
    items: list[_Item] = field(default_factory=list[_Item])
    outermost: int = 0
    """How far in its first mark stands."""
    depth: int = 0
    """How far in a mark of it may stand: ``9.`` stands further in than ``10.``"""
    last: int = 0
    label: str | None = None
    told: list[list[str]] = field(default_factory=list[list[str]])
    """Paragraphs since the last item that are no further in."""
    described: int = 0
    """Items that such paragraphs have been found to belong to."""

    def mark(self, line: _ListLine) -> re.Match[str] | None:
        """The line's mark, if it can be one of this list."""
        match = self.shape.pattern.match(line.text)
        if match is None or (self.items and line.indent > self.depth):
            return None
        if self.shape.counts and (
            self._value(match) != self.last + 1 or self.label not in (None, _label(match))
        ):
            return None
        return match

    def begin(self, line: _ListLine, match: re.Match[str]) -> bool:
        """Begin an item. False if this is another list, since a remark has ended the one before."""
        value = self._value(match)
        if told := self._told():
            goes_on = value in (self.last, self.last + 1) if self.shape.value else self.shape.titles
            if not goes_on:
                return False
            self.items[-1].own += [text for paragraph in told for text in paragraph]
            self.described += 1
        self.told = []
        self.outermost = self.outermost if self.items else line.indent
        self.depth = max(self.depth, line.indent)
        self.last, self.label = value, _label(match)
        self.items.append(_Item(match["item"]))
        return True

    def below(self, line: _ListLine, *, after_blank: bool) -> None:
        """Take a line without a mark that stands below an item."""
        if not self.told and line.indent > self.outermost:
            self.items[-1].own.append(line.text)
        elif not self.told and not after_blank and not HEADING.match(line.text):
            self.items[-1].loose.append(line.text)
        elif after_blank or not self.told:
            self.told.append([line.text])
        else:
            self.told[-1].append(line.text)

    def end(self) -> None:
        """Decide what stands below the last item: more of it, or a remark on the whole list."""
        if not self.items:
            return
        *others, last = self.items
        if others and self.described == len(others) and (told := self._told()):
            last.own += told[0]
        if last.loose and others and not any(item.loose for item in others) and _is_sentence(last.loose):
            last.loose.clear()

    def join(self) -> list[str]:
        return [item.join(titles=self.shape.titles) for item in self.items]

    def _value(self, match: re.Match[str]) -> int:
        return self.shape.value(match["value"]) if self.shape.value else self.last + 1

    def _told(self) -> list[list[str]]:
        return [paragraph for paragraph in self.told if not _is_heading(paragraph)]


def _gathered(lines: Sequence[_ListLine], shape: MarkerStyle) -> _Gathering:
    gathering = _Gathering(shape)
    after_blank = False
    for line in lines:
        if match := gathering.mark(line):
            if not gathering.begin(line, match):
                break
        elif line.text and gathering.items:
            gathering.below(line, after_blank=after_blank)
        after_blank = not line.text
    gathering.end()
    return gathering


def _laid_out(line: str) -> _ListLine:
    wide = line.expandtabs(4)
    return _ListLine(len(wide) - len(wide.lstrip()), normalize_digits(line.strip()))


def _label(match: re.Match[str]) -> str | None:
    return match.groupdict().get("label")


def _is_heading(paragraph: Sequence[str]) -> bool:
    """True for a title of what follows: bold, marked as one, or a few words and a colon."""
    line = paragraph[0]
    return len(paragraph) == 1 and bool(
        HEADING.match(line) or (line.endswith((":", "\uff1a")) and len(line.split()) <= 10)
    )


def _is_sentence(lines: Sequence[str]) -> bool:
    return lines[0][0].isupper() and lines[-1].endswith(_ENDS)
