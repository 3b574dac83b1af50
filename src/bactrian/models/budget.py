"""Limits on tokens and money, and estimates of what a request will use before it is sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import Any

from pydantic_core import to_json

from bactrian.amounts import write_compared
from bactrian.errors import BatchesOut, BudgetReached, InputError, ModelError
from bactrian.models.model import Model, Reply, Request, Wrapper, find_spent
from bactrian.records.turn import Usage

# Times the longest reply so far for which the last calls of a budget leave room.
_SPARE = 1.25
_AMPLE = 10  # Times what calls in flight hold: what has to be left where some go at a higher price
# The next action after a limit was reached
RAISE_LIMIT = "Raise the limit: the same command, or the same call, continues."


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model, in US dollars per million tokens."""

    prompt: float
    completion: float
    # Prompt tokens from the server's prefix cache; None if they have no special price.
    cached: float | None = None
    # Prompt tokens that are written to it; None if they have no special price.
    written: float | None = None
    # By tier, how many times the price a call costs that was served at that tier; 1 for all others.
    tiers: Mapping[str, float] = field(default_factory=dict[str, float])

    def at(self, tier: str) -> Price:
        """Return the price of a call that is served at ``tier``."""
        factor = self.tiers.get(tier, 1.0)
        parts = (self.prompt, self.completion, self.cached, self.written)
        return Price(*(None if part is None else factor * part for part in parts))  # type: ignore[arg-type]

    def cost(self, usage: Usage) -> float:
        """Return the price of ``usage`` in US dollars, at the tier that it names."""
        cached = self.prompt if self.cached is None else self.cached
        written = self.prompt if self.written is None else self.written
        fresh = (usage.prompt - usage.cached - usage.written) * self.prompt
        prompt = fresh + usage.cached * cached + usage.written * written
        factor = self.tiers.get(usage.tier, 1.0) if usage.tier else 1.0
        return factor * (prompt + usage.completion * self.completion) / 1_000_000

    def to_json(self) -> list[Any]:
        """Return the fields in their order, as JSON."""
        return [self.prompt, self.completion, self.cached, self.written, dict(self.tiers)]


