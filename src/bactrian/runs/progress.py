"""Progress of a run, and how much of its prompts servers had in their cache."""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from bactrian.amounts import write_percent
from bactrian.errors import BactrianError
from bactrian.models.budget import UsageMeter
from bactrian.models.http import split_addresses
from bactrian.models.providers import is_hosted
from bactrian.records.events import Ended, Event, Spoke
from bactrian.records.session import Ending
from bactrian.records.text import write_count
from bactrian.records.turn import Usage
from bactrian.runs.admission import Admission
from bactrian.runs.cost import Estimate, ListCosts, RemainingUsage
from bactrian.runs.scheduler import Job
from bactrian.stats.streaming import SurvivalCurve

_MOST_REASONS = 100  # distinct ones: some contain a time or a number
_MOST_CHANGES = 100  # two systems behind one address may alternate
_MOST_REFUSED = 100  # a recipe may have millions of jobs with the same fault
_RATES_OVER = 10.0  # seconds, since synchronised conversations answer in bursts


@dataclass(frozen=True, slots=True)
class EndpointPressure:
    """Current limits of the endpoints of a run."""

    limit: int = 0
    """Maximum number of requests in flight."""
    closed_for: float = 0.0
    """Seconds until requests are allowed again."""
    silent: bool = False
    """True while an endpoint does not answer."""


@dataclass(frozen=True, slots=True)
class ProgressSnapshot:
    """A snapshot of a run's progress."""

    total: int
    """Sessions of the whole run, if every list is complete."""
    done: int
    failed: int
    in_flight: int
    endings: Mapping[str, int]
    calls: int
    """Calls answered since the start of this command."""
    failed_calls: int
    usage: Usage
    """Tokens since the start of this command."""
    usd: float | None
    """Cost since the start of this command; None if a price is unknown."""
    run_usage: Usage
    """Tokens of the whole run, including earlier commands."""
    run_usd: float | None
    """Cost of the whole run; None if a price is unknown."""
    seconds: float
    """Since the start of this command."""
    calls_per_second: float
    tokens_per_second: float
    seconds_left: float | None
    """None until it can be estimated."""
    closed_for: float
    """Seconds until requests to the endpoint are allowed again; normally 0."""
    silent: bool
    """True while an endpoint does not answer. After ``closed_for``, a single request probes it."""
    limit: int
    """Maximum number of requests in flight."""
    changes: tuple[str, ...]
    """Changes of the answering model or system during the run."""
    repeated_calls: int = 0
    """Failed calls that were asked again."""
    open: int = 0
    """Sessions that this command left open, or paused until they can be paid for."""
    paused: int = 0
    max_usd: float | None = None
    max_tokens: int | None = None
    usd_expected: Estimate | None = None
    """Cost of the run in the end, with a 95 % range; None if a price is unknown."""
    tokens_expected: Estimate | None = None
    usd_open: float | None = None
    """What the open sessions are expected to take; None if a price is unknown."""
    affordable: int = 0
    """Conversations that the limits are expected to pay for, of :attr:`total`."""
    free: bool = False
    """True if no model costs money."""
    unpriced: tuple[str, ...] = ()
    """Models without a known price that were paid for."""
    share_done: float = 0.0
    """Share of the work that is done, counted in turns."""
    seconds_to_first: float | None = None
    """Expected seconds until a first conversation of this command ends; None until a turn was made."""
    slow_start: str = ""
    """What to know of a model in this process before its first reply."""
    last: str = ""
    """The conversation that ended last, in one line."""
    cache_warning: str = ""
    """What is wrong with the servers' prefix cache, by the turns of this command; empty if nothing is known to be."""


@dataclass(frozen=True, slots=True)
class ShortList:
    """A list with fewer items than requested."""

    has: int
    wanted: int
    why: str = ""
    """Empty if an earlier command reported it."""


