"""What a run will still cost and how long it takes: assumed before it begins, learnt while it runs."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import ceil, prod, sqrt

from bactrian.models.budget import Price, UsageMeter
from bactrian.recipes.schema import Axis
from bactrian.records.run import ItemList
from bactrian.records.turn import Usage
from bactrian.stats.streaming import STEADY, LengthCounts, Moments, SurvivalCurve, Trend


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimated number with the range in which it probably lies."""

    value: float
    low: float
    high: float

    def __iter__(self) -> Iterator[float]:
        return iter((self.value, self.low, self.high))

    def times(self, value: float, *ends: float) -> Estimate:
        """Return value and range, multiplied by ``value``; with ``ends``, the range by these."""
        low, high = ends or (value, value)
        return Estimate(self.value * value, self.low * low, self.high * high)

    def plus(self, value: float, *ends: float) -> Estimate:
        """Return value and range, increased by ``value``; with ``ends``, the range by these."""
        low, high = ends or (value, value)
        return Estimate(self.value + value, self.low + low, self.high + high)


# Remaining cost of a run's lists: assumed first, then measured on finished lists.


_ITEM = 15
"""Tokens of an item in a list; of one that is asked for alone, ten times as many."""
_LIST_PROMPT = 80
_SHOWN_ITEM = 50
"""Tokens of an earlier item in a question; longer ones are cut there."""


@dataclass(slots=True)
class AxisCosts:
    """The questions for the lists of one axis: one for each list, or one for each item."""

    left: int
    assumed: Usage
    """Of one question."""
    each: bool
    """True if each item is a question."""
    asked: int = 0
    """Questions whose usage is known."""
    used: Usage = Usage()

    def estimate(self) -> Usage:
        """Return the cost of all remaining questions together."""
        if not self.asked:
            return Usage(self.left * self.assumed.prompt, self.left * self.assumed.completion)
        share = self.left / self.asked
        return Usage(round(share * self.used.prompt), round(share * self.used.completion))


@dataclass(slots=True)
class ListCosts:
    """The remaining cost of a run's lists."""

    axes: dict[str, AxisCosts] = field(default_factory=dict[str, AxisCosts])
    price: Price | None = None
    """Of the model that is asked for lists; None if it is unknown."""

    def finish(self, items: ItemList) -> None:
        """Count a finished list."""
        if (axis := self.axes.get(items.id.partition("@")[0])) is None:
            return
        questions = len(items.items) if axis.each else 1
        axis.left = max(0, axis.left - questions)
        if items.calls:  # a copied list shows no cost
            axis.asked += questions
            axis.used += items.usage

    def estimate(self) -> Usage:
        """Return the tokens of all remaining questions."""
        return sum((axis.estimate() for axis in self.axes.values()), Usage())

    def count_calls(self) -> int:
        """Return the number of questions that are left."""
        return sum(axis.left for axis in self.axes.values())


