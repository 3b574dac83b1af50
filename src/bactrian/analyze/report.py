"""The report on a run, as the JSON that ``bactrian analyze --json`` writes (docs/analyze.md lists its fields).

An estimate has the ends of its 95 % interval, ``low`` and ``high``; both are null if the sample is too small.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

from bactrian.analyze.aggregate import Aggregate, Diversity, SessionSummary, measure_diversity
from bactrian.analyze.excerpts import choose_pairs, list_best, list_random, list_worst
from bactrian.analyze.learned import PAPER
from bactrian.detect.loops import LOOP, SHORTEST_LOOP
from bactrian.errors import MissingExtra
from bactrian.records.run import Behaviour
from bactrian.records.session import UNFINISHED
from bactrian.stats.bootstrap import BootstrapSums, resample
from bactrian.stats.intervals import PairedProportions, Proportion
from bactrian.stats.streaming import StreamingMean, StreamingQuantiles

COOPERATION = "cooperation_failed"  # the code for any of the four
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
        usage: What was paid for in it, as ``describe_usage`` of ``runs/facts.py`` returns it.

    Raises:
        MissingExtra: the optional part ``analysis`` is not installed.
    """
    check_installed()
    facts, codes = part.facts, part.behaviours
    sums = resample_behaviour(facts, codes)
    return {
        "run": run,
        "sessions": len(facts),
        "messages": int(sums.sums["messages"]),
        "kinds": dict(Counter(session.kind for session in facts).most_common()),
        "marks": sorted(part.marks),
        "prompts": dict(part.prompts.most_common()),
        "endings": {code: to_object(of) for code, of in count_endings(facts).items()},
        "behaviours": _behaviours(facts, codes, sums),
        COOPERATION: to_object(measure_cooperation(facts), "sessions"),
        "length": _length(facts, sums),
        "usage": _add_means(usage, facts, sums),
        "tools": _tools(part),
        "latency": {agent: _quantiles(spread) for agent, spread in sorted(part.seconds.items())},
        "growth": [
            {"turn": turn, "turns": mean.count, **_mean("prompt_tokens", mean)}
            for turn, mean in sorted(part.growth.items())
        ],
        "rounds": _rounds(facts, codes),
        "roles": {
            "assistant": _groups(facts, codes, lambda session: session.assistant),
            "user": _groups(facts, codes, lambda session: session.user),
        },
        "pairs": [
            {"assistant": pair[0], "user": pair[1], **values}
            for pair, values in _groups(
                facts, codes, lambda session: (session.assistant, session.user)
            ).items()
        ],
        "diversity": {
            "tasks": _diversity(part.tasks.seen, measure_diversity(part.tasks.list_chosen())),
            "instructions": _diversity(
                part.instructions.seen, measure_diversity(part.instructions.list_chosen())
            ),
        },
        "worst": [_name(session) for session in list_worst(facts)],
        "best": [_name(session) for session in list_best(facts)],
        "random": [_name(session) for session in list_random(facts)],
    }


def to_object(of: Proportion, count: str = "count") -> Json:
    """Return a share as JSON."""
    low, high = of.interval
    return {count: of.count, "rate": of.rate, "low": low, "high": high}


def _estimate(sums: BootstrapSums, above: str, below: str, name: str = "mean") -> Json:
    """Return the ratio of two sums as JSON."""
    return {name: sums.ratio(above, below), **to_interval_object(sums.interval(above, below))}


def to_interval_object(interval: tuple[float, float] | None) -> Json:
    """Return an interval as JSON."""
    low, high = interval or (None, None)
    return {"low": low, "high": high}


def count_endings(facts: Sequence[SessionSummary]) -> dict[str, Proportion]:
    """Count sessions by their ending, the most frequent first."""
    return {
        code: Proportion(count, len(facts))
        for code, count in Counter(session.ending for session in facts).most_common()
    }


