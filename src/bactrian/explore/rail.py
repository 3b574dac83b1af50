"""The rail of a conversation: a tick for each message, and the places between which ``n`` and ``p`` go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bactrian.explore.layout import find_side
from bactrian.explore.search_words import find_hits, read_search
from bactrian.explore.session_findings import is_counted
from bactrian.explore.session_lists import ListFilter
from bactrian.records.run import Finding, FindingKey
from bactrian.records.session import Session
from bactrian.records.turn import Turn

# A tick of a longer conversation stands for several messages.
MOST_TICKS = 480
# Lengths of a tick, the longest of which is that of the longest message.
_LENGTHS = 8


@dataclass(frozen=True, slots=True)
class Tick:
    """One message on the rail, or some that follow each other."""

    # Numbers of the messages.
    first: int
    last: int
    # The class of its colour.
    side: str
    # From 1 to 8, by the tokens of the longest of its messages.
    length: int
    # What it stands for, in words.
    label: str
    has_finding: bool
    has_hit: bool


@dataclass(frozen=True, slots=True)
class Rail:
    """The messages of a conversation at a glance."""

    ticks: tuple[Tick, ...]
    # Where ``n`` and ``p`` stop, as ids of the page: findings, and messages with words of the search.
    stops: tuple[str, ...]
    # The message of the first stop, if a filter led here; 0 if none did, or nothing of it is in a message.
    found: int


def build_rail(
    session: Session,
    findings: Sequence[Finding],
    filter_: ListFilter,
    answers: Mapping[FindingKey, bool] | None = None,
) -> Rail:
    """Return the rail of a conversation for a reader who comes from a list with this filter.

    A filter that names behaviours or words leads to these; any other, to all findings. Ticks show those that count, by
    the ``answers`` of readers.
    """
    terms = read_search(filter_.q)
    hits = {turn.number for turn in session.turns if any(find_hits(turn.text, terms))}
    codes = set(filter_.behaviour)
    wanted = [
        (finding.turn, f"finding-{number}")
        for number, finding in enumerate(findings, 1)
        if (finding.behaviour in codes if codes else not hits)
    ]
    stops = sorted([*wanted, *((number, f"turn-{number}") for number in hits)], key=lambda stop: stop[0])
    is_led = bool(stops) and bool(codes or hits)
    return Rail(
        tuple(_list_ticks(session, [found for found in findings if is_counted(found, answers or {})], hits)),
        tuple(id_ for _, id_ in stops),
        stops[0][0] if is_led else 0,
    )


def _list_ticks(session: Session, findings: Sequence[Finding], hits: set[int]) -> Iterator[Tick]:
    turns = session.turns
    shown = defaultdict[int, list[str]](list)
    for finding in findings:
        shown[finding.turn].append(finding.behaviour.replace("_", " "))
    sizes = _measure_turns(turns)
    longest = max(sizes, default=0) or 1
    each = -(-len(turns) // MOST_TICKS) or 1
    for begin in range(0, len(turns), each):
        some = turns[begin : begin + each]
        first, last = some[0].number, some[-1].number
        found = list(dict.fromkeys(code for turn in some for code in shown[turn.number]))
        is_hit = any(turn.number in hits for turn in some)
        what = f"Message {first}, {some[0].role}" if first == last else f"Messages {first} to {last}"
        yield Tick(
            first,
            last,
            find_side(session, some[0]),
            max(1, round(_LENGTHS * max(sizes[begin : begin + each]) / longest)),
            ", ".join((what, *found, *(("word of the search",) if is_hit else ()))),
            bool(found),
            is_hit,
        )


def _measure_turns(turns: Sequence[Turn]) -> list[int]:
    """Return the tokens of each message; its characters, if those of one message are not known."""
    tokens = [turn.usage.completion for turn in turns]
    return tokens if all(tokens) else [len(turn.text) for turn in turns]
