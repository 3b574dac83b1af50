"""Conversations for a report: which sessions it names, and how its page shows a few of them as a whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from bactrian.analyze.aggregate import SessionSummary
from bactrian.analyze.behaviours import OwnBehaviour, find_behaviours
from bactrian.blocks import Block, mark_quotations, split_blocks
from bactrian.protocol.fences import find_quotation
from bactrian.records.run import Behaviour, Finding
from bactrian.records.session import Session
from bactrian.records.text import to_printable
from bactrian.records.turn import Turn
from bactrian.store import RunStore

_NAMED = 5  # number of worst, and of best, sessions that are listed
_RANDOM = 10  # number of sessions that are chosen at random
QUOTES = 3  # Quotations of each behaviour
_PAIRS = 6  # Pairs of sessions that a comparison shows


@dataclass(frozen=True, slots=True)
class AnnotatedSession:
    """A session with the behaviours that its turns show."""

    session: Session
    findings: tuple[Finding, ...]


def list_worst(facts: Sequence[SessionSummary]) -> list[SessionSummary]:
    """Return those with the most turns that show a behaviour; of equals, the longer ones."""
    some = [session for session in facts if session.seen]
    shares = {session.id: len({seen.turn for seen in session.seen}) / session.messages for session in some}
    return sorted(some, key=lambda session: (-shares[session.id], -session.messages, session.id))[:_NAMED]


def list_best(facts: Sequence[SessionSummary]) -> list[SessionSummary]:
    """Return those that ended well and show no behaviour; of them, those that solved the most."""
    good = [
        session for session in facts if session.ending == "task_done" and not session.seen and session.solved
    ]
    return sorted(good, key=lambda session: (-session.solved, session.id))[:_NAMED]


def list_random(facts: Sequence[SessionSummary]) -> list[SessionSummary]:
    """Return ten by the hash of their id, so that the same run gives the same ones."""
    return sorted(facts, key=_hash)[:_RANDOM]


def choose_sessions(facts: Sequence[SessionSummary], codes: Iterable[Behaviour]) -> list[str]:
    """Return the ids of the sessions that a page shows, the most important first.

    These are the worst, one for each behaviour, the best, the random ones, and two more for each behaviour.
    """
    worst = list_worst(facts)
    listed = {session.id for session in worst}
    ordered = [*worst, *(session for session in sorted(facts, key=_hash) if session.id not in listed)]
    with_code = [[session for session in ordered if code in session.behaviours][:QUOTES] for code in codes]
    chosen = (
        *worst,
        *(sessions[0] for sessions in with_code if sessions),
        *list_best(facts),
        *list_random(facts),
        *(session for sessions in with_code for session in sessions),
    )
    return list(dict.fromkeys(session.id for session in chosen))


def choose_pairs(pairs: Sequence[tuple[SessionSummary, SessionSummary]]) -> list[str]:
    """Return the ids of pairs to show side by side: first those that end or behave the most differently."""

    def compare(pair: tuple[SessionSummary, SessionSummary]) -> tuple[int, bytes]:
        a, b = pair
        return -len(a.behaviours ^ b.behaviours) - (a.ending != b.ending), _hash(a)

    return [a.id for a, _ in sorted(pairs, key=compare)[:_PAIRS]]


async def read_annotated(
    store: RunStore, ids: Iterable[str], custom: Sequence[OwnBehaviour] | None = None
) -> tuple[AnnotatedSession, ...]:
    """Return the sessions with these ids in their order, with their findings; those not found are left out."""
    sessions = [session for name in ids if (session := await store.session(name)) is not None]
    answers = await store.answers()
    return tuple(
        AnnotatedSession(session, find_behaviours(session, custom=custom, answers=answers))
        for session in sessions
    )


def _hash(session: SessionSummary) -> bytes:
    return blake2b(session.id.encode(errors="surrogatepass"), digest_size=8).digest()


# Conversations as the page shows them: quotations marked, long turns shortened so that the page stays small.


# Most bytes of all conversations of a page: each figure can be checked there, and the file can be mailed.
ALL_CONVERSATIONS = 1_000_000
_ONE_CONVERSATION = 48_000  # most bytes of a conversation; its longest turns are shortened to fit
_MARKUP = 220  # bytes of a turn besides its text
_AROUND = 160  # characters of a turn before and after a quotation


@dataclass(frozen=True, slots=True)
class ExcerptMessage:
    """A turn as the page shows it."""

    anchor: str
    turn: Turn
    blocks: tuple[Block[Behaviour], ...]  # Its text, labelled with the behaviours whose evidence it is
    findings: tuple[Finding, ...]
    left_out: int  # characters that are left out


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A session as the page shows it."""

    anchor: str
    session: Session
    messages: tuple[ExcerptMessage, ...]
    codes: tuple[Behaviour, ...]  # the behaviours that it shows


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
    for number, annotated in enumerate(sessions, start=1):
        sizes = [_measure_markup(turn.text) for turn in annotated.session.turns]
        longest = find_cap(sizes, max(_ONE_CONVERSATION - _MARKUP * len(sizes), 0))
        size = sum(min(each, longest) + _MARKUP for each in sizes)
        if size <= room:
            room -= size
            shown.append(_arrange(annotated, f"{prefix}-{number}", longest))
    return tuple(shown)


