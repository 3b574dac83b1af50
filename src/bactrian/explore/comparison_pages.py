"""Comparisons: two to six filters or runs with differences and intervals, and conversations side by side."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from itertools import zip_longest
from statistics import fmean
from typing import Any, cast

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bactrian.amounts import write_dollar_change, write_dollars, write_percent, write_points, write_signed
from bactrian.analyze.estimates import can_show, label_clusters
from bactrian.analyze.report import is_sure
from bactrian.errors import InputError
from bactrian.explore.conversation_pages import find_named_session
from bactrian.explore.layout import ShownMessage, show_turns
from bactrian.explore.rendering import get_explorer, render_page
from bactrian.explore.session_lists import REPEATED, ListedFacts, ListFilter, Listing
from bactrian.explore.statistics_pages import describe_readings
from bactrian.records.session import UNFINISHED, name_agents
from bactrian.records.turn import NOTHING_KNOWN
from bactrian.stats.clusters import ClusterEstimate, ClusterTotals, estimate_difference, sum_by_label
from bactrian.stats.intervals import PairedProportions

# The parameters of an address, in the order of the columns; the first is what the others are compared with.
SIDES = ("one", "two", "three", "four", "five", "six")
# Conversations side by side.
_MOST = 4

Value = Callable[[ListedFacts], float]


@dataclass(frozen=True)
class ComparedSide:
    """The conversations of a side, and what its numbers are estimated from."""

    name: str
    listing: Listing
    sessions: Sequence[ListedFacts]
    # Behaviours by the row of a conversation.
    shown: Mapping[int, frozenset[str]]
    # How many findings that were read are right, in words, by behaviour.
    readings: Mapping[str, str]

    @cached_property
    def _clusters(self) -> tuple[str, Sequence[Any]]:
        return _label(self.sessions)

    def select(self, code: str) -> ComparedSide:
        """Return the conversations that say something of a behaviour: they were searched, and can show it."""
        some = [facts for facts in self.sessions if facts.searched and can_show(facts, code)]
        return self if len(some) == len(self.sessions) else replace(self, sessions=some)

    def select_ended(self) -> ComparedSide:
        """Return the conversations that have ended: the others are no result."""
        return replace(self, sessions=[facts for facts in self.sessions if facts.ending != UNFINISHED])

    def estimate(self, value: Value) -> ClusterEstimate:
        """Estimate the mean of a value."""
        name, labels = self._clusters
        return ClusterTotals(labels, name=name).estimate(
            sum_by_label(zip(labels, map(value, self.sessions), strict=True))
        )


@dataclass(frozen=True, slots=True)
class ComparedChange:
    """A difference from the first side."""

    difference: str
    ends: str  # Its interval; empty without one.
    is_sure: bool  # True if the interval leaves out 0.
    pairs: str  # The numbers of the pairs, where these are not all conversations.
    withheld: str  # Why there is no interval.


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A line of a comparison: an estimate and a link for each side, and the differences from the first side."""

    name: str
    # The estimate in words, the query of its list, and how many findings that were read are right.
    cells: Sequence[tuple[str, str, str]]
    changes: Sequence[ComparedChange]


def _label(sessions: Sequence[ListedFacts]) -> tuple[str, Sequence[Any]]:
    roles = [(facts.assistant, facts.user) for facts in sessions]
    return label_clusters(roles, [facts.task for facts in sessions])


async def compare_filters(request: Request) -> Response:
    """Compare endings, behaviours, lengths, tokens and cost of two to six filters, such as runs."""
    library = get_explorer(request).library
    queries = [request.query_params.get(key, "") for key in SIDES]
    if not any(queries) and len(library.sets) > 1:
        queries = [f"data={name}" for name in list(library.sets)[:2]] + [""] * 4
    listings = [library.list_sessions(ListFilter.read(QueryParams(query))) for query in queries if query]
    sides: list[ComparedSide] = []
    pairs: list[int] = []
    sections: list[tuple[str, list[ComparedRow]]] = []
    if len(listings) > 1:
        sides = await asyncio.to_thread(lambda: [_read_side(listing) for listing in listings])
        matched = [_match(sides[0], side) for side in sides[1:]]
        pairs = [len(some) for some in matched]
        sections = await asyncio.to_thread(lambda: list(_list_sections(sides, matched)))
    changes = [change for _, rows in sections for row in rows for change in row.changes]
    told = (listing.count_stages().describe(listing.filter, behaviours=True) for listing in listings)
    return render_page(
        request,
        "compare.html",
        places=list(zip(SIDES, queries, strict=True)),
        names=list(library.sets),
        sides=sides,
        pairs=pairs,
        reading=" ".join(dict.fromkeys(filter(None, told))),
        sections=sections,
        withheld="; ".join(dict.fromkeys(change.withheld for change in changes if change.withheld)),
        some_pairs=any(change.pairs for change in changes),
    )


