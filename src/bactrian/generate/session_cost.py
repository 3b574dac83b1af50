"""Cost of one session in calls, tokens and money, assumed or measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from bactrian.play.sampling_defaults import MAX_MESSAGES, SMALL_MAX_MESSAGES
from bactrian.recipes.schema import CriticSpec
from bactrian.records.candidate import read_search
from bactrian.records.run import Progress
from bactrian.records.text import write_count
from bactrian.records.usage import Usage


@dataclass(frozen=True, slots=True)
class SessionShape:
    """How large one session is, in messages and tokens."""

    messages: float
    system: float
    """Tokens of a system prompt with its opening request."""
    instruction: float
    solution: float

    def usage(self) -> Usage:
        """Return the tokens of the whole session, and how many of them a prefix cache can serve.

        Each call sends the whole conversation again, so that prompts grow with the square of its length; all of a
        prompt but the newest message was in the same agent's prompt before.
        """
        round_ = self.instruction + self.solution
        rounds = self.messages / 2
        prompt = (
            self.messages * self.system + self.instruction * rounds + round_ * rounds * max(rounds - 1, 0)
        )
        # New to each agent are its own reply and the other's, and neither sees the last reply of its own again.
        fresh = 2 * self.system + self.instruction + 2 * round_ * max(rounds - 1, 0)
        return Usage(round(prompt), round(round_ * rounds), round(max(prompt - fresh, 0)))


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated number with the range in which it probably lies."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Estimate:
        """Return value and range, multiplied by ``factor``."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def plus(self, more: float) -> Estimate:
        """Return value and range, increased by ``more``."""
        return Estimate(self.value + more, self.low + more, self.high + more)

    def add(self, other: Estimate) -> Estimate:
        """Return the sum of both values, and of both ranges."""
        return Estimate(self.value + other.value, self.low + other.low, self.high + other.high)

    def reach(self, more: float) -> Estimate:
        """Return the same value with an upper end that is higher by ``more``."""
        return Estimate(self.value, self.low, self.high + more)

    def widen(self, factor: float) -> Estimate:
        """Return the same value with a range that is wider by ``factor`` at both ends."""
        return Estimate(self.value, self.low / factor, self.high * factor)

    def or_about(self, more: float) -> Estimate:
        """Return value and range, increased by ``more``, which may be half or twice as much."""
        return Estimate(self.value + more, self.low + more / 2, self.high + more * 2)


PLAY = SessionShape(messages=20, system=450, instruction=60, solution=300)
SMALL_PLAY = SessionShape(messages=12, system=180, instruction=40, solution=110)


@dataclass(frozen=True, slots=True)
class SessionCost:
    """Cost of one session: calls, prompt tokens, completion tokens, cacheable prompt tokens."""

    calls: Estimate
    prompt: Estimate
    completion: Estimate
    cached: Estimate
    basis: str

    def times(self, factor: float) -> SessionCost:
        """Return the cost of ``factor`` sessions."""
        return SessionCost(
            self.calls.times(factor),
            self.prompt.times(factor),
            self.completion.times(factor),
            self.cached.times(factor),
            self.basis,
        )

    def plus(self, other: SessionCost | None) -> SessionCost:
        """Return the sum of both; None counts as nothing."""
        if other is None:
            return self
        return SessionCost(
            self.calls.add(other.calls),
            self.prompt.add(other.prompt),
            self.completion.add(other.completion),
            self.cached.add(other.cached),
            self.basis,
        )


