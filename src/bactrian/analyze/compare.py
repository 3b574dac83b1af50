"""Two runs beside each other."""

from __future__ import annotations

from typing import Any

from bactrian.analyze.aggregate import Part
from bactrian.analyze.report import (
    BEHAVIOURS,
    COOPERATION,
    behaviour_shares,
    cooperation,
    ending_shares,
    ends,
    resampled,
)
from bactrian.stats.proportion import Share

MEANS = {
    "messages": ("messages", "sessions"),
    "solved": ("solved", "sessions"),
    "tokens": ("tokens", "sessions"),
    "cached_share": ("cached", "prompt"),
}
"""Numbers that are compared besides shares of sessions: one sum over another."""


def differences(before: Part, after: Part) -> dict[str, Any]:
    """What changed from one run to another, each with its 95 % interval.

    Shares of sessions by Newcombe's method, all that is made of turns or tokens by bootstrap over sessions. An
    interval that holds 0 says that chance alone may have made the difference.
    """
    a, b = ending_shares(before.facts), ending_shares(after.facts)
    nothing = (Share(0, len(before.facts)), Share(0, len(after.facts)))
    shown_a, shown_b = behaviour_shares(before.facts), behaviour_shares(after.facts)
    sums_a, sums_b = resampled(before.facts), resampled(after.facts)
    turns = {f"{code} {speaker}": speaker for code in BEHAVIOURS for speaker in ("user", "assistant")}
    ratios = {
        name: {
            "before": sums_a.ratio(*of),
            "after": sums_b.ratio(*of),
            "difference": sums_b.ratio(*of) - sums_a.ratio(*of),
            **ends(sums_b.less(sums_a, *of)),
        }
        for name, of in {**MEANS, **{name: (name, speaker) for name, speaker in turns.items()}}.items()
    }
    return {
        "endings": {
            code: _difference(a.get(code, nothing[0]), b.get(code, nothing[1])) for code in {**a, **b}
        },
        "behaviours": {
            code: {
                **_difference(shown_a[code], shown_b[code]),
                "turns": {speaker: ratios[f"{code} {speaker}"] for speaker in ("user", "assistant")},
            }
            for code in BEHAVIOURS
        },
        COOPERATION: _difference(cooperation(before.facts), cooperation(after.facts)),
        "means": {name: ratios[name] for name in MEANS},
    }


def _difference(before: Share, after: Share) -> dict[str, Any]:
    return {
        "before": before.rate,
        "after": after.rate,
        "difference": after.rate - before.rate,
        **ends(after.less(before)),
    }