def _read_side(listing: Listing) -> ComparedSide:
    words = [
        ", ".join(cast("tuple[str, ...]", value)) if name in REPEATED else f"{name} {value}"
        for name, value in listing.filter.conditions.items()
    ]
    name = "; ".join(dict.fromkeys((*listing.filter.data, *words))) or "all conversations"
    facts, shown = listing.list_facts(), listing.list_shown()
    return ComparedSide(name, listing, facts, shown, describe_readings(listing))


Pairs = Sequence[tuple[ListedFacts, ListedFacts]]


def _match(first: ComparedSide, second: ComparedSide) -> Pairs:
    """Return the conversations on the same job: those with the same id, roles and idea that ended in both."""
    ended = {facts.job: facts for facts in first.sessions if facts.ending != UNFINISHED}
    return [
        (ended[other.job], other)
        for other in second.sessions
        if other.ending != UNFINISHED and other.job in ended and ended[other.job].row != other.row
    ]


def _list_sections(
    sides: Sequence[ComparedSide], matched: Sequence[Pairs]
) -> Iterator[tuple[str, list[ComparedRow]]]:
    shown: dict[int, frozenset[str]] = {row: codes for side in sides for row, codes in side.shown.items()}
    endings = {facts.ending for side in sides for facts in side.sessions} - {UNFINISHED}
    for title, field, codes in (
        ("Endings", "ending", endings),
        ("Behaviours", "behaviour", {code for some in shown.values() for code in some}),
    ):
        rows: list[tuple[float, ComparedRow]] = []
        for code in codes:
            if field == "ending":
                value: Value = lambda facts, code=code: float(facts.ending == code)  # noqa: E731
            else:
                value = lambda facts, code=code: float(code in shown.get(facts.row, ()))  # noqa: E731
            row, most = _make_row(sides, matched, code.replace("_", " "), value, {field: (code,)})
            rows.append((most, row))
        if rows:
            yield title, [row for _, row in sorted(rows, key=lambda pair: (-pair[0], pair[1].name))]
    means: tuple[tuple[str, Value, str], ...] = (
        ("messages", lambda facts: facts.turns, "longest"),
        ("tokens", lambda facts: facts.tokens, ""),
        *(
            [("cost of its own calls, US $", lambda facts: facts.cost, "cost")]
            if all(facts.cost >= 0 for side in sides for facts in side.sessions)
            else []
        ),
    )
    yield (
        "A conversation, on average",
        [_make_row(sides, matched, name, value, {"sort": sort})[0] for name, value, sort in means],
    )


def _make_row(
    sides: Sequence[ComparedSide], matched: Sequence[Pairs], name: str, value: Value, query: Mapping[str, Any]
) -> tuple[ComparedRow, float]:
    """Return a line, and its largest number."""
    is_share, (code,) = "sort" not in query, query.get("behaviour", ("",))
    if "ending" in query:
        parts = [side.select_ended() for side in sides]
    else:
        parts = [side.select(code) for side in sides] if code else sides

    def write(number: float) -> str:
        if is_share:
            return write_percent(number)
        return write_dollars(number) if "cost" in name else f"{number:,.1f}"

    def write_change(number: float) -> str:
        if is_share:
            return write_points(number, 1)
        return write_dollar_change(number) if "cost" in name else write_signed(number)

    estimates = [part.estimate(value) for part in parts]
    changes: list[ComparedChange] = []
    counted = {facts.row for part in parts for facts in part.sessions}
    for estimate, every in zip(estimates[1:], matched, strict=True):
        pairs = [pair for pair in every if all(facts.row in counted for facts in pair)]
        change = (
            _compare_pairs(pairs, value, is_share=is_share)
            if pairs
            else estimate_difference(estimate, estimates[0])
        )
        ends = change.interval
        told = "" if ends is None else f"{write_change(ends[0])} to {write_change(ends[1])}"
        sure = is_sure({"low": change.low, "high": change.high})
        # The pairs may be a part of the conversations, whose numbers their difference is not that of.
        means = [write(fmean(value(pair[side]) for pair in pairs)) for side in (0, 1) if pairs]
        of_pairs = " → ".join(means) if len(pairs) < max(len(part.sessions) for part in parts) else ""
        difference = "–" if change.value is None else write_change(change.value)
        changes.append(ComparedChange(difference, told, sure, of_pairs, change.withheld or ""))
    cells = [
        (
            write(estimate.value) if estimate.value is not None else _explain_none(side, code),
            side.listing.filter.write(**query),
            side.readings.get(code, ""),
        )
        for estimate, side in zip(estimates, sides, strict=True)
    ]
    return ComparedRow(name, cells, changes), max(estimate.value or 0.0 for estimate in estimates)


