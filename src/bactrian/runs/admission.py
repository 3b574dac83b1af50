"""Begins only the sessions that the run's limits can pay to the end."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import inf, sqrt

from bactrian.amounts import write_compared
from bactrian.errors import BudgetReached
from bactrian.models.budget import RAISE_LIMIT, UsageMeter
from bactrian.runs.cost import Outlook, RemainingUsage

_CAUTION = 2.0
"""Standard deviations of reserve for the sessions in flight. With one, fewer of ten conversations ended: see
benchmarks/budgets.py."""
_CHANCE = 0.6
"""Share of the expected cost for which a session begins, or goes on, while no other is in flight. Many take less than
the mean, and the money would pay for nothing else."""
_TELLING = 3
"""How many sessions in flight a session that has ended outweighs: the first to end are the shortest."""
_LARGER = 4
"""How much larger than assumed texts may be, as long as none was seen."""
_SEEN = 6
"""Turns of a session that show how large its texts are."""
_MARGIN = 0.1
"""How much more than expected, as a share, sessions may take that begin together."""
_RECHECK = 0.25
"""Share of the money that is free after which the sessions in flight are weighed again."""


_Queued = tuple[int, asyncio.Future[bool]]
"""The number of turns of a session, and whether it may go on."""


@dataclass(slots=True)
class Window:
    """Lets ``size`` conversations or lists be in flight, and another one for each that rests, at most :attr:`most`."""

    size: int
    inside: int = 0
    """Conversations and lists in flight now."""
    _resting: int = 0
    _closed: bool = False
    _changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    @property
    def most(self) -> int:
        """Maximum number in flight with those that rest."""
        return 2 * self.size

    @asynccontextmanager
    async def enter(self) -> AsyncGenerator[bool]:
        """Wait until another one may begin, and count it as in flight within; give False if no other may begin."""
        async with self._changed:
            await self._changed.wait_for(self._has_room)
            self.inside += 1
        try:
            yield not self._closed
        finally:
            self.inside -= 1
            await self._call()

    @asynccontextmanager
    async def rest(self) -> AsyncGenerator[None]:
        """Make room for another one while this one waits. It goes on at once after that: it has waited long enough."""
        self._resting += 1
        await self._call()
        try:
            yield
        finally:
            self._resting -= 1

    async def close(self) -> None:
        """Let no other begin."""
        self._closed = True
        async with self._changed:
            self._changed.notify_all()

    def _has_room(self) -> bool:
        return self._closed or (self.inside < self.most and self.inside - self._resting < self.size)

    async def _call(self) -> None:
        async with self._changed:
            self._changed.notify()


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What a limit leaves, and what the sessions in flight need, in tokens or US dollars."""

    left: float
    expected: float
    cautious: float
    """With a reserve for sessions that become longer than expected."""