def estimate_lists(axes: Sequence[Axis], size: int, *, spread: bool, price: Price | None = None) -> ListCosts:
    """Return the cost of all lists that ``size`` jobs need.

    Jobs that are ``spread`` need as many different lists as possible, and the first items of each.
    """
    costs: dict[str, AxisCosts] = {}
    for position, axis in enumerate(axes):
        if axis.items is not None or axis.ask is None or axis.source is not None:
            continue
        below = prod(other.count for other in axes[position:])
        most = prod(other.count for other in axes if other.name in axis.per)
        lists = min(most, size if spread else -(-size // below))
        if axis.each:
            # Only the items that are needed are requested. A question lists earlier items, more and more of them.
            needed = size if spread else -(-size // (below // axis.count))
            listed = sum(min(earlier, axis.shown) for earlier in range(axis.count)) / axis.count
            tokens = _ITEM * 10
            usage = Usage(_LIST_PROMPT + round(listed * min(tokens, _SHOWN_ITEM)), tokens)
            costs[axis.name] = AxisCosts(min(lists * axis.count, needed), usage, each=True)
        else:
            costs[axis.name] = AxisCosts(lists, Usage(_LIST_PROMPT, axis.count * _ITEM), each=False)
    return ListCosts(costs, price)


# What the sessions of a run will still use and how long they will take, from the run so far.


_ASSUMED_SESSIONS = 1.0
"""Sessions that the assumed lengths count for before any has ended; afterwards those that ended tell more."""
_ASSUMED_TURNS = 3.0
"""Turns that the assumed growth of prompts counts for."""
_LONGER = 1.5
"""Where nothing limits a session: how much longer than the longest so far one may be."""
_WIDE = 1.96
"""Standard deviations of a 95 % range."""
_NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class SessionPrior:
    """Assumptions about a session before any has ended."""

    turns: Estimate
    prompt: Estimate
    """Tokens of the whole session."""
    completion: Estimate
    """Tokens of the whole session."""
    price: Price | None = None
    """Mean price of the agents; None if a price is unknown."""
    free_turns: int = 0
    """Turns that no model makes."""

    def assume_ending(self, turns: int) -> float:
        """Return the probability that a session ends that has so many turns."""
        usual, fewest, most = self.turns.value, self.turns.low, self.turns.high
        if turns >= most:
            return 1.0
        if turns < fewest:
            return 0.0
        return min(1.0, 1 / max(1.0, usual - fewest + 1))


@dataclass(slots=True)
class _TurnUsage:
    """Mean usage of a turn, and the growth of its prompt."""

    prompts: Trend = field(default_factory=Trend)
    completion: int = 0
    cached: int = 0

    def add(self, position: int, usage: Usage) -> None:
        self.prompts.add(position, usage.prompt)
        self.completion += usage.completion
        self.cached += usage.cached


@dataclass(frozen=True, slots=True)
class TurnSeconds:
    """The seconds of a turn: they grow by the same amount with each turn, as prompts do."""

    start: float
    growth: float = 0.0

    def find(self, turn: int) -> float:
        """Return the seconds of the turn with this number."""
        return max(0.0, self.start + self.growth * turn)

    def times(self, factor: float) -> TurnSeconds:
        """Return a pace that takes ``factor`` times as long."""
        return TurnSeconds(factor * self.start, factor * self.growth)


@dataclass(frozen=True, slots=True)
class TurnModel:
    """Usage of a session as a function of its turns: prompts grow by the same number of tokens with each turn."""

    start: float
    growth: float
    completion: float
    cached_share: float
    preparation: Usage
    free_turns: int

    def total(self, turns: int) -> Usage:
        """Return the usage of a session with so many turns."""
        made = max(0, turns - self.free_turns)
        prompt = max(0.0, made * self.start + self.growth * made * (made + 1) / 2)
        return Usage(
            self.preparation.prompt + round(prompt),
            self.preparation.completion + round(made * self.completion),
            self.preparation.cached + round(prompt * self.cached_share),
        )


@dataclass(frozen=True, slots=True)
class RemainingUsage:
    """Remaining usage of sessions, by the number of their turns so far."""

    remaining: tuple[Moments, ...]
    longest: tuple[float, ...]
    """The same if each becomes as long as any may."""

    def find(self, turns: int) -> Moments:
        """Return what a session with so many turns still uses."""
        return self.remaining[min(turns, len(self.remaining) - 1)]

    def find_most(self, turns: int) -> float:
        """Return what it uses if it becomes as long as any may."""
        return self.longest[min(turns, len(self.longest) - 1)]


@dataclass(slots=True)
class Outlook:
    """Learns the lengths and the usage of sessions while they are played."""

    prior: SessionPrior
    open: list[int] = field(default_factory=list[int])
    """Number of sessions in flight, by their turns so far."""
    ended: int = 0
    """Sessions that have ended, in earlier commands too."""
    made: int = 0
    """Turns made by this command."""
    furthest: int = 0
    """Most turns that a session has or had."""
    lengths: LengthCounts = field(default_factory=LengthCounts)
    _usage: _TurnUsage = field(default_factory=_TurnUsage)
    _seconds: Trend = field(default_factory=Trend)
    _preparation: Usage = _NOTHING
    _prepared: int = 0
    _in_flight: int = 0
    _since: float = 0.0
    _session_seconds: float = 0.0
    """Seconds of all sessions of this command, added up."""

    def learn(self, turns: int, usage: Usage, count: int = 1) -> None:
        """Learn from ``count`` sessions of earlier commands that ended after ``turns`` turns each.

        ``usage`` is that of all of them. Their prompts are taken to have grown as assumed.
        """
        self._reserve(turns)
        self.ended += count
        self.lengths.end(turns, count)
        for length in range(turns):
            self.lengths.continued[length] += count
        made = turns - self.prior.free_turns
        if made <= 0 or not usage.prompt:
            return
        fit, before = self._fit(), self._usage
        shares = [max(1.0, fit.start + fit.growth * (position + 1)) for position in range(made)]
        whole = sum(shares)
        prompts = before.prompts
        prompts.count += made * count
        before.completion += usage.completion
        before.cached += usage.cached
        prompts.total += usage.prompt
        for position, share in enumerate(shares, 1):
            prompts.positions += position * count
            prompts.squares += position * position * count
            prompts.moment += position * usage.prompt * share / whole

    def begin(self, turns: int) -> None:
        """Count a session that begins, or continues after ``turns`` turns."""
        self._reserve(turns)
        self.open[turns] += 1
        self._tick(1)

    def prepare(self, usage: Usage) -> None:
        """Count what the preparation of a new session used."""
        self._preparation += usage
        self._prepared += 1

    def speak(self, turns: int, usage: Usage, seconds: float) -> None:
        """Count the newest turn of a session that has ``turns`` turns now; it took ``seconds``."""
        if turns > self.furthest:
            self._reserve(turns)
        self.open[turns - 1] -= 1
        self.open[turns] += 1
        self.lengths.continued[turns - 1] += 1
        self.made += 1
        self._seconds.add(turns, seconds)
        if usage.prompt:
            self._usage.add(turns - self.prior.free_turns, usage)

    def end(self, turns: int, *, ended: bool) -> None:
        """Count a session that stops after ``turns`` turns, at its end or to be resumed later."""
        self.open[turns] -= 1
        self._tick(-1)
        if ended:
            self.ended += 1
            self.lengths.end(turns)

    def move(self, turns: int, to: int) -> None:
        """Count a session with ``turns`` turns as one with ``to``: no model made the turns between."""
        self._reserve(to)
        self.open[turns] -= 1
        self.open[to] += 1
        for length in range(turns, to):
            self.lengths.continued[length] += 1

    def find_lengths(self) -> SurvivalCurve:
        """Return the distribution of the numbers of turns."""
        longest = max(1, ceil(self.prior.turns.high))
        if self.furthest > longest:
            longest = ceil(self.furthest * _LONGER)
        weight = _ASSUMED_SESSIONS / (1 + self.ended) ** 2
        return self.lengths.estimate(self.prior.assume_ending, weight, longest)

    def find_tokens(self, lengths: SurvivalCurve) -> RemainingUsage:
        """Return the tokens that sessions still use."""
        fit = self._fit()
        return _find_remaining(
            lengths, [float(fit.total(turns).total) for turns in range(len(lengths.beyond))]
        )

    def find_usd(self, lengths: SurvivalCurve, meter: UsageMeter) -> RemainingUsage | None:
        """Return the US dollars that sessions still cost; None if a price is unknown.

        The agents' mean price is corrected by what ``meter`` shows that the tokens so far have cost.
        """
        price = self.prior.price
        if price is None:
            return None
        fit, usual = self._fit(), price.cost(replace(meter.used, tier=""))
        scale = meter.usd / usual if usual and meter.usd else 1.0
        costs = [scale * price.cost(fit.total(turns)) for turns in range(len(lengths.beyond))]
        return _find_remaining(lengths, costs)

    def sum_open(self, remaining: RemainingUsage) -> tuple[Moments, float]:
        """Return what the sessions in flight still use together, and the most that they may."""
        total, most = Moments(), 0.0
        for turns, count in enumerate(self.open):
            if count:
                total = total.add(remaining.find(turns), count)
                most += count * remaining.find_most(turns)
        return total, most

    def estimate_total(self, spent: float, left: int, remaining: RemainingUsage) -> Estimate:
        """Return what the whole run uses in the end, if ``left`` more sessions begin."""
        total, most = self.sum_open(remaining)
        total = total.add(remaining.find(0), left)
        most += left * remaining.find_most(0)
        if not self.ended:
            return Estimate(spent + total.mean, spent + total.mean / 3, spent + max(most, total.mean))
        session = remaining.find(0)
        spread = sqrt(session.variance) / session.mean if session.mean else 0.0
        doubt = max(spread, 0.1) * total.mean / sqrt(self.ended)
        half = _WIDE * sqrt(total.variance + doubt * doubt)
        return Estimate(
            spent + total.mean, spent + max(total.mean / 3, total.mean - half), spent + total.mean + half
        )

    def estimate_seconds(self, left: int, window: int, pace: TurnSeconds | None = None) -> float | None:
        """Return the seconds until all sessions have ended, if ``left`` more begin, ``window`` at once.

        ``pace`` is the seconds of a turn; None for those of this command.

        The work is divided among the sessions in flight; at the end, fewer and fewer are in flight, and the run takes
        as long as the longest of them. None until a turn was made.
        """
        if not self.made and pace is None:
            return None
        in_flight = sum(self.open)
        pace = self._find_pace() if pace is None else pace
        lengths = self.find_lengths()
        seconds = [pace.find(turn) for turn in range(1, len(lengths.beyond) + 1)]
        if left <= window - in_flight:  # all begin at once
            return max(self._longest_open(lengths, seconds), lengths.find_longest(left, seconds))
        remaining = _find_remaining(lengths, [*accumulate(seconds, initial=0.0)][: len(seconds)])
        whole = remaining.find(0)
        # Half of each turn in flight is done, on average.
        begun = sum(count * pace.find(turns + 1) / 2 for turns, count in enumerate(self.open) if count)
        work = self.sum_open(remaining)[0].mean - begun + left * whole.mean
        window = max(1, min(window, in_flight + left))
        # What a session that is met at a random moment still has before it.
        rest = (whole.variance / whole.mean + whole.mean) / 2 if whole.mean else 0.0
        last = lengths.find_longest(min(window, left), seconds)
        return max(work / window - rest + last, work / window, last)

    def count_done(self, lengths: SurvivalCurve) -> float:
        """Return the work that is done in the sessions in flight, in sessions."""
        remaining = _count_turns(lengths)
        return sum(
            count * turns / (turns + remaining.find(turns).mean)
            for turns, count in enumerate(self.open)
            if count and turns
        )

    def estimate_first(self, lengths: SurvivalCurve) -> float | None:
        """Return the seconds until the first session in flight ends; None until a turn was made."""
        turns = max((turns for turns, count in enumerate(self.open) if count), default=0)
        if not self.made or not turns:
            return None
        return self._find_pace().find(turns + 1) * _count_turns(lengths).find(turns).mean

    def _find_pace(self) -> TurnSeconds:
        """Return the seconds of a turn, waits between turns included; half of each turn in flight is done."""
        self._tick(0)
        seen = self._seconds
        growth = max(0.0, seen.estimate_growth(0.0, STEADY))
        of_turns = (
            TurnSeconds((seen.total - growth * seen.positions) / self.made, growth)
            if seen.total
            else TurnSeconds(1.0)
        )
        begun = sum(count * of_turns.find(turns + 1) / 2 for turns, count in enumerate(self.open) if count)
        return of_turns.times(self._session_seconds / ((seen.total or self.made) + begun))

    def _longest_open(self, lengths: SurvivalCurve, seconds: Sequence[float]) -> float:
        """Return the expected seconds until the last session in flight has ended; ``seconds`` are those of each turn.

        At the time at which a session may have become so long, the others have come as far as their turns take.
        """
        beyond = lengths.beyond
        groups = [
            (turns, count)
            for turns, count in enumerate(self.open)
            if count and turns < len(beyond) and beyond[turns]
        ]
        # When each turn of each group ends, and by how much less likely it is then that any of it goes on.
        ends: list[tuple[float, int, float]] = []
        for number, (turns, count) in enumerate(groups):
            time = -seconds[turns] / 2
            for turn in range(turns, len(beyond)):
                time += seconds[turn]
                over = 1.0 if turn + 1 >= len(beyond) else 1 - beyond[turn + 1] / beyond[turns]
                ends.append((time, number, over**count))
        over_by_group = [0.0] * len(groups)
        expected = before = 0.0
        for time, number, over in sorted(ends):
            expected += (1 - prod(over_by_group)) * (time - before)
            over_by_group[number], before = over, time
        return expected

    def _fit(self) -> TurnModel:
        """Fit a line to the prompts; where their growth is not seen yet, each turn adds the reply before it."""
        seen, prior = self._usage, self.prior
        prompts = seen.prompts
        usual = max(1.0, prior.turns.value - prior.free_turns)
        if prompts.count:
            completion = seen.completion / prompts.count
            middle, mean = prompts.positions / prompts.count, prompts.total / prompts.count
        else:
            completion = prior.completion.value / usual
            middle, mean = (usual + 1) / 2, prior.prompt.value / usual
        growth = completion if usual > 2 else 0.0
        if not prompts.count:
            growth = min(growth, mean / middle) if usual > 2 else 0.0
        else:
            # The assumed growth is worth a few turns, half a usual session away from the mean.
            growth = prompts.estimate_growth(growth, _ASSUMED_TURNS * (usual / 2) ** 2 + 1e-9)
        steps = self._preparation
        prepared = max(1, self._prepared)
        return TurnModel(
            mean - growth * middle,
            growth,
            completion,
            seen.cached / prompts.total if prompts.total else 0.0,
            Usage(steps.prompt // prepared, steps.completion // prepared, steps.cached // prepared),
            prior.free_turns,
        )

    def _reserve(self, turns: int) -> None:
        """Make room for sessions of so many turns."""
        self.furthest = max(self.furthest, turns)
        missing = turns + 2 - len(self.open)
        if missing > 0:
            self.open += [0] * missing
        self.lengths.reserve(turns + 1)

    def _tick(self, more: int) -> None:
        now = time.monotonic()
        self._session_seconds += self._in_flight * (now - self._since)
        self._since = now
        self._in_flight += more


def _count_turns(lengths: SurvivalCurve) -> RemainingUsage:
    """Return the turns that sessions still have."""
    return _find_remaining(lengths, [float(turns) for turns in range(len(lengths.beyond))])


def _find_remaining(lengths: SurvivalCurve, totals: list[float]) -> RemainingUsage:
    most = totals[-1]
    return RemainingUsage(
        lengths.find_remaining(totals.__getitem__), tuple(max(0.0, most - total) for total in totals)
    )
