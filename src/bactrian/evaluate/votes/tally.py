"""What the votes say: shares, agreement among people and with a judge, and attention."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from bactrian.evaluate.agents.judged import Outcome
from bactrian.evaluate.agents.paper import find_figures
from bactrian.evaluate.agents.verdict_jobs import split_pair
from bactrian.evaluate.votes.ballot import SolutionPair
from bactrian.records.run import Vote
from bactrian.stats.agreement import Agreement, measure_alpha, measure_kappa
from bactrian.stats.cluster_bootstrap import bootstrap_ratios, widen_interval
from bactrian.stats.proportion import Proportion

_OUTCOMES: tuple[Outcome, ...] = ("draw", "loss", "win")


def count_votes(
    pairs: Sequence[SolutionPair],
    votes: Sequence[Vote],
    judged: Mapping[str, Mapping[str, Outcome]] | None = None,
    *,
    recipe: str = "",
) -> dict[str, Any]:
    """Return the tally of ``votes`` as JSON content.

    Shares are of the first solution of the pair; "equal" and "both bad" are draws. Votes on texts that have changed
    since are set aside and counted.

    Args:
        pairs: The pairs as they are now.
        votes: All votes of the run.
        judged: For each judge, the outcome by session.
        recipe: Name of the recipe of the tasks, for the paper's figures.
    """
    hashes = {one.session: one.hash for one in pairs}
    valid = [one for one in votes if hashes.get(one.session) == one.texts]
    counted = [one for one in valid if not one.repeated and one.choice != "skip"]
    by_task: defaultdict[str, dict[str, Outcome]] = defaultdict(dict)
    for one in counted:
        by_task[one.session][one.voter] = find_outcome(one)
    names = split_pair(pairs[0].pair) if pairs else ("", "")
    majority: dict[str, Outcome] = {
        session: _find_majority(list(own.values())) for session, own in by_task.items()
    }
    return {
        "pair": list(names),
        "pairs": len(pairs),
        "voters": len({one.voter for one in counted}),
        "votes": len(counted),
        "tasks": len(by_task),
        "choices": dict(Counter(one.choice for one in valid if not one.repeated)),
        "changed": len(votes) - len(valid),
        **_measure_shares(list(by_task.values())),
        "left": _write_proportion(
            Proportion(
                sum(one.choice == "left" for one in counted),
                sum(one.choice in ("left", "right") for one in counted),
            )
        ),
        "attention": _write_proportion(_check_attention(valid)),
        "alpha": _write_agreement(measure_alpha([list(own.values()) for own in by_task.values()])),
        "kappa": {judge: _compare_judge(majority, outcomes) for judge, outcomes in (judged or {}).items()},
        "seconds": fmean([one.seconds for one in counted]) if counted else None,
        "comments": [
            {"session": one.session, "voter": one.voter, "comment": one.comment}
            for one in valid
            if one.comment
        ],
        "paper": [row.to_json() for row in find_figures(names, recipe, people=True)],
    }


def compare_voter(pairs: Sequence[SolutionPair], votes: Sequence[Vote], voter: str) -> dict[str, Any]:
    """Return how one voter agrees with the own repeated votes and with the majority of the others, as JSON content."""
    hashes = {one.session: one.hash for one in pairs}
    valid = [one for one in votes if hashes.get(one.session) == one.texts]
    counted = [one for one in valid if not one.repeated and one.choice != "skip"]
    own = {one.session: find_outcome(one) for one in counted if one.voter == voter}
    others: defaultdict[str, list[Outcome]] = defaultdict(list)
    for one in counted:
        if one.voter != voter:
            others[one.session].append(find_outcome(one))
    common = [session for session in own if others[session]]
    same = sum(own[session] == _find_majority(others[session]) for session in common)
    return {
        "votes": len(own),
        "attention": _write_proportion(_check_attention([one for one in valid if one.voter == voter])),
        "others": _write_proportion(Proportion(same, len(common))),
    }


def find_outcome(vote: Vote) -> Outcome:
    """Return what a vote says of the first solution of its pair."""
    if vote.preferred is None:
        return "draw"
    return "win" if vote.preferred == split_pair(vote.pair)[0] else "loss"


def _measure_shares(tasks: Sequence[Mapping[str, Outcome]]) -> dict[str, Any]:
    """Return shares over all votes, and the mean over tasks of the shares of each task."""
    counts = [Counter(own.values()) for own in tasks]
    totals = sum(counts, Counter[Outcome]())
    pooled = [[(float(count[name]), float(count.total())) for name in _OUTCOMES] for count in counts]
    by_task = [[(count[name] / count.total(), 1.0) for name in _OUTCOMES] for count in counts]

    def estimate(rows: Sequence[Sequence[tuple[float, float]]]) -> dict[str, Any]:
        if not rows:
            return {}
        found = bootstrap_ratios(rows)
        # A task counts as one observation, however many vote on it.
        widened = [widen_interval(one, round((one.value or 0.0) * len(rows)), len(rows)) for one in found]
        return {name: one.to_json() for name, one in zip(_OUTCOMES, widened, strict=True)}

    return {
        "counts": {name: totals[name] for name in _OUTCOMES},
        "pooled": estimate(pooled),
        "by_task": estimate(by_task),
    }


def _find_majority(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome with the most votes; a draw if two have as many."""
    (first, most), *others = Counter(outcomes).most_common()
    return "draw" if others and others[0][1] == most else first


def _check_attention(votes: Sequence[Vote]) -> Proportion:
    """Return how many of the repeated votes say the same as the first one."""
    before = {(one.voter, one.session): one for one in votes if not one.repeated}
    pairs = [
        (first, one)
        for one in votes
        if one.repeated and one.choice != "skip" and (first := before.get((one.voter, one.session)))
    ]
    return Proportion(sum(find_outcome(one) == find_outcome(other) for one, other in pairs), len(pairs))


def _compare_judge(majority: Mapping[str, Outcome], outcomes: Mapping[str, Outcome]) -> dict[str, Any]:
    common = [session for session in majority if session in outcomes]
    people, judge = [majority[one] for one in common], [outcomes[one] for one in common]
    same = sum(one == other for one, other in zip(people, judge, strict=True))
    return {
        **_write_agreement(measure_kappa(people, judge)),
        "same": _write_proportion(Proportion(same, len(common))),
    }


def _write_agreement(found: Agreement) -> dict[str, Any]:
    known = found.value == found.value
    low, high = found.interval or (None, None)
    return {"value": found.value if known else None, "low": low, "high": high, "items": found.items}


def _write_proportion(one: Proportion) -> dict[str, Any]:
    low, high = one.interval
    known = one.total > 0
    return {
        "count": one.count,
        "total": one.total,
        "rate": one.rate if known else None,
        "low": low if known else None,
        "high": high if known else None,
    }