@dataclass(slots=True)
class RunProgress:
    """Counts the events of a run."""

    meter: UsageMeter
    total: int
    admission: Admission
    window: int = 1
    """Maximum number of sessions in flight, without those that rest."""
    free: bool = False
    slow_start: str = ""
    lists: ListCosts = field(default_factory=ListCosts)
    """What the lists still take that this run has to ask for."""
    last: tuple[Job, int, Ending] | None = None
    """The job that ended last, its number of turns and its ending."""
    done: int = 0
    endings: Counter[str] = field(default_factory=Counter[str])
    lists_in_flight: int = 0
    short: dict[str, ShortList] = field(default_factory=dict[str, ShortList])
    """Lists with fewer items than requested."""
    refused: list[str] = field(default_factory=list[str])
    """Reasons why the first jobs could not begin."""
    beside: int = 0
    """Sessions of jobs that this command does not ask for, which earlier ones made."""
    not_begun: int = 0
    """Number of jobs and lists that could not begin."""
    open: int = 0
    """Sessions and lists that this command left open because of the endpoint."""
    silent: int = 0
    """Sessions that this command left open before anybody spoke in them."""
    reasons: Counter[str] = field(default_factory=Counter[str])
    """Reasons why sessions failed or were left open in this command."""
    read_pressure: Callable[[], EndpointPressure] = EndpointPressure
    """Returns the current limits of the endpoints."""
    caching: Sequence[str] = ()
    """The models, if all are at servers of one's own, which may have a prefix cache."""
    late: Usage = Usage()
    """Usage of the turns of this command that should find most of their prompt there."""
    systems: dict[str, str] = field(default_factory=dict[str, str])
    """The model and system that answered each agent last, as reported by the endpoint."""
    changes: list[str] = field(default_factory=list[str])
    """Changes of the answering model or system during the run."""
    _begun: float = field(default_factory=time.monotonic)
    _past: deque[tuple[float, int, int]] = field(default_factory=lambda: deque([(0.0, 0, 0)]))
    """Seconds, calls and tokens at recent snapshots."""
    _used_before: Usage = Usage()
    _usd_before: float = 0.0

    def count_before(self, usage: Usage, usd: float, unpriced: Iterable[str] = ()) -> None:
        """Add what earlier commands, or other processes, used for the run to the meter."""
        self.meter.used += usage
        self.meter.usd += usd
        self.meter.unpriced |= {*unpriced}
        self._used_before += usage
        self._usd_before += usd

    @property
    def used_here(self) -> tuple[Usage, float]:
        """Tokens and US dollars since the start of this command."""
        return self.meter.used - self._used_before, self.meter.usd - self._usd_before

    @property
    def failed(self) -> int:
        """Number of sessions that failed permanently or could not begin."""
        return self.endings["failed"] + self.not_begun

    def refuse(self, job: str, why: str) -> None:
        """Count a job, or a list, that could not begin."""
        self.not_begun += 1
        if len(self.refused) < _MOST_REFUSED:
            self.refused.append(f"{job}: {why}")

    def take(self, event: Event) -> None:
        """Count one event of any session."""
        match event:
            case Spoke(turn) if turn.usage.prompt or turn.usage.completion:  # else no model made it
                if self.caching and turn.number >= LATE:
                    self.late += turn.usage
                system = f"{turn.model} ({turn.fingerprint})" if turn.fingerprint else turn.model
                before = self.systems.setdefault(turn.speaker, system)
                if before != system:
                    self.systems[turn.speaker] = system
                    change = f"{turn.speaker}: {before} → {system}"
                    if change not in self.changes and len(self.changes) < _MOST_CHANGES:
                        self.changes.append(change)
            case Ended(ending, error) if not getattr(error, "endpoint_wide", False):
                self.done += 1
                self.endings[ending.code] += 1
                if ending.code == "failed":
                    self.explain(error or ending.evidence)
            case _:
                pass

    def explain(self, fault: Exception | str) -> None:
        """Count a reason for which a session failed or was left open, however often it was asked for."""
        told = fault.report if isinstance(fault, BactrianError) else str(fault)
        reason = re.sub(r"\.? Asked (once|twice|\d+ times) in \d+ s\b", "", told)
        if reason in self.reasons or len(self.reasons) < _MOST_REASONS:
            self.reasons[reason] += 1

    def snapshot(self, *, whole: bool = False) -> ProgressSnapshot:
        """Return the current progress, with rates over the last ten seconds, or since the start if ``whole``."""
        now = time.monotonic() - self._begun
        while len(self._past) > 1 and self._past[1][0] <= now - _RATES_OVER:
            self._past.popleft()
        then, calls, tokens = (0.0, 0, 0) if whole else self._past[0]
        meter, outlook = self.meter, self.admission.outlook
        usage, usd = self.used_here
        passed = max(now - then, 1e-9)
        self._past.append((now, meter.calls, usage.total))
        pressure = self.read_pressure()
        in_flight = sum(outlook.open)
        rest = max(0, self.total - self.done - self.not_begun - in_flight)
        lengths = outlook.find_lengths()
        tokens_expected, usd_expected, usd_open, affordable = self._expect(lengths, rest)
        window = in_flight if self.admission.waiting else self.window
        return ProgressSnapshot(
            total=self.total,
            done=self.done,
            failed=self.failed,
            in_flight=in_flight + self.lists_in_flight,
            endings=dict(self.endings),
            calls=meter.calls,
            failed_calls=meter.unknown,
            repeated_calls=meter.repeated,
            usage=usage,
            usd=None if meter.unpriced else usd,
            run_usage=meter.used,
            run_usd=None if meter.unpriced else meter.usd,
            seconds=now,
            calls_per_second=(meter.calls - calls) / passed,
            tokens_per_second=(usage.total - tokens) / passed,
            seconds_left=outlook.estimate_seconds(min(rest, affordable), window),
            closed_for=pressure.closed_for,
            silent=pressure.silent,
            limit=pressure.limit,
            changes=tuple(self.changes),
            open=len(self.admission.left_open) + self.admission.paused + self.silent,
            paused=self.admission.paused,
            max_usd=meter.max_usd,
            max_tokens=meter.max_tokens,
            usd_expected=usd_expected,
            tokens_expected=tokens_expected,
            usd_open=usd_open,
            affordable=min(self.total, self.done + in_flight + affordable),
            free=self.free,
            unpriced=tuple(sorted(meter.unpriced)),
            share_done=min(1.0, (self.done + outlook.count_done(lengths)) / max(1, self.total)),
            seconds_to_first=outlook.estimate_first(lengths),
            slow_start=self.slow_start,
            last=self._describe_last(),
            cache_warning=warn_of_cache(self.late, self.caching),
        )

    def _describe_last(self) -> str:
        if self.last is None:
            return ""
        job, turns, ending = self.last
        values = " · ".join(" ".join(value.split()) for value in job.values.values())
        return f"{ending.code} after {write_count(turns, 'message')}: {values}" if values else job.id

    def _expect(
        self, lengths: SurvivalCurve, rest: int
    ) -> tuple[Estimate, Estimate | None, float | None, int]:
        """Return what the run takes in the end if ``rest`` more sessions begin.

        That is its tokens, its US dollars and those of the sessions left open (None if a price is unknown), and how
        many of the sessions the limits pay for.
        """
        outlook, meter = self.admission.outlook, self.meter
        remaining = outlook.find_tokens(lengths)
        lists = self.lists.estimate() if rest else Usage()
        tokens = outlook.estimate_total(meter.used.total, rest, remaining).plus(lists.total)
        affordable = _count_affordable(meter.max_tokens, tokens.value, rest, remaining, lists.total)
        remaining = outlook.find_usd(lengths, meter)
        if remaining is None:
            return tokens, None, None, affordable
        lists_usd = self.lists.price.cost(lists) if self.lists.price else 0.0
        usd = outlook.estimate_total(meter.usd, rest, remaining).plus(lists_usd)
        affordable = min(affordable, _count_affordable(meter.max_usd, usd.value, rest, remaining, lists_usd))
        return tokens, usd, sum(remaining.find(turns).mean for turns in self.admission.left_open), affordable