def guess_role_plays(max_messages: int | None, *, small: bool) -> SessionCost:
    """Return the assumed cost of a typical role-play with this program's prompts and common models.

    ``max_messages`` is the recipe's, ``small`` true if only the built-in model speaks.
    """
    longest = float(max_messages or (SMALL_MAX_MESSAGES if small else MAX_MESSAGES))
    shape = SMALL_PLAY if small else PLAY
    shape = replace(shape, messages=min(shape.messages, longest))
    fewest = max(1.0, 0.4 * shape.messages)
    low = SessionShape(fewest, shape.system * 0.7, shape.instruction / 2, shape.solution / 2)
    high = SessionShape(longest, shape.system * 1.4, shape.instruction * 2, shape.solution * 2)
    three = (shape, low, high)
    usages = [size.usage() for size in three]
    grown = ", ".join(
        f"{messages:.0f} messages take {replace(shape, messages=messages).usage().prompt:,}"
        for messages in (shape.messages / 2, shape.messages, shape.messages * 2)
    )
    return SessionCost(
        Estimate(*(size.messages for size in three)),
        Estimate(*(usage.prompt for usage in usages)),
        Estimate(*(usage.completion for usage in usages)),
        Estimate(*(usage.cached for usage in usages)),
        f"Nothing of this run has ended yet. Assumed: {shape.messages:.0f} messages a session, "
        f"{shape.instruction:.0f} tokens an instruction, {shape.solution:.0f} a solution; the range is from "
        f"{low.messages:.0f} messages with texts half as long to {longest:.0f} with texts twice as long. "
        f"Prompt tokens of one session as it grows: {grown}.",
    )


_VERDICT = 120
"""Tokens of a critic's answer."""


def add_critic(sizes: SessionCost, proposals: int, rounds: int, *, guessed: bool) -> SessionCost:
    """Return ``sizes`` with the cost of choosing each turn among several proposals.

    At best an endpoint gives all proposals of a turn in one call, and the critic is content with the first round; at
    worst each proposal is a call of its own and every round is needed. Sessions that have ended show what they used,
    but not in how many calls.
    """
    best, usual, worst = 2, proposals + 1, rounds * (proposals + 2)
    calls = _each(sizes.calls, usual, best, worst)
    if not guessed:
        return replace(sizes, calls=calls)
    verdicts = Estimate(*(turns * _VERDICT for turns in list_three(sizes.calls)))
    completion = _each(sizes.completion, proposals, proposals, rounds * proposals)
    return replace(
        sizes,
        calls=calls,
        prompt=_each(sizes.prompt, usual, best, worst),
        completion=Estimate(
            *(a + b for a, b in zip(list_three(completion), list_three(verdicts), strict=True))
        ),
        cached=_each(sizes.cached, usual, best, worst),
        basis=f"{sizes.basis} A critic chooses among {proposals} proposals for each message, in up to {rounds} rounds.",
    )


def apply_critic(session: SessionCost, critic: CriticSpec | None, *, guessed: bool) -> SessionCost:
    """Return ``session`` with the cost of ``critic``; unchanged without a critic."""
    if critic is None:
        return session
    width, depth = read_search(critic.search) if critic.search else (1, 1)
    # Each level of a search after the first continues every line of the beam.
    proposals = critic.proposals * -(-(1 + width * (depth - 1)) // depth)
    return add_critic(session, proposals, critic.rounds, guessed=guessed)


def _each(estimate: Estimate, value: float, low: float, high: float) -> Estimate:
    return Estimate(estimate.value * value, estimate.low * low, estimate.high * high)


def average(ended: Sequence[Progress], left: int, *, calls_beside: int) -> SessionCost:
    """Return the mean cost of the run's ended sessions, with the 95 % interval of the mean of ``left`` others.

    ``calls_beside`` is how many turns of a session were not asked of a model.
    """
    calls, prompt, completion, cached = (
        _mean([float(getattr(one, name) or 0) for one in ended], left)
        for name in ("turns", "prompt", "completion", "cached")
    )
    return SessionCost(
        calls.plus(-calls_beside),
        prompt,
        completion,
        cached,
        f"From the {write_count(len(ended), 'session')} of this run that ended; the ranges are 95 % intervals, if "
        "the rest is like them. In a run that has just begun, the shortest sessions end first.",
    )


def list_three(estimate: Estimate) -> tuple[float, float, float]:
    return estimate.value, estimate.low, estimate.high


def _mean(values: Sequence[float], left: int) -> Estimate:
    """Return the mean of ``values``, with the range in which the mean of ``left`` further ones probably lies.

    Both means vary; with few values their deviation is itself uncertain, and the interval wider.
    """
    mean, count = fmean(values), len(values)
    if count < 2:
        return Estimate(mean, mean / 3, mean * 3)
    wide = 1.96 * (1 + 2.5 / (count - 1))
    half = wide * stdev(values) * (1 / count + 1 / max(1, left)) ** 0.5
    return Estimate(mean, max(0.0, mean - half), mean + half)