@dataclass(slots=True)
class Admission:
    """Lets a session begin if the limits can pay for it and for the rest of those in flight.

    Sessions in flight that turn out too expensive are paused, those with the fewest turns first, so that the others
    end; they continue as soon as they can be paid for. Without a limit, every session begins at once.
    """

    meter: UsageMeter
    outlook: Outlook
    refused: bool = False
    """True if a session could not begin."""
    left_open: list[int] = field(default_factory=list[int])
    """Numbers of turns of the sessions that this command leaves open."""
    _closed: bool = False
    _waiting: deque[_Queued] = field(default_factory=deque[_Queued])
    _lists: deque[_Queued] = field(default_factory=deque[_Queued])
    """Lists that wait until the session can be paid for that needs them."""
    _rooms: int = 0
    """Sessions that need not wait, because room is kept for them since their list was asked for."""
    _paused: list[_Queued] = field(default_factory=list[_Queued])
    _next_usd: float = inf
    _next_tokens: float = inf

    def __post_init__(self) -> None:
        if self.meter.limited:
            self._next_usd = self._next_tokens = 0.0

    async def admit(self, turns: int) -> bool:
        """Wait until a session that has ``turns`` turns can be paid for; return False if it cannot."""
        if self._closed:
            return False
        if not self.meter.limited:
            self.outlook.begin(turns)
            return True
        if self._rooms and not turns:
            self._rooms -= 1
            return True
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((turns, future))
        if len(self._waiting) == 1:
            self._settle()
        return await future

    async def admit_list(self) -> bool:
        """Wait until a session that needs a list can be paid for; return False if none can.

        Until :meth:`end_list`, the list counts as such a session: many lists would use up a small limit.
        """
        if self._closed or not self.meter.limited:
            return not self._closed
        future = asyncio.get_running_loop().create_future()
        self._lists.append((0, future))
        self._settle()
        return await future

    def end_list(self, *, has_items: bool) -> None:
        """Keep the room of a list for a session that it was for, or give it back if the list ``has_items`` not."""
        if not self.meter.limited:
            return
        if not has_items:
            self.outlook.end(0, ended=False)
            self._settle()
        elif self._waiting and not self._waiting[0][0]:
            self._waiting.popleft()[1].set_result(True)
        else:
            self._rooms += 1

    def is_tight(self) -> bool:
        """Return True if :meth:`stay` has to be asked before the next turn."""
        return self.meter.usd >= self._next_usd or self.meter.used.total >= self._next_tokens

    async def stay(self, turns: int) -> bool:
        """Pause a session that has ``turns`` turns if the money does not last; return False if it has to stop."""
        if self._closed:
            return True
        tokens, usd = self._weigh(None)
        if all(limit is None or limit.expected <= limit.left for limit in (tokens, usd)):
            # At this usage the sessions in flight are weighed again.
            self._next_usd = self._next_tokens = inf
            if usd is not None:
                self._next_usd = self.meter.usd + _RECHECK * (usd.left - usd.expected)
            if tokens is not None:
                self._next_tokens = self.meter.used.total + _RECHECK * (tokens.left - tokens.expected)
            self._settle()
            return True
        open_ = self.outlook.open
        if sum(open_) == 1 or any(open_[:turns]):
            return True  # Sessions with fewer turns are paused before this one.
        future = asyncio.get_running_loop().create_future()
        self.outlook.end(turns, ended=False)
        self._paused.append((turns, future))
        if await future:
            return True
        self.outlook.begin(turns)
        return False

    def leave(self, turns: int, *, ended: bool) -> None:
        """Count a session out that has ended, or was left open, after ``turns`` turns."""
        self.outlook.end(turns, ended=ended)
        if turns and not ended:
            self.left_open.append(turns)
        if self.meter.limited:
            self._settle()

    @property
    def paused(self) -> int:
        """Number of sessions that wait until they can be paid for."""
        return len(self._paused)

    @property
    def waiting(self) -> int:
        """Number of jobs that wait until they can be paid for."""
        return len(self._waiting)

    def explain_refusal(self) -> BudgetReached:
        """Return the error of a run whose limits pay for no other session."""
        meter = self.meter
        tokens, usd = self._weigh(0)
        if usd is not None and usd.expected > 0 and (usd.cautious > usd.left or tokens is None):
            most, longest, where = meter.max_usd or 0.0, meter.longest_usd, "budget"
            used, session, call, limit = write_compared(meter.usd, usd.expected, longest, most)
            is_spent = meter.usd > most
        else:
            most, longest, where = meter.max_tokens or 0, meter.longest_tokens, "max_tokens"
            expected = tokens.expected if tokens else 0
            used, session, call = (f"{value:,.0f} tokens" for value in (meter.used.total, expected, longest))
            limit, is_spent = f"{most:,}", meter.used.total > most
        what = f"{used} are spent already, more than the limit of {limit}."
        if not is_spent:
            reply = f" with a reply of up to {call}," if longest else ""
            what = f"{used} are spent. Another conversation, about {session},{reply} could pass the limit of {limit}."
        return BudgetReached(what, option=where, next=RAISE_LIMIT)

    def close(self) -> None:
        """Let no more sessions begin or continue."""
        self._closed = True
        for _, future in (*self._waiting, *self._lists, *self._paused):
            if not future.done():
                future.set_result(False)
        self._waiting.clear()
        self._lists.clear()
        self._paused.clear()

    def _settle(self) -> None:
        """Let sessions continue, the longest first, then others begin, then lists, as long as they can be paid for."""
        while (queue := self._paused or self._waiting or self._lists) and not self._closed:
            first = max(queue, key=lambda entry: entry[0]) if queue is self._paused else queue[0]
            turns, future = first
            alone = not any(self.outlook.open)
            limits = [limit for limit in self._weigh(turns) if limit is not None]
            if alone and not self.outlook.ended:
                # The first one shows what a session takes; if the limits did not pay for it, they pay for none.
                can_pay = not self.left_open and all(limit.left > 0 for limit in limits)
            else:
                share = _CHANCE if self.outlook.ended >= _TELLING else 1.0
                can_pay = all(
                    (share * limit.expected if alone else limit.cautious) <= limit.left for limit in limits
                )
            if not can_pay:
                if alone:
                    self.refused = True
                    self.close()
                return
            queue.remove(first)
            self.outlook.begin(turns)
            future.set_result(True)

    def _weigh(self, turns: int | None) -> tuple[Shortfall | None, Shortfall | None]:
        """Return what is left of each limit, tokens and US dollars, and what the sessions in flight need of it.

        With ``turns``, one session more that has so many turns.
        """
        meter, outlook = self.meter, self.outlook
        lengths = outlook.find_lengths()
        tokens = usd = None
        if meter.max_tokens is not None:
            left = meter.max_tokens - meter.used.total - meter.longest_tokens
            tokens = self._compare(left, outlook.find_tokens(lengths), turns)
        if meter.max_usd is not None and (remaining := outlook.find_usd(lengths, meter)) is not None:
            usd = self._compare(meter.max_usd - meter.usd - meter.longest_usd, remaining, turns)
        return tokens, usd

    def _compare(self, left: float, remaining: RemainingUsage, turns: int | None) -> Shortfall:
        """Compare ``left`` with the need, and with a reserve: at first for the longest sessions, later for chance."""
        outlook = self.outlook
        total, most = outlook.sum_open(remaining)
        if turns is not None:
            total, most = total.add(remaining.find(turns)), most + remaining.find_most(turns)
        open_ = sum(outlook.open) + 1
        doubt = max(0.0, most - total.mean)
        unseen = max(0.0, 1 - outlook.furthest / _SEEN)
        if (
            self.meter.count_wave
        ):  # A wave takes hours, whatever its size: what is too expensive is paused later.
            doubt, unseen = _MARGIN * total.mean, 0.0
        doubt *= open_ / (open_ + _TELLING * outlook.ended)
        reserve = total.mean + max(doubt, _CAUTION * sqrt(total.variance))
        return Shortfall(left, total.mean, reserve * (1 + (_LARGER - 1) * unseen))
