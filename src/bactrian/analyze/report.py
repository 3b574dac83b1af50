"""The report on a run, as the JSON that ``bactrian analyze --json`` writes (docs/analyze.md lists its fields).

An estimate has the ends of its 95 % interval, ``low`` and ``high``; both are null if the sample is too small.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, TypeVar

from bactrian.analyze.aggregate import Aggregate
from bactrian.analyze.behaviours.cooperation import PAPER
from bactrian.analyze.diversity import Diversity, measure_diversity
from bactrian.analyze.excerpts import list_best, list_random, list_worst
from bactrian.analyze.session_summary import UNFINISHED, SessionSummary
from bactrian.detect.loops import LOOP, SHORTEST_LOOP
from bactrian.errors import MissingExtra
from bactrian.models.wrappers.budget import Price
from bactrian.records.finding import Behaviour
from bactrian.records.usage import Usage
from bactrian.stats.bootstrap import BootstrapSums, resample
from bactrian.stats.proportion import Proportion
from bactrian.stats.streaming import StreamingMean, StreamingQuantiles

COOPERATION = "cooperation_failed"
"""The code for any of the four."""
_ROUNDS = 25
"""Rounds that are reported separately."""

Prices = Callable[[str], Price | None]
"""Returns the price of a model; None if unknown."""
Json = dict[str, Any]
_Key = TypeVar("_Key", str, tuple[str, str])


def check_installed() -> None:
    """Check that reports can be made, before a long run is read for one.

    Raises:
        MissingExtra: the optional part ``analysis`` is not installed.
    """
    if any(find_spec(module) is None for module in ("numpy", "rensa")):
        raise MissingExtra("analysis", "A report")


def build_report(run: str, part: Aggregate, prices: Prices) -> Json:
    """Build the report on a run.

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
        "kinds": dict(Counter(one.kind for one in facts).most_common()),
        "marks": sorted(part.marks),
        "prompts": dict(part.prompts.most_common()),
        "endings": _endings(facts),
        "behaviours": _behaviours(facts, codes, sums),
        COOPERATION: to_object(measure_cooperation(facts), "sessions"),
        "length": _length(facts, sums),
        "usage": _usage(part, sums, prices),
        "tools": _tools(part),
        "latency": {agent: _quantiles(spread) for agent, spread in sorted(part.seconds.items())},
        "growth": [
            {"turn": turn, "turns": mean.count, **_mean("prompt_tokens", mean)}
            for turn, mean in sorted(part.growth.items())
        ],
        "rounds": _rounds(facts, codes),
        "roles": {
            "assistant": _groups(facts, codes, lambda one: one.assistant),
            "user": _groups(facts, codes, lambda one: one.user),
        },
        "pairs": [
            {"assistant": pair[0], "user": pair[1], **values}
            for pair, values in _groups(facts, codes, lambda one: (one.assistant, one.user)).items()
        ],
        "diversity": {
            "tasks": _diversity(part.tasks.seen, measure_diversity(part.tasks.list_chosen())),
            "instructions": _diversity(
                part.instructions.seen, measure_diversity(part.instructions.list_chosen())
            ),
        },
        "worst": [_named(one) for one in list_worst(facts)],
        "best": [_named(one) for one in list_best(facts)],
        "random": [_named(one) for one in list_random(facts)],
    }


def to_object(of: Proportion, count: str = "count") -> Json:
    """Return a share as JSON."""
    low, high = of.interval
    return {count: of.count, "rate": of.rate, "low": low, "high": high}


def to_interval_object(interval: tuple[float, float] | None) -> Json:
    """Return an interval as JSON."""
    low, high = interval or (None, None)
    return {"low": low, "high": high}


def count_endings(facts: Sequence[SessionSummary]) -> dict[str, Proportion]:
    """Count sessions by their ending, the most frequent first."""
    return {
        code: Proportion(count, len(facts))
        for code, count in Counter(one.ending for one in facts).most_common()
    }