def find_cap(sizes: Sequence[int], room: int) -> int:
    """Return the largest size to which all ``sizes`` are cut so that their sum is at most ``room``."""
    left = room
    for number, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - number)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def choose_quotations(
    conversations: Sequence[Excerpt],
) -> Mapping[Behaviour, tuple[Quotation, ...]]:
    """Return three quotations of each behaviour, the surest first, each from another conversation where possible."""
    evidence = [
        (finding, message)
        for excerpt in conversations
        for message in excerpt.messages
        for finding in message.findings
    ]
    evidence.sort(key=lambda pair: -pair[0].confidence)
    chosen: dict[Behaviour, tuple[Quotation, ...]] = {}
    for code in dict.fromkeys(finding.behaviour for finding, _ in evidence):
        pairs = [pair for pair in evidence if pair[0].behaviour == code]
        seen: set[str] = set()
        first = [pair for pair in pairs if not (pair[0].session in seen or seen.add(pair[0].session))]
        more = [pair for pair in pairs if pair not in first]
        chosen[code] = tuple(_quote(*pair) for pair in [*first, *more][:QUOTES])
    return chosen


def _measure_markup(text: str) -> int:
    """Return the bytes of ``text`` on the page."""
    return len(text.encode(errors="replace")) + 4 * sum(map(text.count, "<>&\"'"))


def _arrange(annotated: AnnotatedSession, anchor: str, longest: int) -> Excerpt:
    messages: list[ExcerptMessage] = []
    for turn in annotated.session.turns:
        findings = tuple(finding for finding in annotated.findings if finding.turn == turn.number)
        whole = to_printable(turn.text)
        share = min(1.0, longest / max(_measure_markup(turn.text), 1))
        text = whole if share == 1.0 else whole[: int(len(whole) * share)]
        quotations = [(finding.behaviour, to_printable(finding.quote)) for finding in findings]
        blocks = tuple(split_blocks(text, mark_quotations(text, quotations)))
        left_out = len(whole) - len(text)
        messages.append(ExcerptMessage(f"{anchor}-{turn.number}", turn, blocks, findings, left_out))
    codes = tuple(dict.fromkeys(finding.behaviour for finding in annotated.findings))
    return Excerpt(anchor, annotated.session, tuple(messages), codes)


def _quote(finding: Finding, message: ExcerptMessage) -> Quotation:
    text = to_printable(message.turn.text)
    span = find_quotation(text, to_printable(finding.quote))
    if span is None:
        before, words, after = "", to_printable(finding.quote) or text[: 2 * _AROUND], ""
    else:
        begin, end = span
        before = ("… " if begin > _AROUND else "") + text[max(begin - _AROUND, 0) : begin]
        words = text[begin:end]
        after = text[end : end + _AROUND] + (" …" if len(text) > end + _AROUND else "")
    return Quotation(finding, message.turn.role, before, words, after, message.anchor)