def count_behaviours(
    facts: Sequence[SessionSummary], codes: Sequence[Behaviour]
) -> dict[Behaviour, Proportion]:
    """Count the sessions with each of the behaviours."""
    count = Counter(behaviour for session in facts for behaviour in session.behaviours)
    return {behaviour: Proportion(count[behaviour], len(facts)) for behaviour in codes}


def measure_cooperation(facts: Iterable[SessionSummary]) -> Proportion:
    """Return the share of sessions with any of the paper's four behaviours."""
    failed = [not session.behaviours.isdisjoint(PAPER) for session in facts]
    return Proportion(sum(failed), len(failed))


def resample_behaviour(facts: Sequence[SessionSummary], codes: Sequence[Behaviour]) -> BootstrapSums:
    """Return sums of turns and tokens in ``facts``, with bootstrap samples."""
    names = "sessions messages solved user assistant prompt completion cached tokens".split()
    names += [f"{behaviour} {speaker}" for behaviour in codes for speaker in ("user", "assistant", "both")]
    columns = {name: column for column, name in enumerate(names)}
    rows: list[list[float]] = []
    for session in facts:
        used = session.usage
        row = [1.0, session.messages, session.solved, session.user_turns, session.assistant_turns]
        row += [used.prompt, used.completion, used.cached, used.total, *[0.0] * (3 * len(codes))]
        for turn in {(seen.behaviour, seen.speaker, seen.turn) for seen in session.seen}:
            row[columns[f"{turn[0]} {turn[1]}"]] += 1
            row[columns[f"{turn[0]} both"]] += 1
        rows.append(row)
    return resample(rows, names)


def _behaviours(facts: Sequence[SessionSummary], codes: Sequence[Behaviour], sums: BootstrapSums) -> Json:
    return {
        behaviour: {
            **to_object(of, "sessions"),
            "turns": {
                speaker: _turns(facts, sums, f"{behaviour} {speaker}", speaker)
                for speaker in ("user", "assistant")
            },
            "per_session": _estimate(sums, f"{behaviour} both", "sessions"),
            "first_turn": _first_turn(facts, behaviour),
        }
        for behaviour, of in count_behaviours(facts, codes).items()
    }


def _turns(facts: Sequence[SessionSummary], sums: BootstrapSums, name: str, speaker: str) -> Json:
    """Return the share of a speaker's turns that show a behaviour.

    Resampling gives no interval where no turn shows it, or each does. The interval is then Wilson's, with one
    observation for each session: turns of one session may all depend on each other, so it is rather too wide.
    """
    count, turns = int(sums.sums[name]), int(sums.sums[speaker])
    interval = sums.interval(name, speaker)
    if turns and count in (0, turns):
        speaking = sum(
            session.user_turns > 0 if speaker == "user" else session.assistant_turns > 0 for session in facts
        )
        interval = Proportion(speaking if count else 0, speaking).interval
    return {"count": count, "rate": sums.ratio(name, speaker), **to_interval_object(interval)}


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
    sums = resample([[1.0, float(first)] for first in firsts], ("sessions", "turn"))
    return _estimate(sums, "turn", "sessions")


