"""Remaining cost of begun sessions: left open by an earlier command, or stopped at a smaller limit."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from bactrian.generate.job_ids import JobIds
from bactrian.generate.session_cost import Estimate, SessionCost, average
from bactrian.records.run import Progress
from bactrian.store import RunReader

_OTHERWISE = 1.25
"""How much longer or shorter than its earlier turns the later ones of a session may be."""


@dataclass(frozen=True, slots=True)
class JobStates:
    """The sessions of a run's jobs, by what is left of them."""

    done: tuple[Progress, ...] = ()
    shorter: tuple[Progress, ...] = ()
    """Ended at a smaller limit of messages, and will continue."""
    open: tuple[Progress, ...] = ()
    """Left open by an earlier command, with their usage so far; sessions without a turn are not included."""
    begun: int = 0
    """Jobs asked for that are done, shorter or open."""

    @property
    def has_usage(self) -> bool:
        """True if it is known what a session uses."""
        return any(one.prompt for one in (*self.done, *self.shorter))


@dataclass(frozen=True, slots=True)
class Lengths:
    """The number of turns at which sessions end."""

    usual: float
    most: float


def is_cut_short(one: Progress, limit: int | None) -> bool:
    """Return True if the session stopped at fewer messages than ``limit``, and so continues."""
    return limit is not None and one.ending == "max_messages" and one.turns is not None and one.turns < limit


async def read_states(
    store: RunReader, ids: JobIds, limit: int | None, picks: Container[int], *, retry: bool
) -> JobStates:
    """Read the states of the jobs; with ``retry``, failed ones are not done. ``picks`` are the numbers asked for."""
    done: list[Progress] = []
    shorter: list[Progress] = []
    opened: list[Progress] = []
    begun = 0
    async for number, one in ids.list_jobs(store):
        if one.ending is None or (one.ending == "failed" and retry):
            session = await store.session(one.id)
            if session is None or not session.turns or number not in picks:
                continue
            usage = session.usage
            opened.append(
                replace(
                    one,
                    turns=len(session.turns),
                    prompt=usage.prompt,
                    completion=usage.completion,
                    cached=usage.cached,
                )
            )
        elif is_cut_short(one, limit):
            if number in picks:
                shorter.append(one)
        else:
            done.append(one)
        begun += number in picks
    return JobStates(tuple(done), tuple(shorter), tuple(opened), begun)


def extend(one: Progress, turns: float) -> Progress:
    """Return a session that ended, or got so far, with what it will have used after ``turns`` turns.

    Each turn adds a reply to the prompts of all later ones.
    """
    so_far = one.turns or 0
    if turns <= so_far or not so_far:
        return one
    factor = turns / so_far
    prompt, completion, cached = one.prompt or 0, one.completion or 0, one.cached or 0
    added = completion / so_far * turns * (turns - so_far) / 2
    whole = prompt * factor + added
    return replace(
        one,
        turns=round(turns),
        prompt=round(whole),
        completion=round(completion * factor),
        cached=round(cached / prompt * whole) if prompt else 0,
    )


def list_extended(one: Progress, lengths: Lengths) -> tuple[Progress, Progress, Progress]:
    """Return the session as it probably ends, with its next turn, and at its limit."""
    fewest = (one.turns or 0) + 1
    most = max(fewest, lengths.most)
    return extend(one, min(most, max(fewest, lengths.usual))), extend(one, fewest), extend(one, most)


def estimate_extended(states: JobStates, lengths: Lengths, left: int, *, calls_beside: int) -> SessionCost:
    """Return the mean of sessions of this run, if those that stopped at a smaller limit continue."""
    done = [one for one in states.done if one.prompt]
    extended = [list_extended(one, lengths) for one in states.shorter if one.prompt]
    usual, low, high = (
        average([*done, *(ends[which] for ends in extended)], left, calls_beside=calls_beside)
        for which in range(3)
    )
    if not states.shorter:
        return usual
    return SessionCost(
        *(
            Estimate(getattr(usual, name).value, getattr(low, name).low, getattr(high, name).high)
            for name in ("calls", "prompt", "completion", "cached")
        ),
        basis=f"{usual.basis} Of these, {len(states.shorter):,} stopped at a smaller limit of messages; how long they "
        "become is assumed.",
    )


def estimate_remaining(begun: Sequence[Progress], lengths: Lengths) -> SessionCost | None:
    """Return the remaining cost of all sessions of ``begun``; None if there are none."""
    if not begun:
        return None
    extended = [list_extended(one, lengths) for one in begun]

    def add_up(name: str) -> Estimate:
        had = sum(getattr(one, name) or 0 for one in begun)
        return Estimate(
            *(float(sum(getattr(ends[which], name) or 0 for ends in extended) - had) for which in range(3))
        )

    return SessionCost(
        add_up("turns"),
        *(add_up(name).widen(_OTHERWISE) for name in ("prompt", "completion", "cached")),
        basis="",
    )
