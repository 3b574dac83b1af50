"""Conversations as the page shows them: quotations marked, long turns shortened so that the page stays small."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from bactrian.analyze.excerpts import QUOTES, AnnotatedSession
from bactrian.language.quotation import find_quotation
from bactrian.records.finding import Behaviour, Finding
from bactrian.records.session import Session
from bactrian.records.text import to_printable
from bactrian.records.turn import Turn

ALL_CONVERSATIONS = 1_000_000
"""Most bytes of all conversations of a page."""
_ONE_CONVERSATION = 48_000
"""Most bytes of a conversation; its longest turns are shortened to fit."""
_MARKUP = 220
"""Bytes of a turn besides its text."""
_AROUND = 160
"""Characters of a turn before and after a quotation."""
_FENCE = re.compile(r"^[ \t]*(```|~~~)[^\n]*\n(.*?)(?:^[ \t]*\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Passage:
    """A stretch of a turn's text."""

    text: str
    codes: tuple[Behaviour, ...] = ()
    """Behaviours whose evidence it is."""
    is_code: bool = False


@dataclass(frozen=True, slots=True)
class ExcerptMessage:
    """A turn as the page shows it."""

    anchor: str
    turn: Turn
    passages: tuple[Passage, ...]
    findings: tuple[Finding, ...]
    left_out: int
    """Characters that are left out."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A session as the page shows it."""

    anchor: str
    session: Session
    messages: tuple[ExcerptMessage, ...]
    codes: tuple[Behaviour, ...]
    """The behaviours that it shows."""


@dataclass(frozen=True, slots=True)
class Quotation:
    """The words that show a behaviour, with some before and after them."""

    finding: Finding
    role: str
    before: str
    words: str
    after: str
    anchor: str


def fit_conversations(
    sessions: Sequence[AnnotatedSession], prefix: str, room: int = ALL_CONVERSATIONS
) -> tuple[Excerpt, ...]:
    """Return the sessions that fit into ``room`` bytes, the first ones first. ``prefix`` begins their anchors."""
    shown: list[Excerpt] = []
    for number, one in enumerate(sessions, start=1):
        sizes = [_measure(turn.text) for turn in one.session.turns]
        longest = find_cap(sizes, max(_ONE_CONVERSATION - _MARKUP * len(sizes), 0))
        size = sum(min(each, longest) + _MARKUP for each in sizes)
        if size <= room:
            room -= size
            shown.append(_arrange(one, f"{prefix}-{number}", longest))
    return tuple(shown)


def find_cap(sizes: Sequence[int], room: int) -> int:
    """Return the largest size to which all ``sizes`` are cut so that their sum is at most ``room``."""
    left = room
    for place, size in enumerate(ordered := sorted(sizes)):
        share = left // (len(ordered) - place)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def choose_quotations(
    conversations: Sequence[Excerpt],
) -> Mapping[Behaviour, tuple[Quotation, ...]]:
    """Return three quotations of each behaviour, the surest first, each from another conversation where possible."""
    places = [
        (finding, message)
        for one in conversations
        for message in one.messages
        for finding in message.findings
    ]
    places.sort(key=lambda place: -place[0].confidence)
    chosen: dict[Behaviour, tuple[Quotation, ...]] = {}
    for code in dict.fromkeys(finding.behaviour for finding, _ in places):
        own = [place for place in places if place[0].behaviour == code]
        seen: set[str] = set()
        first = [place for place in own if not (place[0].session in seen or seen.add(place[0].session))]
        more = [place for place in own if place not in first]
        chosen[code] = tuple(_quote(*place) for place in [*first, *more][:QUOTES])
    return chosen


def _measure(text: str) -> int:
    """Return the bytes of ``text`` on the page."""
    return len(text.encode(errors="replace")) + 4 * sum(map(text.count, "<>&\"'"))


def _arrange(one: AnnotatedSession, anchor: str, longest: int) -> Excerpt:
    messages: list[ExcerptMessage] = []
    for turn in one.session.turns:
        mine = tuple(found for found in one.findings if found.turn == turn.number)
        whole = to_printable(turn.text)
        share = min(1.0, longest / max(_measure(turn.text), 1))
        text = whole if share == 1.0 else whole[: int(len(whole) * share)]
        messages.append(
            ExcerptMessage(
                f"{anchor}-{turn.number}",
                turn,
                tuple(_split(text.strip(), mine)),
                mine,
                len(whole) - len(text),
            )
        )
    codes = tuple(dict.fromkeys(found.behaviour for found in one.findings))
    return Excerpt(anchor, one.session, tuple(messages), codes)


def _split(text: str, findings: Sequence[Finding]) -> Iterator[Passage]:
    """Yield the paragraphs and blocks of code of ``text``, cut where a quotation begins or ends."""
    marks = [
        (*place, found.behaviour)
        for found in findings
        if (place := find_quotation(text, to_printable(found.quote)))
    ]
    code = [found.span(2) for found in _FENCE.finditer(text)]
    fences = [found.span() for found in _FENCE.finditer(text)]
    ends = {0, len(text), *(at for span in (*code, *fences) for at in span)}
    cuts = sorted({*ends, *(at for begin, end, _ in marks for at in (begin, end))})
    for begin, end in pairwise(cuts):
        is_code = any(first <= begin and end <= last for first, last in code)
        if not is_code and any(first <= begin and end <= last for first, last in fences):
            continue  # the fence itself
        codes = tuple(dict.fromkeys(name for first, last, name in marks if first <= begin and end <= last))
        yield Passage(text[begin:end], codes, is_code)


def _quote(finding: Finding, message: ExcerptMessage) -> Quotation:
    text = to_printable(message.turn.text)
    place = find_quotation(text, to_printable(finding.quote))
    if place is None:
        before, words, after = "", to_printable(finding.quote) or text[: 2 * _AROUND], ""
    else:
        begin, end = place
        before = ("… " if begin > _AROUND else "") + text[max(begin - _AROUND, 0) : begin]
        words = text[begin:end]
        after = text[end : end + _AROUND] + (" …" if len(text) > end + _AROUND else "")
    return Quotation(finding, message.turn.role, before, words, after, message.anchor)