def _explain_none(side: ComparedSide, code: str) -> str:
    """Return why a side has no number: its conversations cannot show the behaviour, or are not searched yet."""
    return "does not apply" if code and any(facts.searched for facts in side.sessions) else "–"


def _compare_pairs(pairs: Pairs, value: Value, *, is_share: bool) -> ClusterEstimate:
    """Estimate the mean of the differences of pairs, as the report does."""
    name, labels = _label([first for first, _ in pairs])
    differences = [value(second) - value(first) for first, second in pairs]
    sums = sum_by_label(zip(labels, differences, strict=True))
    estimate = ClusterTotals(labels, name=name).estimate(sums, "difference")
    if is_share and name == "conversation":
        counts = Counter((value(first) > 0, value(second) > 0) for first, second in pairs)
        ways = ((True, True), (True, False), (False, True), (False, False))
        if interval := PairedProportions(*(counts[way] for way in ways)).interval:
            return replace(estimate, low=interval[0], high=interval[1], withheld=None)
    return estimate


# Conversations side by side, message by message.


async def compare_conversations(request: Request) -> Response:
    """Show two to four conversations in columns. Those of one task are compared word by word."""
    chosen = list(dict.fromkeys(request.query_params.getlist("pick")))[:_MOST]
    if len(chosen) < 2:
        raise InputError(
            "Two conversations are needed.", next="Go back, tick two to four in the list, and compare them."
        )
    columns: list[dict[str, Any]] = []
    messages: list[list[ShownMessage]] = []
    for pick in chosen:
        data, _, session_id = pick.partition("/")
        data_set, session = await find_named_session(request, data, session_id)
        known = await data_set.read_known(session)
        first, answers = session.turns[:100], known.confirmations
        turns = list(
            show_turns(session, first, known.findings, NOTHING_KNOWN, view="raw", confirmations=answers)
        )
        column = {"data": data, "session": session, "roles": name_agents(session)}
        messages.append(turns)
        columns.append({**column, "facts": known})
    same = len({column["session"].task.original for column in columns}) == 1
    rows: list[tuple[ShownMessage | None, ...]] = list(zip_longest(*messages))
    words = same and request.query_params.get("as") != "text"
    texts = [[None if shown is None else shown.turn.text for shown in row] for row in rows]
    differences = await asyncio.to_thread(lambda: [_mark_row(row) for row in texts]) if words else []
    query = request.url.include_query_params(**{"as": "text" if words else "words"}).query
    return render_page(
        request,
        "side_by_side.html",
        columns=columns,
        rows=rows,
        differences=differences,
        same=same,
        words=words,
        other=f"?{query}",
    )


# Words of a message that are compared; the time grows with their square.
_MOST_WORDS = 800


def _mark_row(texts: Sequence[str | None]) -> list[list[tuple[str, str]] | None]:
    first, *others = texts
    return [None, *(mark_words(first, other) if first and other else None for other in others)]


def mark_words(before: str, after: str) -> list[tuple[str, str]] | None:
    """Return the words of both texts in order, each piece with ``same``, ``gone`` or ``new``; the spaces stay.

    None for texts of more than 800 words.
    """
    first, second = (re.findall(r"\S+\s*|\s+", text) for text in (before, after))
    if max(len(first), len(second)) > _MOST_WORDS:
        return None
    pieces: list[tuple[str, str]] = []
    for kind, a, b, c, d in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        gone = [] if kind == "equal" else first[a:b]
        pieces += [("gone", "".join(gone))] if gone else []
        pieces += [("same" if kind == "equal" else "new", "".join(second[c:d]))] if c < d else []
    return pieces


ROUTES = (Route("/compare", compare_filters), Route("/compare/conversations", compare_conversations))
