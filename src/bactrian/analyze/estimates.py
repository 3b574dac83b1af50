"""Estimates over the sessions of a run, with 95 % intervals.

Sessions of one pair of roles are alike, and so are sessions on one task. Where some share a pair or a task, these are
the independent observations, not the sessions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from bactrian.amounts import write_ends as spell_ends
from bactrian.amounts import write_percent
from bactrian.analyze.aggregate import SessionSummary
from bactrian.analyze.learned import OF_INSTRUCTIONS, PAPER
from bactrian.records.session import UNFINISHED
from bactrian.stats.clusters import ClusterEstimate, ClusterTotals, estimate_ratio, sum_by_label
from bactrian.stats.intervals import Proportion, are_independent

COOPERATION = "cooperation_failed"  # the code for any of the four
Json = dict[str, Any]

VALUES: dict[str, Callable[[SessionSummary], float]] = {
    "sessions": lambda _: 1.0,
    "known": lambda session: float(session.has_usage),
    "ended": lambda session: float(session.ending != UNFINISHED),
    "messages": lambda session: session.messages,
    "solved": lambda session: session.solved,
    "user": lambda session: session.user_turns,
    "assistant": lambda session: session.assistant_turns,
    "tokens": lambda session: session.usage.total,
    "prompt": lambda session: session.usage.prompt,
    "cached": lambda session: session.usage.cached,
}


def label_clusters(roles: Sequence[Hashable], tasks: Sequence[Hashable]) -> tuple[str, Sequence[Hashable]]:
    """Return what the independent observations are called, and to which of them each session belongs.

    Args:
        roles: The pair of roles of each session.
        tasks: Its task, as it was before a specifier changed it.
    """
    for name, labels in (("role pair", roles), ("task", tasks)):
        if not are_independent(len(labels), len(set(labels)), 0):
            return name, labels
    return "conversation", range(len(roles))


_OF_TWO = ("role_flip", "infinite_loop", "early_done", "self_answer")  # need an AI user and an AI assistant


class Showing(Protocol):
    """What decides which behaviours a session can show."""

    @property
    def kind(self) -> str: ...
    @property
    def needs_code(self) -> bool: ...
    @property
    def has_instructor(self) -> bool: ...


def can_show(session: Showing, code: str) -> bool:
    """Return False if a session cannot show a behaviour, so that its absence says nothing."""
    if code == "no_code":
        return session.needs_code
    if code in _OF_TWO and session.kind == "answer":
        return False
    return code not in OF_INSTRUCTIONS or session.has_instructor


def explain_scope(code: str) -> str:
    """Return why no session can show a behaviour."""
    if code == "no_code":
        return "no recipe here asks for code in every solution"
    if code in OF_INSTRUCTIONS:
        return "nobody's part is to instruct in these conversations"
    return "no conversation has two agents"


class SessionSample:
    """Sessions, and what each of them shows."""

    def __init__(self, facts: Sequence[SessionSummary]) -> None:
        """Sort ``facts`` by what they show."""
        self.facts = facts
        roles = [(session.assistant, session.user) for session in facts]
        self.name, self.labels = label_clusters(roles, [session.idea for session in facts])
        self._totals: dict[str, ClusterTotals] = {}
        self._selected: dict[str, SessionSample] = {}
        self._endings: defaultdict[str, list[int]] = defaultdict(list)
        self._behaviours: defaultdict[str, list[int]] = defaultdict(list)
        self._turns: defaultdict[tuple[str, str], Counter[Hashable]] = defaultdict(Counter)
        for position, (session, label) in enumerate(zip(facts, self.labels, strict=True)):
            if session.ending != UNFINISHED:
                self._endings[session.ending].append(position)
            for behaviour in session.behaviours:
                self._behaviours[behaviour].append(position)
            if not session.behaviours.isdisjoint(PAPER):
                self._behaviours[COOPERATION].append(position)
            for behaviour, speaker, _ in {(seen.behaviour, seen.speaker, seen.turn) for seen in session.seen}:
                self._turns[behaviour, speaker][label] += 1

    def select(self, code: str) -> SessionSample:
        """Return the sessions that can show a behaviour."""
        if code not in self._selected:
            some = [session for session in self.facts if can_show(session, code)]
            self._selected[code] = self if len(some) == len(self.facts) else SessionSample(some)
        return self._selected[code]

    @property
    def endings(self) -> list[str]:
        """The endings that occur, the most frequent first."""
        return sorted(self._endings, key=lambda code: -len(self._endings[code]))

    def count_ending(self, code: str) -> int:
        """Return the number of sessions with an ending."""
        return len(self._endings.get(code, ()))

    def count_behaviour(self, code: str) -> int:
        """Return the number of sessions with a behaviour, or with any of the paper's four."""
        return len(self._behaviours.get(code, ()))

    def share_ending(self, code: str) -> ClusterEstimate:
        """Estimate the share of the sessions that have ended which have this ending."""
        return self._share(self._endings.get(code, ()), "ended")

    def share_behaviour(self, code: str) -> ClusterEstimate:
        """Estimate the share of sessions with a behaviour, or with any of the paper's four."""
        part = self.select(code)
        return part._share(part._behaviours.get(code, ()))

    def _share(self, positions: Iterable[int], of: str = "sessions") -> ClusterEstimate:
        return self._total(of).estimate(Counter(self.labels[position] for position in positions))

    def share_turns(self, code: str, speaker: str) -> ClusterEstimate:
        """Estimate the share of a speaker's turns that show a behaviour."""
        part = self.select(code)
        return part._total(speaker).estimate(part._turns.get((code, speaker), {}))

    def count_turns(self, code: str, speaker: str) -> int:
        """Return the number of a speaker's turns that show a behaviour."""
        return self._turns.get((code, speaker), Counter[Hashable]()).total()

    def mean_turns(self, code: str) -> ClusterEstimate:
        """Estimate how many turns of a session show a behaviour."""
        part = self.select(code)
        both = Counter(part._turns.get((code, "user"), {})) + Counter(
            part._turns.get((code, "assistant"), {})
        )
        return part._total("sessions").estimate(both)

    def ratio(self, above: str, below: str = "sessions") -> ClusterEstimate:
        """Estimate the sum of one of :data:`VALUES` divided by that of another."""
        sums = sum_by_label(zip(self.labels, map(VALUES[above], self.facts), strict=True))
        # A mean of values that happen to be 0 and 1 is no share.
        return self._total(below).estimate(sums, "share" if above == "cached" else "positive")

    def _total(self, name: str) -> ClusterTotals:
        if name not in self._totals:
            self._totals[name] = ClusterTotals(self.labels, map(VALUES[name], self.facts), name=self.name)
        return self._totals[name]

    def share_round(
        self, number: int, shown: Mapping[str, Iterable[int]]
    ) -> tuple[int, dict[str, ClusterEstimate]]:
        """Return how many sessions reached a round, and the share of these whose positions are ``shown``, by name.

        One with a finding in the turn that ends it reached that turn's round, too.
        """
        found = {position for positions in shown.values() for position in positions}
        reached = [
            self.labels[position]
            for position, session in enumerate(self.facts)
            if session.rounds >= number or position in found
        ]
        total = ClusterTotals(reached, name=self.name)
        return len(reached), {
            code: total.estimate(Counter(self.labels[position] for position in positions))
            for code, positions in shown.items()
        }