def _count_affordable(
    limit: float | None, expected: float, rest: int, remaining: RemainingUsage, lists: float
) -> int:
    """Return how many of ``rest`` sessions ``limit`` pays for, if all of them bring the run to ``expected``.

    ``lists`` is what the lists take that they need.
    """
    session = remaining.find(0).mean + lists / max(1, rest)
    if limit is None or not session:
        return rest
    return max(0, min(rest, int(rest - (expected - limit) / session)))


# The prefix cache of servers.


LATE = 6
"""The turn from which most of a prompt should be in a server's prefix cache."""
_CACHING = ("vllm:", "sglang:")  # Servers that keep conversations in a prefix cache


def list_caching(models: Iterable[str], addresses: Mapping[str, str]) -> tuple[str, ...]:
    """Return ``models`` if all are at servers of one's own, which may have a prefix cache; otherwise nothing."""
    names = tuple(models)
    at = {name: split_addresses(address)[0] for name, address in addresses.items()}
    own = (name.startswith(_CACHING) or (name in at and not is_hosted(at[name])) for name in names)
    return names if all(own) else ()


def warn_of_cache(late: Usage, models: Sequence[str]) -> str:
    """Return what is wrong with the prefix cache of ``models``; empty if nothing is.

    ``late`` is the usage of their turns from :data:`LATE` on. Of other servers than vLLM and SGLang, it is known that
    they have a cache once they report cached tokens.
    """
    known = late.cached or all(model.startswith(_CACHING) for model in models)
    if not models or not late.prompt or late.cached_share >= 0.5 or not known:
        return ""
    if not late.cached:
        return (
            "The server reports no cached tokens from the sixth turn on. Start vLLM with --enable-prompt-tokens-details"
            " and SGLang with --enable-cache-report to see whether conversations find their prefix cache."
        )
    return (
        f"From the sixth turn on, only {write_percent(late.cached_share, 0)} of the prompt tokens came from the prefix"
        " cache. Send each conversation to one server: `bactrian help howto/cluster.md`."
    )