def count_behaviours(
    facts: Sequence[SessionSummary], codes: Sequence[Behaviour]
) -> dict[Behaviour, Proportion]:
    """Count the sessions with each of the behaviours."""
    count = Counter(behaviour for one in facts for behaviour in one.behaviours)
    return {behaviour: Proportion(count[behaviour], len(facts)) for behaviour in codes}


def measure_cooperation(facts: Iterable[SessionSummary]) -> Proportion:
    """Return the share of sessions with any of the paper's four behaviours."""
    failed = [not one.behaviours.isdisjoint(PAPER) for one in facts]
    return Proportion(sum(failed), len(failed))


def resample_behaviour(facts: Sequence[SessionSummary], codes: Sequence[Behaviour]) -> BootstrapSums:
    """Return sums of turns and tokens in ``facts``, with bootstrap samples."""
    names = [
        "sessions",
        "messages",
        "solved",
        "user",
        "assistant",
        "prompt",
        "completion",
        "cached",
        "tokens",
    ]
    names += [f"{behaviour} {speaker}" for behaviour in codes for speaker in ("user", "assistant", "both")]
    place = {name: column for column, name in enumerate(names)}
    rows: list[list[float]] = []
    for one in facts:
        used = one.usage
        row = [1.0, one.messages, one.solved, one.user_turns, one.assistant_turns]
        row += [used.prompt, used.completion, used.cached, used.total, *[0.0] * (3 * len(codes))]
        for turn in {(seen.behaviour, seen.speaker, seen.turn) for seen in one.seen}:
            row[place[f"{turn[0]} {turn[1]}"]] += 1
            row[place[f"{turn[0]} both"]] += 1
        rows.append(row)
    return resample(rows, names)


def _endings(facts: Sequence[SessionSummary]) -> Json:
    return {code: to_object(of) for code, of in count_endings(facts).items()}