def _length(facts: Sequence[SessionSummary], sums: BootstrapSums) -> Json:
    count = Counter(session.messages for session in facts)
    ordered = sorted(count.elements())
    return {
        "messages": {
            **_estimate(sums, "messages", "sessions"),
            "median": ordered[len(ordered) // 2],
            **{f"p{share}": _find_quantile(ordered, share) for share in (50, 90, 99)},
            "longest": ordered[-1],
        },
        "solved": _estimate(sums, "solved", "sessions"),
        "sessions_by_messages": {str(messages): count[messages] for messages in sorted(count)},
    }


def _find_quantile(ordered: Sequence[int], percent: int) -> int:
    """Return the smallest value that ``percent`` of the values do not exceed."""
    return ordered[max(-(-len(ordered) * percent // 100), 1) - 1]


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


def _add_means(usage: Json, facts: Sequence[SessionSummary], sums: BootstrapSums) -> Json:
    """Add the means of conversations to what was paid for in the run."""
    finished = sum(session.ending not in (UNFINISHED, "failed") for session in facts)
    return {
        **usage,
        "cached_share": {**_estimate(sums, "cached", "prompt", "rate"), "rate": usage["cached_share"]},
        "tokens_per_session": _estimate(sums, "tokens", "sessions"),
        "usd_per_finished": None if usage["usd"] is None or not finished else usage["usd"] / finished,
    }


def _quantiles(spread: StreamingQuantiles) -> Json:
    values: Json = {"turns": spread.total}
    for name, of in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        values[name] = dict(zip(("seconds", "low", "high"), spread.quantile(of), strict=True))
    return values


def _mean(name: str, mean: StreamingMean) -> Json:
    return {name: mean.value, **to_interval_object(mean.interval)}


def _rounds(facts: Sequence[SessionSummary], codes: Sequence[Behaviour]) -> list[Json]:
    """Count, for each round, the sessions that reached it and those that showed a behaviour in it."""
    reached = Counter((session.messages + 1) // 2 for session in facts)
    shown: Counter[tuple[int, str]] = Counter()
    for session in facts:
        pairs: set[tuple[int, str]] = {(seen.round, seen.behaviour) for seen in session.seen}
        pairs |= {(number, COOPERATION) for number, behaviour in pairs if behaviour in PAPER}
        shown.update(pairs)
    rows: list[Json] = []
    for number in range(1, min(max(reached, default=0), _ROUNDS) + 1):
        sessions = sum(count for last, count in reached.items() if last >= number)
        behaviours = {
            code: to_object(Proportion(shown[number, code], sessions), "sessions")
            for code in (COOPERATION, *codes)
            if shown[number, code]
        }
        rows.append({"round": number, "sessions": sessions, "behaviours": behaviours})
    return rows


def _groups(
    facts: Sequence[SessionSummary],
    codes: Sequence[Behaviour],
    key: Callable[[SessionSummary], _Key],
) -> dict[_Key, Json]:
    """Group sessions by their roles: how many cooperations fail, how many end well, and what they show."""
    groups: defaultdict[_Key, list[SessionSummary]] = defaultdict(list)
    for session in facts:
        groups[key(session)].append(session)
    return {
        name: {
            "sessions": len(group),
            COOPERATION: to_object(measure_cooperation(group), "sessions"),
            "task_done": to_object(
                Proportion(sum(session.ending == "task_done" for session in group), len(group)), "sessions"
            ),
            "behaviours": {
                behaviour: to_object(of, "sessions")
                for behaviour, of in count_behaviours(group, codes).items()
                if of.count
            },
        }
        for name, group in sorted(groups.items())
    }


def _diversity(all_texts: int, measured: Diversity) -> Json:
    return {
        "texts": all_texts,
        "sampled": measured.texts,
        **{f"distinct_{n}": _mean("mean", mean) for n, mean in measured.distinct.items()},
        "near_duplicates": to_object(measured.near_duplicates),
    }


def _name(facts: SessionSummary) -> Json:
    return {
        "session": facts.id,
        "assistant": facts.assistant,
        "user": facts.user,
        "ending": facts.ending,
        "messages": facts.messages,
        "behaviours": dict(Counter(seen.behaviour for seen in facts.seen).most_common()),
    }


# Comparison of runs. Sessions on the same job are compared in pairs, so that differences between the jobs do not
# count.


Pair = tuple[SessionSummary, SessionSummary]
_MEANS: dict[str, Callable[[SessionSummary], float]] = {
    "messages": lambda session: session.messages,
    "solved": lambda session: session.solved,
    "tokens": lambda session: session.usage.total,
}


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
    return {
        "pairs": len(pairs),
        "same_tasks": sum(a.task == b.task for a, b in pairs),
        "endings": {
            code: _compare(pairs, lambda session, code=code: session.ending == code) for code in endings
        },
        "behaviours": {
            code: _compare(pairs, lambda session, code=code: code in session.behaviours) for code in codes
        },
        COOPERATION: _compare(pairs, lambda session: not session.behaviours.isdisjoint(PAPER)),
        "examples": choose_pairs(pairs),
        "means": {name: _compare_means(pairs, value) for name, value in _MEANS.items()},
    }


def match_jobs(before: Sequence[SessionSummary], after: Sequence[SessionSummary]) -> list[Pair]:
    """Return the sessions on the same job that have ended in both runs, in the order of the first run."""
    ended = {session.job: session for session in after if session.ending != UNFINISHED}
    return [
        (session, ended[session.job])
        for session in before
        if session.ending != UNFINISHED and session.job in ended
    ]


def _compare(pairs: Sequence[Pair], shows: Callable[[SessionSummary], bool]) -> Json:
    counts = Counter((shows(a), shows(b)) for a, b in pairs)
    shares = PairedProportions(
        counts[True, True], counts[True, False], counts[False, True], counts[False, False]
    )
    return {
        **_change(shares.first.rate, shares.second.rate, shares.interval),
        "only_before": shares.only_first,
        "only_after": shares.only_second,
    }


def _compare_means(pairs: Sequence[Pair], value: Callable[[SessionSummary], float]) -> Json:
    first, second, change = StreamingMean(), StreamingMean(), StreamingMean()
    for a, b in pairs:
        first.add(value(a))
        second.add(value(b))
        change.add(value(b) - value(a))
    return {**_change(first.value, second.value, change.interval), "difference": change.value}


# Ratios of two sums that are compared besides shares of sessions.
_RATIOS = {
    "messages": ("messages", "sessions"),
    "solved": ("solved", "sessions"),
    "tokens": ("tokens", "sessions"),
    "cached_share": ("cached", "prompt"),
}


# Differences only: two whole reports one below the other had to be compared by eye.
def compare_reports(before: Aggregate, after: Aggregate) -> Json:
    """Return the differences between two runs, each with its 95 % interval.

    Intervals are Newcombe's for shares of sessions, and bootstrapped over sessions for numbers of turns or tokens. If
    an interval contains 0, the difference may be due to chance. ``paired`` compares the sessions on the same jobs.
    """
    codes = tuple(dict.fromkeys((*before.behaviours, *after.behaviours)))
    endings = [count_endings(run.facts) for run in (before, after)]
    shown = [count_behaviours(run.facts, codes) for run in (before, after)]
    cooperation = [measure_cooperation(run.facts) for run in (before, after)]
    first, second = (resample_behaviour(run.facts, codes) for run in (before, after))

    def compare_ratios(above: str, below: str) -> Json:
        interval = second.difference_interval(first, above, below)
        return _change(first.ratio(above, below), second.ratio(above, below), interval)

    def compare_shares(shares: Sequence[Mapping[str, Proportion]], code: str) -> Json:
        a, b = (
            share.get(code, Proportion(0, len(run.facts)))
            for share, run in zip(shares, (before, after), strict=True)
        )
        return _change(a.rate, b.rate, b.difference_interval(a))

    return {
        "endings": {code: compare_shares(endings, code) for code in {**endings[0], **endings[1]}},
        "behaviours": {
            code: {
                **compare_shares(shown, code),
                "turns": {
                    speaker: compare_ratios(f"{code} {speaker}", speaker) for speaker in ("user", "assistant")
                },
            }
            for code in codes
        },
        COOPERATION: compare_shares([{COOPERATION: share} for share in cooperation], COOPERATION),
        "means": {name: compare_ratios(*of) for name, of in _RATIOS.items()},
        "paired": compare_pairs(before, after),
    }


def _change(before: float, after: float, interval: tuple[float, float] | None) -> Json:
    return {
        "before": before,
        "after": after,
        "difference": after - before,
        **to_interval_object(interval),
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
        return [f"{share['rate']:.1%}{star}" for share, star in zip(shares, stars, strict=True)]

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