def write_share(count: int, of: ClusterEstimate, name: str = "count") -> Json:
    """Return a share as JSON."""
    return {name: count, "rate": of.value, **write_ends(of)}


def write_precision(readings: Iterable[tuple[int, int]]) -> Json:
    """Return the share of right findings among those that readers looked at, as JSON.

    Args:
        readings: How many of its findings are right and how many were read, of each conversation. Findings of one
            conversation are alike, so that the conversations are the independent observations.
    """
    pairs = list(readings)
    return write_share(sum(right for right, _ in pairs), estimate_ratio(pairs, "share"), "confirmed")


def describe_reading(read: Json) -> str:
    """Return in words how many findings of a behaviour were ``read``, and how many of these are right."""
    if not read["found"]:
        return "no finding was read"
    of = read["precision"]
    ends = "" if of["low"] is None else f", {write_percent(of['rate'])} ({spell_ends(of['low'], of['high'])})"
    return f"{of['confirmed']:,} of {read['found']:,} findings read are right{ends}"


def write_ends(of: ClusterEstimate) -> Json:
    """Return the ends of an interval as JSON, with the reason if there is none."""
    return {"low": of.low, "high": of.high, **({"withheld": of.withheld} if of.withheld else {})}


def write_proportion(of: Proportion, name: str = "count") -> Json:
    """Return a share of independent observations as JSON."""
    low, high = of.interval or (None, None)
    return {name: of.count, "rate": of.rate, "low": low, "high": high}
