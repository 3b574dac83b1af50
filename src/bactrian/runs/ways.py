"""The ways in which the requests of a run can be sent, what each would cost, and how long it would take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from bactrian.models.budget import Price
from bactrian.models.open import find_traits
from bactrian.models.pricing import find_offers
from bactrian.models.providers import BATCH, FLEX
from bactrian.records.run import TierUse
from bactrian.records.turn import Usage
from bactrian.runs.cost import Estimate, TurnSeconds

_SECONDS_PER_CALL = 4.0
_SECONDS_PER_FLEX_CALL = 900.0
"""The longest that a call is waited for."""
_SECONDS_PER_BATCH = 1710.0
"""Mean of the lognormal distribution with the median and the ninth decile that OpenRouter tells of 230,000 batches: 7
minutes and an hour."""
_BATCHED = 5_000
"""Conversations of a train."""
_READ, _WRITTEN = 400.0, 80.0
"""Of the built-in model on two cores that do nothing else: tokens a second of prompts, which both read, and of replies,
which one of them writes, for one conversation or several. By processor time: 214 a second of both, and 73 to 150."""
_BUILT_IN_BYTES, _TRAINED_BYTES = 98e6, 270e6
"""Of the built-in model, and of one trained from it. Larger weights are slower in proportion."""
_LOADED = 3.0
"""Seconds in which a model is loaded."""


def guess_own_seconds(
    models: Iterable[str], prompt: Estimate, completion: Estimate, cached: Estimate
) -> Estimate | None:
    """Return the time of so many tokens if all ``models`` are computed on this computer; None if one is not.

    At most, twice as many tokens as typical go through a processor that is busy with other work.
    """
    sizes = [_weigh(name) for name in dict.fromkeys(models)]
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or not known:
        return None
    slower = fmean(known) / _BUILT_IN_BYTES
    seconds = [
        slower * (max(0.0, read - kept) / _READ + replies / _WRITTEN)
        for read, replies, kept in zip(prompt, completion, cached, strict=True)
    ]
    usual = seconds[0] + _LOADED * len(known)
    return Estimate(usual, usual, max(seconds[2], 2 * usual) + _LOADED * len(known))


def _weigh(name: str) -> float | None:
    """Return the bytes of the weights of a model on this computer; None for one elsewhere."""
    traits = find_traits(name)
    if not traits.in_process:
        return None
    path = Path(name.partition(":")[2]).expanduser()
    if traits.small or path.is_dir():
        return _BUILT_IN_BYTES
    return float(path.stat().st_size) if path.is_file() else _TRAINED_BYTES


_WAYS = {"live": "", "flex": FLEX, "batch": BATCH}
UNCACHED = TierUse(0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Way:
    """What the rest of a run takes if its requests are sent in one way."""

    name: str
    """``live``, ``flex`` or ``batch``."""
    usd: Estimate | None
    """With as much of the prompts from a prefix cache as this run had in this way; None if there is no price."""
    seconds: Estimate
    basis: str = ""
    """What the time is based on."""

    def plus(self, other: Way) -> Way:
        """Return what two runs take, one after the other."""
        usd = self.usd and other.usd and self.usd.plus(*other.usd)
        return Way(self.name, usd, self.seconds.plus(*other.seconds))


@dataclass(frozen=True, slots=True)
class WayComparison:
    """Compares the ways by what is left of a run."""

    models: tuple[str, ...]
    """Of those who make the calls of a session."""
    base_url: str | None
    """The address of ``openai:NAME`` where that is not OpenAI's."""
    uses: Mapping[str, TierUse]
    """How this run was served so far, by tier."""
    price: Callable[[str], Price | None]
    """Returns the mean price of the models at a tier."""
    calls_per_turn: float
    most_calls: float
    """How many times the usual number of calls the most is."""
    tokens: tuple[Estimate, Estimate, Estimate]
    """Of prompts, completions, and those of prompts that a prefix cache can serve."""
    at_once: int
    """Conversations in flight that are asked live."""
    concurrency: int | None
    """What the user said of it."""
    left: int
    """Sessions that have not begun."""
    play: Callable[[int, TurnSeconds], Estimate]
    """Returns the time of all, for a number at once and the seconds of a turn."""
    own_seconds: Estimate | None = None
    """Of models on this computer, guessed from their tokens."""

    def compare(self) -> tuple[Way, ...]:
        """Return the ways that all models offer; none if only the usual one is offered."""
        ways = tuple(
            Way(name, self.estimate_usd(tier, self._find_use(tier)), *self.estimate_seconds(tier))
            for name, tier in _WAYS.items()
            if not tier or all(tier in find_offers(model, self.base_url) for model in self.models)
        )
        return ways if len(ways) > 1 else ()

    def estimate_usd(self, tier: str, use: TierUse | None) -> Estimate | None:
        """Return the cost of a way; without ``use``, with a prefix cache that serves all it can."""
        price = self.price(tier)
        if price is None:
            return None
        costs: list[float] = []
        for prompt, completion, cacheable in zip(*self.tokens, strict=True):
            cached, written = (prompt * use.cached, prompt * use.written) if use else (cacheable, 0.0)
            usage = Usage(round(prompt), round(completion), round(cached), written=round(written))
            costs.append(price.cost(usage))
        return Estimate(*costs)

    def estimate_seconds(self, tier: str) -> tuple[Estimate, str]:
        """Return the time of a way, and what it is based on."""
        use = self.uses.get(tier)
        if tier == BATCH:
            wave = use.seconds if use else _SECONDS_PER_BATCH
            window = max(1, min(self.concurrency or _BATCHED, self.left))
            whose = "of this run" if use else "that OpenRouter tells"
            time = self.play(window, TurnSeconds(wave * self.calls_per_turn))
            return self._limit(time, 2, f"{wave / 60:.2g} minutes a batch, the mean {whose}")
        pace = (
            TurnSeconds(use.seconds - use.growth * use.middle, use.growth)
            if use
            else TurnSeconds(_SECONDS_PER_CALL)
        )
        time = self.play(self.at_once, pace.times(self.calls_per_turn))
        if use is not None:
            about = f"{self.at_once:,} at once, without waits for the endpoint"
            return self._limit(time, 2, f"{use.seconds:.2g} s a call, {about}")
        if self.own_seconds is not None:
            return (
                self.own_seconds,
                "as many tokens a second as the built-in model has on two idle cores, by its processor time.",
            )
        guess = f"{_SECONDS_PER_CALL:.0f} s a call, which is a guess, {self.at_once:,} at once"
        if tier:
            longest = self.play(self.at_once, TurnSeconds(_SECONDS_PER_FLEX_CALL * self.calls_per_turn))
            minutes = f"{_SECONDS_PER_FLEX_CALL / 60:.0f} minutes"
            return replace(
                time, high=longest.value
            ), f"{guess}; at most {minutes}, the longest wait for a reply."
        return self._limit(time, 4, guess)

    def _limit(self, time: Estimate, times: int, about: str) -> tuple[Estimate, str]:
        """Return a time with its most: so many ``times`` the usual one, or that of the most calls if it is more."""
        if self.most_calls > times:
            return replace(
                time, high=self.most_calls * time.value
            ), f"{about}; at most that of the most calls."
        return replace(
            time, high=times * time.value
        ), f"{about}; at most {'twice' if times == 2 else 'four times'} that."

    def _find_use(self, tier: str) -> TierUse:
        """Return how a way was served; flex is expected to be served like live, and batches without a cache."""
        alike = (tier,) if tier == BATCH else (tier, "", FLEX)
        return next((self.uses[each] for each in alike if each in self.uses), UNCACHED)