@dataclass(slots=True)
class UsageMeter:
    """Sums the usage of several models and enforces their common limits."""

    max_tokens: int | None = None  # Prompt and completion tokens together
    max_usd: float | None = None
    # By model name, as the user gives it.
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    used: Usage = Usage()
    usd: float = 0.0
    calls: int = 0  # Number of answered calls
    unpriced: set[str] = field(default_factory=set[str])  # Models without a price that were paid for
    unknown: int = 0  # Number of failed calls, whose cost is unknown
    repeated: int = 0  # Number of them that were asked again
    longest_tokens: int = 0  # Of the longest reply
    longest_usd: float = 0.0  # What the most expensive reply cost, without its prompt
    # Models and usage of the replies that were broken off
    broken_off: list[tuple[str, Usage]] = field(default_factory=list[tuple[str, Usage]])
    in_flight: int = 0  # Number of calls that hold a part of the limits
    grant: Callable[[tuple[int, float]], Awaitable[bool]] | None = None
    """Where processes share the limits: says whether this one may use what its calls in flight hold, tokens and US
    dollars, besides what it has used."""
    count_wave: Callable[[], int] | None = None
    """Where requests go together, in batches: says how many, so that the limits have room for all of them."""
    _held_tokens: int = 0
    _held_usd: float = 0.0
    _releases: int = 0
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _granting: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def limited(self) -> bool:
        """True if a limit is set."""
        return self.max_tokens is not None or self.max_usd is not None

    def is_ample(self) -> bool:
        """Return True if calls in flight may cost more than they hold, whatever else begins until they end."""
        return self.max_usd is None or self.usd + _AMPLE * self._held_usd <= self.max_usd

    def describe_prices(self) -> dict[str, list[Any]]:
        """Return the prices by model as JSON. A run stores them, so that its cost is later told as it is counted."""
        return {name: price.to_json() for name, price in self.prices.items()}

    def hold(self, model: str, usage: Usage) -> bool:
        """Reserve ``usage`` for a call that is about to start.

        Returns False if the call has to wait: beside the most that those in flight can use there is no room for it.

        Raises:
            BudgetReached: the call would pass a limit, whatever those in flight use.
            InputError: there is a limit in dollars, and the model has no price.
        """
        tokens = self.used.total + usage.total
        if self.max_tokens is not None and tokens > self.max_tokens:
            left = max(0, self.max_tokens - self.used.total)
            raise BudgetReached(
                f"The next call could take {usage.total:,} tokens, and {left:,} of the limit of "
                f"{self.max_tokens:,} are left.",
                next=RAISE_LIMIT,
            )
        price = 0.0 if self.max_usd is None else self._price(model).cost(usage)
        if self.max_usd is not None and self.usd + price > self.max_usd:
            cost, left, limit = write_compared(price, max(0.0, self.max_usd - self.usd), self.max_usd)
            rest = (
                f"and {left} of the limit of {limit} is left"
                if self.usd
                else f"more than the limit of {limit}"
            )
            raise BudgetReached(f"The next call could cost {cost}, {rest}.", next=RAISE_LIMIT)
        if self.in_flight and (
            (self.max_tokens is not None and tokens + self._held_tokens > self.max_tokens)
            or (self.max_usd is not None and self.usd + price + self._held_usd > self.max_usd)
        ):
            return False
        self.in_flight += 1
        self._held_usd += price
        self._held_tokens += usage.total
        return True

    async def take(self, model: str, usage: Usage) -> bool:
        """Do what :meth:`hold` does, and ask where other processes share the limits.

        Raises:
            BudgetReached: the call would pass a limit, or the processes together have no room for it.
            InputError: there is a limit in dollars, and the model has no price.
        """
        if self.grant is None:
            return self.hold(model, usage)
        # One at a time: calls that only ask are not in flight, or they would wait for each other.
        async with self._granting:
            while self.hold(model, usage):
                before = self._releases
                try:
                    if await self.grant((self._held_tokens, self._held_usd)):
                        return True
                except BaseException:
                    self.release(model, usage)
                    raise
                self._let_go(model, usage)
                if self.in_flight:  # These may use less than they hold.
                    return False
                if before == self._releases:
                    self._wake()
                    raise BudgetReached(
                        "The next call could pass the limit that all workers share.", next=RAISE_LIMIT
                    )
            return False

    def release(self, model: str, held: Usage) -> None:
        """Release what :meth:`hold` reserved."""
        self._let_go(model, held)
        self._releases += 1
        self._wake()

    def _let_go(self, model: str, held: Usage) -> None:
        self.in_flight -= 1
        self._held_tokens -= held.total
        if self.max_usd is not None:
            self._held_usd -= self._price(model).cost(held)

    def _wake(self) -> None:
        """Wake all that wait; who begins to wait after this waits for the next call."""
        self._ended.set()
        self._ended.clear()

    async def wait(self) -> None:
        """Wait until a call that is in flight has ended."""
        await self._ended.wait()

    def settle(self, model: str, held: Usage | None, used: Usage | None, *, failed: bool) -> None:
        """Release what :meth:`hold` reserved, if anything, and count what was used; None if unknown."""
        if held is not None:
            self.release(model, held)
        self.unknown += failed
        self.calls += not failed
        if used is None:
            return
        self.used += used
        self.longest_tokens = max(self.longest_tokens, used.completion)
        if price := self.prices.get(model):
            self.usd += price.cost(used)
            self.longest_usd = max(self.longest_usd, price.cost(Usage(0, used.completion, tier=used.tier)))
        elif used.total:
            self.unpriced |= {model}

    def add(self, other: UsageMeter) -> None:
        """Count what ``other`` has counted."""
        self.used += other.used
        self.usd += other.usd
        self.calls += other.calls
        self.unknown += other.unknown
        self.repeated += other.repeated
        self.broken_off += other.broken_off
        self.unpriced |= other.unpriced
        self.longest_tokens = max(self.longest_tokens, other.longest_tokens)
        self.longest_usd = max(self.longest_usd, other.longest_usd)

    def count_room(self, model: str, prompt: int, tier: str = "", calls: int = 1) -> int | None:
        """Return how many tokens of completion the limits still pay for after a prompt; None without a limit.

        With several ``calls``, it is that of each.
        """
        rooms: list[float] = []
        if self.max_tokens is not None:
            rooms.append((self.max_tokens - self.used.total) // calls - prompt)
        if self.max_usd is not None and (price := self._price(model).at(tier)).completion:
            left = (self.max_usd - self.usd) / calls - price.cost(Usage(prompt))
            rooms.append(left / price.completion * 1_000_000)
        return max(0, int(min(rooms))) if rooms else None

    def _price(self, model: str) -> Price:
        if model not in self.prices:
            raise InputError(
                f"A limit in dollars requires the price of {model!r}.",
                next="Give its price per million tokens, or limit the tokens instead.",
            )
        return self.prices[model]


# Estimates of the usage of requests before they are sent.


_SHARE = 0.1  # Of the latest reply in what a request is expected to use
_FORGETTING = 0.02  # Share by which one count that was odd loses its weight with each call
# Minimum prompt tokens for learning how many an endpoint may count: in shorter prompts its fixed overhead dominates.
_LEAST_PROMPT = 100


def estimate_request(request: Request) -> Usage:
    """Return the most tokens that ``request`` is likely to use.

    The prompt counts a token for every four bytes of its messages' and tools' JSON; the completion is the longest that
    the request allows, for each of its ``n`` replies, and nothing where it sets no limit.
    """
    size = sum([len(message.text.json) for message in request.messages])
    if request.tools:
        size += len(to_json(request.tools))
        size += sum(len(call.arguments) for message in request.messages for call in message.calls)
    return Usage(size // 4, request.n * (request.sampling.max_tokens or 0), estimated=True)


class TokenEstimator:
    """Corrects the estimates of one model's requests by the usage of earlier ones: to the mean, and to the most."""

    def __init__(self) -> None:
        self.knows = False  # True once a reply has shown what it used
        # Prompt tokens for each one that is estimated, and tokens of a reply: the means
        self._prompt = 1.0
        self._completion = 0.0
        # The most tokens of prompts and of replies for each one that is estimated, and of the longest reply
        self._prompt_ratio = 1.0
        self._reply_ratio = 1.0
        self.longest = 0  # Tokens of the longest reply so far
        self.latest = 0.0  # Of the longest of the latest replies, in which lists lose their weight

    @property
    def keeps_longest(self) -> bool:
        """True if replies have been seen, and none was longer than its request allowed."""
        return self.knows and self._reply_ratio <= 1.0

    def expect(self, estimated: Usage) -> float:
        """Return the tokens expected of a request: the maximum at first, then from the usage of earlier replies."""
        return estimated.prompt * self._prompt + (self._completion if self.knows else estimated.completion)

    def find_most(self, estimated: Usage, n: int) -> Usage:
        """Return the most that a request for ``n`` replies could use; without a limit, the longest reply so far."""
        longest = ceil(estimated.completion * self._reply_ratio) or n * self.longest
        return Usage(ceil(estimated.prompt * self._prompt_ratio), longest)

    def learn(self, estimated: Usage, used: Usage) -> None:
        """Learn from the actual usage of a request."""
        share = _SHARE if self.knows else 1.0
        self.knows = True
        ratio = used.prompt / max(1, estimated.prompt)
        self._prompt += share * (ratio - self._prompt)
        self._completion += share * (used.completion - self._completion)
        self.longest = max(self.longest, used.completion)
        self.latest = max(used.completion, self.latest + _FORGETTING * (used.completion - self.latest))
        if estimated.prompt >= _LEAST_PROMPT:
            self._prompt_ratio = _follow(self._prompt_ratio, ratio)
        if estimated.completion:
            self._reply_ratio = _follow(self._reply_ratio, used.completion / estimated.completion)


def _follow(ratio: float, seen: float) -> float:
    """Return the ratio after another observation: it rises at once, falls slowly, and is at least 1."""
    return max(1.0, seen, ratio + _FORGETTING * (seen - ratio))


class Budget(Wrapper):
    """Counts the usage of ``model`` on ``meter``, and refuses calls that could exceed the meter's limits.

    What a call could use is estimated by :func:`~bactrian.models.limits.estimate_request`: its prompt's
    bytes divided by four, plus its ``max_tokens``. The estimate grows as soon as the endpoint has counted more, because
    other languages have other tokens. Calls in flight count with their estimate, so that many at once do not pass the
    limit together; a call for which there is room only if those use less than estimated waits for them. If the replies
    of an endpoint exceed ``max_tokens``, later ones are expected to exceed it, too. Without ``max_tokens``, a reply is
    expected to be as long as the longest one so far, and a model's first one as the longest of all models. At the end
    of a limit, where a reply of ``max_tokens`` could pass it, the call asks for a shorter one, if replies have been
    much shorter so far. So do all of a wave where their longest replies could pass it together.
    """

    def __init__(self, model: Model, meter: UsageMeter, *, tier: str = "") -> None:
        super().__init__(model)
        self._meter = meter
        self._tier = tier  # At which calls are expected to be served
        self._estimator = TokenEstimator()
        self._asking = False

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``.

        Raises:
            BudgetReached: the call could exceed a limit; nothing was sent.
            ModelError: an error of the wrapped model.
        """
        estimated = estimate_request(request) if self._meter.limited else Usage()
        held: Usage | None = None
        if self._meter.limited:
            held, request = await self._hold(estimated, request)
        used: Usage | None = None
        failed = asked = True
        try:
            reply = await self._model.reply(request)
            used, failed = reply.usage, False
            return reply
        except (ModelError, asyncio.CancelledError) as error:
            used = find_spent(error)
            if used and isinstance(error, asyncio.CancelledError):
                self._meter.broken_off.append((self.name, used))
            raise
        except BatchesOut:
            asked = False
            raise
        finally:
            if held is not None:
                self._asking = False
                if used is not None:
                    self._estimator.learn(estimated, used)
            if asked:
                self._meter.settle(self.name, held, used, failed=failed)
            elif held is not None:
                self._meter.release(self.name, held)

    async def _hold(self, estimated: Usage, request: Request) -> tuple[Usage, Request]:
        while True:
            # How the endpoint counts, and whether it keeps to a longest reply, shows in a single call.
            if self._estimator.knows or self._meter.count_wave or not self._asking:
                most = replace(self._estimator.find_most(estimated, request.n), tier=self._tier)
                most = most if most.completion else replace(most, completion=self._meter.longest_tokens)
                most, asked = self._fit(most, request)
                self._asking, taken = True, False
                try:
                    taken = await self._meter.take(self.name, most)
                finally:
                    self._asking = taken
                if taken:
                    return most, asked
            await self._meter.wait()

    def _fit(self, most: Usage, request: Request) -> tuple[Usage, Request]:
        """Return what the request may use, and the request; less than ``most`` where the limits do not pay for that."""
        seen, meter = self._estimator, self._meter
        usual = ceil(_SPARE * (seen.latest if request.session else seen.longest)) * request.n
        calls = max(1, meter.count_wave()) if meter.count_wave else 1
        room, part = (meter.count_room(self.name, most.prompt, self._tier, each) for each in (1, calls))
        if room is None or part is None or part >= most.completion or usual > room or not seen.keeps_longest:
            return most, request
        tokens = max(usual, min(part, 2 * usual)) // request.n
        shorter = replace(request.sampling, max_tokens=tokens)
        return replace(most, completion=tokens * request.n), replace(request, sampling=shorter)