def _behaviours(facts: Sequence[SessionSummary], codes: Sequence[Behaviour], sums: BootstrapSums) -> Json:
    return {
        behaviour: {
            **to_object(of, "sessions"),
            "turns": {
                speaker: _turns(facts, sums, f"{behaviour} {speaker}", speaker)
                for speaker in ("user", "assistant")
            },
            "per_session": {
                "mean": sums.ratio(f"{behaviour} both", "sessions"),
                **to_interval_object(sums.interval(f"{behaviour} both", "sessions")),
            },
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
        speaking = sum(one.user_turns > 0 if speaker == "user" else one.assistant_turns > 0 for one in facts)
        interval = Proportion(speaking if count else 0, speaking).interval
    return {"count": count, "rate": sums.ratio(name, speaker), **to_interval_object(interval)}


def _first_turn(facts: Sequence[SessionSummary], behaviour: Behaviour) -> Json:
    """Return the mean number of the first turn with a behaviour, in sessions that show it.

    A loop is found at its fourth turn; its first one counts.
    """
    back = SHORTEST_LOOP - 1 if behaviour == LOOP else 0
    firsts = [
        min(seen.turn for seen in one.seen if seen.behaviour == behaviour) - back
        for one in facts
        if behaviour in one.behaviours
    ]
    if not firsts:
        return {"mean": None, "low": None, "high": None}
    sums = resample([[1.0, float(first)] for first in firsts], ("sessions", "turn"))
    return {
        "mean": sums.ratio("turn", "sessions"),
        **to_interval_object(sums.interval("turn", "sessions")),
    }


def _length(facts: Sequence[SessionSummary], sums: BootstrapSums) -> Json:
    count = Counter(one.messages for one in facts)
    ordered = sorted(count.elements())
    return {
        "messages": {
            "mean": sums.ratio("messages", "sessions"),
            **to_interval_object(sums.interval("messages", "sessions")),
            "median": ordered[len(ordered) // 2],
            **{f"p{share}": _find_quantile(ordered, share) for share in (50, 90, 99)},
            "longest": ordered[-1],
        },
        "solved": {
            "mean": sums.ratio("solved", "sessions"),
            **to_interval_object(sums.interval("solved", "sessions")),
        },
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


def _usage(part: Aggregate, sums: BootstrapSums, prices: Prices) -> Json:
    agents: defaultdict[str, Usage] = defaultdict(Usage)
    usd, unpriced = 0.0, set[str]()
    for (agent, model), used in part.usage.items():
        agents[agent] += used
        if not used.total:
            continue
        price = prices(model)
        if price is None:
            unpriced.add(model or "unknown")
        else:
            usd += price.cost(used)
    total = sum(agents.values(), Usage())
    cost = None if unpriced or not total.total else usd
    finished = sum(one.ending not in (UNFINISHED, "failed") for one in part.facts)
    return {
        **_tokens(total),
        "estimated": total.estimated,
        "cached_share": {
            "rate": sums.ratio("cached", "prompt"),
            **to_interval_object(sums.interval("cached", "prompt")),
        },
        "tokens_per_session": {
            "mean": sums.ratio("tokens", "sessions"),
            **to_interval_object(sums.interval("tokens", "sessions")),
        },
        "usd": cost,
        "usd_per_finished": None if cost is None or not finished else cost / finished,
        "unpriced": sorted(unpriced),
        "agents": {agent: _tokens(used) for agent, used in sorted(agents.items())},
        "models": sorted({model for _, model in part.usage if model}),
    }


def _tokens(used: Usage) -> Json:
    return {"prompt": used.prompt, "completion": used.completion, "cached": used.cached, "total": used.total}


def _quantiles(spread: StreamingQuantiles) -> Json:
    values: Json = {"turns": spread.total}
    for name, of in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        values[name] = dict(zip(("seconds", "low", "high"), spread.quantile(of), strict=True))
    return values


def _mean(name: str, mean: StreamingMean) -> Json:
    return {name: mean.value, **to_interval_object(mean.interval)}


def _rounds(facts: Sequence[SessionSummary], codes: Sequence[Behaviour]) -> list[Json]:
    """Count, for each round, the sessions that reached it and those that showed a behaviour in it."""
    reached = Counter((one.messages + 1) // 2 for one in facts)
    shown: Counter[tuple[int, str]] = Counter()
    for one in facts:
        pairs: set[tuple[int, str]] = {(seen.round, seen.behaviour) for seen in one.seen}
        pairs |= {(number, COOPERATION) for number, behaviour in pairs if behaviour in PAPER}
        shown.update(pairs)
    rows: list[Json] = []
    for number in range(1, min(max(reached, default=0), _ROUNDS) + 1):
        sessions = sum(count for last, count in reached.items() if last >= number)
        found = {
            code: to_object(Proportion(shown[number, code], sessions), "sessions")
            for code in (COOPERATION, *codes)
            if shown[number, code]
        }
        rows.append({"round": number, "sessions": sessions, "behaviours": found})
    return rows


def _groups(
    facts: Sequence[SessionSummary],
    codes: Sequence[Behaviour],
    key: Callable[[SessionSummary], _Key],
) -> dict[_Key, Json]:
    """Group sessions by their roles: how many cooperations fail, how many end well, and what they show."""
    groups: defaultdict[_Key, list[SessionSummary]] = defaultdict(list)
    for one in facts:
        groups[key(one)].append(one)
    return {
        name: {
            "sessions": len(group),
            COOPERATION: to_object(measure_cooperation(group), "sessions"),
            "task_done": to_object(
                Proportion(sum(one.ending == "task_done" for one in group), len(group)), "sessions"
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


def _named(one: SessionSummary) -> Mapping[str, Any]:
    return {
        "session": one.id,
        "assistant": one.assistant,
        "user": one.user,
        "ending": one.ending,
        "messages": one.messages,
        "behaviours": dict(Counter(seen.behaviour for seen in one.seen).most_common()),
    }
