"""The report on a run, as the JSON that ``bactrian analyze --json`` writes (docs/analyze.md), and comparisons of runs.

An estimate has the ends of its 95 % interval, ``low`` and ``high``; both are null if the sample is too small.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from operator import itemgetter
from statistics import fmean
from typing import Any, TypeVar

from bactrian.amounts import write_percent
from bactrian.analyze.aggregate import Aggregate, HashSample, SessionSummary, ShownTurn, measure_diversity
from bactrian.analyze.estimates import (
    COOPERATION,
    VALUES,
    SessionSample,
    explain_scope,
    label_clusters,
    write_ends,
    write_precision,
    write_proportion,
    write_share,
)
from bactrian.analyze.excerpts import choose_pairs, list_best, list_random, list_worst
from bactrian.analyze.learned import PAPER
from bactrian.detect.loops import LOOP, SHORTEST_LOOP
from bactrian.errors import MissingExtra
from bactrian.records.run import Behaviour
from bactrian.records.session import UNFINISHED
from bactrian.stats.clusters import ClusterEstimate, ClusterTotals, estimate_difference, estimate_ratio
from bactrian.stats.intervals import PairedProportions, Proportion
from bactrian.stats.streaming import StreamingMean, StreamingQuantiles

_ROUNDS = 25  # Rounds that are reported separately

Json = dict[str, Any]
_Key = TypeVar("_Key", str, tuple[str, str])


def check_installed() -> None:
    """Check that reports can be made, before a long run is read for session.

    Raises:
        MissingExtra: the optional part ``analysis`` is not installed.
    """
    if any(find_spec(module) is None for module in ("numpy", "rensa")):
        raise MissingExtra("analysis", "A report")


def build_report(run: str, part: Aggregate, usage: Json) -> Json:
    """Build the report on a run.

    Args:
        run: Its name.
        part: Its numbers.
        usage: What was paid for in it, as ``describe_usage`` of ``api/status.py`` returns it.

    Raises:
        MissingExtra: the optional part ``analysis`` is not installed.
    """
    check_installed()
    codes, sample = part.behaviours, SessionSample(part.facts)
    facts = part.facts
    talks = [session for session in facts if session.kind == "talk"]
    pairs = [session for session in facts if session.kind != "talk"]
    return {
        "run": run,
        "sessions": len(facts),
        "messages": sum(session.messages for session in facts),
        "kinds": dict(Counter(session.kind for session in facts).most_common()),
        "marks": sorted(part.marks),
        "prompts": dict(part.prompts.most_common()),
        "clusters": {"of": sample.name, "number": len(set(sample.labels))},
        "open": sum(session.ending == UNFINISHED for session in facts),
        "endings": {
            code: write_share(sample.count_ending(code), sample.share_ending(code)) for code in sample.endings
        },
        "behaviours": _behaviours(part, sample),
        COOPERATION: _share(sample, COOPERATION),
        "length": _length(sample),
        "usage": _add_means(usage, sample),
        "tools": _tools(part),
        "latency": {agent: _quantiles(spread, sample) for agent, spread in sorted(part.seconds.items())},
        "growth": [
            {
                "turn": turn,
                "agent": agent,
                "turns": mean.count,
                **_mean("prompt_tokens", mean, independent=sample.name == "conversation"),
            }
            for (turn, agent), mean in sorted(part.growth.items(), key=itemgetter(0))
        ],
        "rounds": _rounds(sample, codes),
        "roles": {
            "assistant": _groups(pairs, codes, lambda session: (session.assistant,)),
            "user": _groups(pairs, codes, lambda session: (session.user,)),
            "agent": _groups(talks, codes, lambda session: dict.fromkeys(session.roles)),
        },
        "pairs": [
            {"assistant": pair[0], "user": pair[1], **values}
            for pair, values in _groups(
                pairs, codes, lambda session: ((session.assistant, session.user),)
            ).items()
        ],
        "diversity": {
            name: _diversity(texts, independent=sample.name == "conversation" and texts.seen <= len(facts))
            for name, texts in (("tasks", part.tasks), ("instructions", part.instructions))
        },
        "worst": [_name(session) for session in list_worst(facts)],
        "best": [_name(session) for session in list_best(facts)],
        "random": [_name(session) for session in list_random(facts)],
    }


def _share(part: SessionSample, code: str) -> Json:
    """Return the share of sessions with a behaviour as JSON."""
    return write_share(part.count_behaviour(code), part.share_behaviour(code), "sessions")


def _estimate(of: ClusterEstimate, name: str = "mean") -> Json:
    return {name: of.value or 0.0, **write_ends(of)}


def _behaviours(part: Aggregate, sample: SessionSample) -> Json:
    behaviours: Json = {}
    for behaviour in part.behaviours:
        facts = sample.select(behaviour).facts
        behaviours[behaviour] = {
            **_share(sample, behaviour),
            **({} if facts else {"rate": None, "low": None, "high": None, "scope": explain_scope(behaviour)}),
            "applies": len(facts),
            "possible": sum(shown.behaviour == behaviour for session in facts for shown in session.possible),
            "read": _measure_readings(part, behaviour),
            "turns": {
                speaker: write_share(
                    sample.count_turns(behaviour, speaker), sample.share_turns(behaviour, speaker)
                )
                for speaker in ("user", "assistant")
            },
            "per_session": _estimate(sample.mean_turns(behaviour)),
            "first_turn": _first_turn(part.facts, behaviour),
        }
    return behaviours


def _measure_readings(part: Aggregate, behaviour: Behaviour) -> Json:
    """Return how many findings a judge or a person has read, and how many of those that count are right."""
    found, possible = (
        [_count_answers(part, behaviour, session, turns) for session, turns in sides]
        for sides in (
            [(session.id, session.found) for session in part.facts if part.answers],
            [(session.id, session.possible) for session in part.facts if part.answers],
        )
    )
    return {
        "found": sum(read for _, read in found),
        "possible": sum(read for _, read in possible),
        "confirmed_possible": sum(right for right, _ in possible),
        "precision": write_precision(found),
    }


def _count_answers(
    part: Aggregate, behaviour: Behaviour, session: str, turns: Iterable[ShownTurn]
) -> tuple[int, int]:
    """Return how many of these findings of a session are right, and how many were read."""
    keys = ((session, shown.turn, behaviour) for shown in turns if shown.behaviour == behaviour)
    answers = [part.answers[key] for key in keys if key in part.answers]
    return sum(answers), len(answers)


def _first_turn(facts: Sequence[SessionSummary], behaviour: Behaviour) -> Json:
    """Return the mean number of the first turn with a behaviour, in sessions that show it.

    A loop is found at its fourth turn; its first one counts.
    """
    back = SHORTEST_LOOP - 1 if behaviour == LOOP else 0
    firsts = [
        min(seen.turn for seen in session.seen if seen.behaviour == behaviour) - back
        for session in facts
        if behaviour in session.behaviours
    ]
    if not firsts:
        return {"mean": None, "low": None, "high": None}
    return _estimate(estimate_ratio(((float(first), 1.0) for first in firsts), "positive"))


def _length(part: SessionSample) -> Json:
    count = Counter(session.messages for session in part.facts)
    ordered = sorted(count.elements())
    return {
        "messages": {
            **_estimate(part.ratio("messages")),
            "median": ordered[len(ordered) // 2],
            # The smallest value that so many percent of the values do not exceed.
            **{f"p{of}": ordered[max(-(-len(ordered) * of // 100), 1) - 1] for of in (50, 90, 99)},
            "longest": ordered[-1],
        },
        "solved": _estimate(part.ratio("solved")),
        "sessions_by_messages": {str(messages): count[messages] for messages in sorted(count)},
    }


def _tools(part: Aggregate) -> Json:
    """Count the calls of each tool, and those that failed, by reason."""
    return {
        name: {
            "calls": sum(count for (tool, _), count in part.tools.items() if tool == name),
            "problems": {
                problem: count
                for (tool, problem), count in sorted(part.tools.items())
                if tool == name and problem
            },
        }
        for name in sorted({tool for tool, _ in part.tools})
    }


def _add_means(usage: Json, part: SessionSample) -> Json:
    """Add the means of conversations to what was paid for in the run."""
    paid = [session for session in part.facts if session.has_usage]
    finished = sum(session.ending not in (UNFINISHED, "failed", "stopped") for session in paid)
    tokens = part.ratio("tokens", "known")
    return {
        **usage,
        "cached_share": {"rate": usage["cached_share"]},
        "cached_share_of_sessions": _estimate(part.ratio("cached", "prompt"), "rate"),
        "tokens_per_session": {"mean": tokens.value, **write_ends(tokens)},
        "usd_per_finished": None if usage["usd"] is None or not finished else usage["usd"] / finished,
    }


def _quantiles(spread: StreamingQuantiles, part: SessionSample) -> Json:
    """Return quantiles of the replies, with ends as of so many clusters: replies of one cluster are alike."""
    clusters = len(set(part.labels))
    values: Json = {"turns": spread.total}
    for name, of in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        value, low, high = spread.quantile(of, clusters)
        values[name] = {"seconds": value, "low": low, "high": high}
    return values


def _mean(name: str, mean: StreamingMean, *, independent: bool = True) -> Json:
    low, high = (mean.interval if independent else None) or (None, None)
    return {name: mean.value, "low": low, "high": high}


def _rounds(part: SessionSample, codes: Sequence[Behaviour]) -> list[Json]:
    """Estimate, for each round, how many of the sessions that reached it showed a behaviour in it."""
    shown: defaultdict[int, defaultdict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for position, session in enumerate(part.facts):
        for seen in session.seen:
            shown[seen.round][seen.behaviour].add(position)
            if seen.behaviour in PAPER:
                shown[seen.round][COOPERATION].add(position)
    rows: list[Json] = []
    for number in range(1, min(max((session.rounds for session in part.facts), default=0), _ROUNDS) + 1):
        shown[number].setdefault(COOPERATION, set())  # none failed: a share, too
        sessions, shares = part.share_round(number, shown[number])
        behaviours = {
            code: write_share(len(shown[number][code]), shares[code], "sessions")
            for code in (COOPERATION, *codes)
            if code in shares
        }
        rows.append({"round": number, "sessions": sessions, "behaviours": behaviours})
    return rows


def _groups(
    facts: Sequence[SessionSummary],
    codes: Sequence[Behaviour],
    keys: Callable[[SessionSummary], Iterable[_Key]],
) -> dict[_Key, Json]:
    """Group sessions by their roles: how many cooperations fail, how many end well, and what they show."""
    groups: defaultdict[_Key, list[SessionSummary]] = defaultdict(list)
    for session in facts:
        for key in keys(session):
            groups[key].append(session)
    samples = {name: SessionSample(group) for name, group in sorted(groups.items())}
    return {
        name: {
            "sessions": len(part.facts),
            COOPERATION: _share(part, COOPERATION),
            "task_done": write_share(
                part.count_ending("task_done"), part.share_ending("task_done"), "sessions"
            ),
            "behaviours": {
                behaviour: _share(part, behaviour) for behaviour in codes if part.count_behaviour(behaviour)
            },
        }
        for name, part in samples.items()
    }


def _diversity(texts: HashSample, *, independent: bool) -> Json:
    measured = measure_diversity(texts.list_chosen())
    alike = Proportion(measured.near_duplicates, measured.texts, independent)
    return {
        "texts": texts.seen,
        "sampled": measured.texts,
        **{
            f"distinct_{n}": _mean("mean", mean, independent=independent)
            for n, mean in measured.distinct.items()
        },
        "near_duplicates": write_proportion(alike),
    }


def _name(facts: SessionSummary) -> Json:
    return {
        "session": facts.id,
        "roles": list(facts.roles),
        "ending": facts.ending,
        "messages": facts.messages,
        "behaviours": dict(Counter(seen.behaviour for seen in facts.seen).most_common()),
    }


# Comparison of runs. Sessions on the same job are compared in pairs, so that differences between the jobs do not
# count.


Pair = tuple[SessionSummary, SessionSummary]


def compare_pairs(before: Aggregate, after: Aggregate) -> dict[str, Any] | None:
    """Return the differences of sessions on the same job, each with its 95 % interval; None if there are no pairs.

    A pair has the same id, roles and original task in both runs, and has ended in both. Intervals are Newcombe's for
    paired shares, and normal ones for means of differences; None for a mean of fewer than two pairs.
    """
    pairs = match_jobs(before.facts, after.facts)
    if not pairs:
        return None
    codes = tuple(dict.fromkeys((*before.behaviours, *after.behaviours)))
    endings = tuple(Counter(session.ending for pair in pairs for session in pair))
    first = [pair[0] for pair in pairs]
    name, labels = label_clusters(
        [(session.assistant, session.user) for session in first], [session.idea for session in first]
    )
    total = ClusterTotals(labels, name=name)

    def compare_shares(shows: Callable[[SessionSummary], bool]) -> Json:
        counts = Counter((shows(a), shows(b)) for a, b in pairs)
        shares = PairedProportions(
            counts[True, True], counts[True, False], counts[False, True], counts[False, False]
        )
        change = _compare(lambda session: float(shows(session)))
        shown = [
            [label for label, pair in zip(labels, pairs, strict=True) if shows(pair[run])] for run in (0, 1)
        ]
        if name == "conversation" and shares.interval:
            change = {**change, "low": shares.interval[0], "high": shares.interval[1]}
            change.pop("withheld", None)
        return {
            **change,
            "only_before": shares.only_first,
            "only_after": shares.only_second,
            "shares": [write_share(len(some), total.estimate(Counter(some))) for some in shown],
        }

    def _compare(value: Callable[[SessionSummary], float]) -> Json:
        """Compare the means; the differences of the pairs are the observations."""
        values = [(value(a), value(b)) for a, b in pairs]
        sums: defaultdict[Hashable, list[float]] = defaultdict(lambda: [0.0, 0.0])
        for label, (a, b) in zip(labels, values, strict=True):
            sums[label][0] += b - a
            sums[label][1] += 1.0
        change = estimate_ratio(((above, below) for above, below in sums.values()), "difference", name=name)
        means = [fmean(column) for column in zip(*values, strict=True)]
        return {"before": means[0], "after": means[1], "difference": change.value, **write_ends(change)}

    return {
        "pairs": len(pairs),
        "same_tasks": sum(a.task == b.task for a, b in pairs),
        "endings": {
            code: compare_shares(lambda session, code=code: session.ending == code) for code in endings
        },
        "behaviours": {
            code: compare_shares(lambda session, code=code: code in session.behaviours) for code in codes
        },
        COOPERATION: compare_shares(lambda session: not session.behaviours.isdisjoint(PAPER)),
        "examples": choose_pairs(pairs),
        "means": {name: _compare(VALUES[name]) for name in ("messages", "solved", "tokens")},
    }


def match_jobs(before: Sequence[SessionSummary], after: Sequence[SessionSummary]) -> list[Pair]:
    """Return the sessions on the same job that have ended in both runs, in the order of the first run."""
    ended = {session.job: session for session in after if session.ending != UNFINISHED}
    return [
        (session, ended[session.job])
        for session in before
        if session.ending != UNFINISHED and session.job in ended
    ]


# Ratios of two sums that are compared besides shares of sessions.
_RATIOS = {
    "messages": ("messages", "sessions"),
    "solved": ("solved", "sessions"),
    "tokens": ("tokens", "known"),
    "cached_share": ("cached", "prompt"),
}


# Differences only: two whole reports one below the other had to be compared by eye.
def compare_reports(before: Aggregate, after: Aggregate) -> Json:
    """Return the differences between two runs, each with its 95 % interval.

    Each interval is made of those of both runs (Zou and Donner 2008). What is not defined in a run is None there. If
    an interval contains 0, the difference may be due to chance. ``paired`` compares the sessions on the same jobs.
    """
    codes = tuple(dict.fromkeys((*before.behaviours, *after.behaviours)))
    first, second = SessionSample(before.facts), SessionSample(after.facts)

    def compare(measure: Callable[[SessionSample], ClusterEstimate]) -> Json:
        a, b = measure(first), measure(second)
        change = estimate_difference(b, a)
        return {"before": a.value, "after": b.value, "difference": change.value, **write_ends(change)}

    return {
        "endings": {
            code: compare(lambda run, code=code: run.share_ending(code))
            for code in dict.fromkeys((*first.endings, *second.endings))
        },
        "behaviours": {
            code: {
                **compare(lambda run, code=code: run.share_behaviour(code)),
                "turns": {
                    speaker: compare(lambda run, code=code, speaker=speaker: run.share_turns(code, speaker))
                    for speaker in ("user", "assistant")
                },
            }
            for code in codes
        },
        COOPERATION: compare(lambda run: run.share_behaviour(COOPERATION)),
        "means": {name: compare(lambda run, of=of: run.ratio(*of)) for name, of in _RATIOS.items()},
        "paired": compare_pairs(before, after),
    }


def is_sure(change: Mapping[str, Any] | None) -> bool:
    """Return True if the interval of a difference leaves out 0."""
    return change is not None and change["low"] is not None and not change["low"] <= 0 <= change["high"]


def list_comparison(reports: Sequence[Json], changes: Sequence[Json]) -> list[tuple[str, str, list[str]]]:
    """Return the rows of a table that compares several runs: kind, name and a cell for each run.

    Endings and behaviours are shares of sessions, as in figures 8 and 9 of the paper; flake replies are counted by
    conversation, as in figure 10. A star marks a share whose difference from the first run leaves out 0.

    Args:
        reports: The reports on the runs.
        changes: The differences of each run but the first from the first.
    """

    def list_shares(shares: Iterable[Json], differences: Iterable[Json | None]) -> list[str]:
        stars = ["", *(" *" if is_sure(difference) else "" for difference in differences)]
        return [
            write_percent(share["rate"]) + (star if share["rate"] is not None else "")
            for share, star in zip(shares, stars, strict=True)
        ]

    rows: list[tuple[str, str, list[str]]] = []
    for kind in ("endings", "behaviours"):
        for code in dict.fromkeys(code for report in reports for code in report[kind]):
            shares = [report[kind].get(code, {"rate": 0.0}) for report in reports]
            if any(share["rate"] for share in shares):
                cells = list_shares(shares, (change[kind].get(code) for change in changes))
                rows.append((kind.removesuffix("s"), code, cells))
    failed = list_shares(
        (report[COOPERATION] for report in reports), (change[COOPERATION] for change in changes)
    )
    flakes = [report["behaviours"]["flake_reply"]["per_session"]["mean"] for report in reports]
    loops = [report["behaviours"][LOOP]["first_turn"]["mean"] for report in reports]
    lengths = [report["length"]["messages"]["mean"] for report in reports]
    return [
        *rows,
        ("behaviour", COOPERATION, failed),
        ("a session", "flake replies", [f"{count:.2f}" for count in flakes]),
        ("mean", "first turn of loops", ["–" if first is None else f"{first:.1f}" for first in loops]),
        ("a session", "messages", [f"{length:.1f}" for length in lengths]),
    ]
