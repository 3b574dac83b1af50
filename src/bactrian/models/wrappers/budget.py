"""Limits on tokens and money."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil

from bactrian.errors import BudgetReached, InputError
from bactrian.models.model import Model, Reply, Request
from bactrian.models.wrappers.base import Wrapper
from bactrian.models.wrappers.estimate import estimate_request
from bactrian.records.usage import Usage

_NOTHING = Usage()
_TELLING = 100
"""Minimum prompt tokens for learning how the endpoint counts: in shorter prompts its fixed overhead dominates."""
_RAISE = "Raise the limit and run the same command again to continue."


@dataclass(frozen=True, slots=True)
class Price:
    """The price of a model, in US dollars per million tokens."""

    prompt: float
    completion: float
    cached: float | None = None
    """Prompt tokens from the server's prefix cache; None if they have no special price."""

    def cost(self, usage: Usage) -> float:
        """Return the price of ``usage`` in US dollars."""
        cached = self.prompt if self.cached is None else self.cached
        fresh = (usage.prompt - usage.cached) * self.prompt
        return (fresh + usage.cached * cached + usage.completion * self.completion) / 1_000_000


@dataclass(slots=True)
class UsageMeter:
    """Sums the usage of several models and enforces their common limits."""

    max_tokens: int | None = None
    """Prompt and completion tokens together."""
    max_usd: float | None = None
    prices: Mapping[str, Price] = field(default_factory=dict[str, Price])
    """By model name, as the user gives it."""
    used: Usage = Usage()
    usd: float = 0.0
    calls: int = 0
    """Number of answered calls."""
    unknown: int = 0
    """Number of failed calls, whose cost is unknown."""
    _held_tokens: int = 0
    _held_usd: float = 0.0

    @property
    def limited(self) -> bool:
        """True if a limit is set."""
        return self.max_tokens is not None or self.max_usd is not None

    def hold(self, model: str, usage: Usage) -> None:
        """Reserve ``usage`` for a call that is about to start.

        Raises:
            BudgetReached: together with all calls in flight, the call could exceed a limit.
            InputError: a limit in dollars is set and the model has no price.
        """
        tokens = self.used.total + self._held_tokens + usage.total
        if self.max_tokens is not None and tokens > self.max_tokens:
            raise BudgetReached(
                f"The next call could take the tokens to {tokens:,}, past the limit of {self.max_tokens:,}.",
                next=_RAISE,
            )
        if self.max_usd is not None:
            price = self._price(model).cost(usage)
            usd = self.usd + self._held_usd + price
            if usd > self.max_usd:
                raise BudgetReached(
                    f"The next call could take the cost to ${usd:.4f}, past the limit of ${self.max_usd:g}.",
                    next=_RAISE,
                )
            self._held_usd += price
        self._held_tokens += usage.total

    def settle(self, model: str, held: Usage, used: Usage | None) -> None:
        """Release a reservation of :meth:`hold` and count the actual usage; None if unknown."""
        self._held_tokens -= held.total
        if self.max_usd is not None:
            self._held_usd -= self._price(model).cost(held)
        if used is None:
            self.unknown += 1
            return
        self.calls += 1
        self.used += used
        if model in self.prices:
            self.usd += self.prices[model].cost(used)

    def _price(self, model: str) -> Price:
        if model not in self.prices:
            raise InputError(
                f"A limit in dollars requires the price of {model!r}.",
                next="Give its price per million tokens, or limit the tokens instead.",
            )
        return self.prices[model]


class Budget(Wrapper):
    """Counts the usage of ``model`` on ``meter``, and refuses calls that could exceed the meter's limits.

    What a call could use is estimated as its prompt's bytes divided by four plus its ``max_tokens`` (see
    :func:`~bactrian.models.wrappers.estimate.estimated`), and more as soon as the endpoint has counted more: other
    languages have other tokens. Calls in flight count with their estimate, so that many at once do not pass the limit
    together. Without ``max_tokens`` a reply is taken to be as long as the longest one so far.
    """

    def __init__(self, model: Model, meter: UsageMeter) -> None:
        super().__init__(model)
        self._meter = meter
        self._prompt_ratio = 1.0
        """The most prompt tokens that were counted for each one that was estimated."""
        self._longest = 0
        """Tokens of the longest reply."""

    async def reply(self, request: Request) -> Reply:
        """Answer ``request``.

        Raises:
            BudgetReached: the call could exceed a limit; nothing was sent.
            ModelError: an error of the wrapped model.
        """
        held = _NOTHING
        if self._meter.limited:
            held = self._most(request)
            self._meter.hold(self.name, held)
        used: Usage | None = None
        try:
            reply = await self._model.reply(request)
            used = reply.usage
            if held is not _NOTHING:
                self._learn(request, used)
            return reply
        finally:
            self._meter.settle(self.name, held, used)

    def _most(self, request: Request) -> Usage:
        most = estimate_request(request)
        return Usage(ceil(most.prompt * self._prompt_ratio), most.completion or request.n * self._longest)

    def _learn(self, request: Request, used: Usage) -> None:
        self._longest = max(self._longest, used.completion)
        if (prompt := estimate_request(request).prompt) >= _TELLING:
            self._prompt_ratio = max(self._prompt_ratio, used.prompt / prompt)
