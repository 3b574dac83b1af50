"""What is refused is throttled, and the run only if refusals depend on its load; all in virtual time."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from bactrian.errors import TryAgain
from bactrian.models.faults import Retry, RetryPolicy
from bactrian.models.limits import ConcurrencyLimit
from bactrian.models.model import Reply, ReplyChoice, Request
from bactrian.records.text import Text
from bactrian.records.turn import Usage
from tests.helpers.virtual_time import run_virtually

SECONDS = 0.2
"""Mean time of a reply."""
SESSIONS = 32


@dataclass
class Rules:
    """What an endpoint refuses; 0 stands for no limit."""

    faults: float = 0.0
    """Share of requests that are refused by chance."""
    room: int = 0
    """Requests at once."""
    per_second: float = 0.0
    burst: int = 1
    """Requests that may come at once after a pause."""
    per_minute: int = 0
    """Requests in each minute of the clock."""
    after: float | None = None
    """The wait that a refusal asks for."""
    overload: int = 0
    """Requests at once from which some are refused; all, at twice as many."""
    seconds: float = SECONDS


@dataclass
class Server:
    """Answers and refuses by its rules, which may change."""

    rules: Rules
    name: str = "server"
    answers: list[float] = field(default_factory=list[float])
    refusals: list[float] = field(default_factory=list[float])
    inside: int = 0
    tokens: float = 0.0
    counted: float = 0.0
    minute: tuple[int, int] = (0, 0)
    chance: random.Random = field(default_factory=lambda: random.Random(2))

    def accepts(self, now: float) -> bool:
        rules = self.rules
        if self.chance.random() < rules.faults or (rules.room and self.inside >= rules.room):
            return False
        if rules.overload and self.chance.random() < self.inside / rules.overload - 1:
            return False
        if rules.per_minute:
            minute, count = self.minute
            self.minute = int(now // 60), 1 if int(now // 60) != minute else count + 1
            return self.minute[1] <= rules.per_minute
        if rules.per_second:
            self.tokens = min(rules.burst, self.tokens + (now - self.counted) * rules.per_second)
            self.counted = now
            if self.tokens < 1:
                return False
            self.tokens -= 1
        return True

    async def reply(self, request: Request) -> Reply:
        await asyncio.sleep(0.001)
        now = asyncio.get_running_loop().time()
        if not self.accepts(now):
            self.refusals.append(now)
            fault = TryAgain("refused")
            fault.overload, fault.after = True, self.rules.after
            raise fault
        self.inside += 1
        await asyncio.sleep(self.rules.seconds * self.chance.uniform(0.7, 1.3))
        self.inside -= 1
        self.answers.append(asyncio.get_running_loop().time())
        return Reply((ReplyChoice(Text("x")),), Usage(), "m")

    async def close(self) -> None: ...


def ask_for(seconds: float, server: Server, later: Callable[[], object] | None = None) -> ConcurrencyLimit:
    """Have sessions ask all the time; ``later`` is called halfway. Returns the limit after that."""

    async def ask() -> ConcurrencyLimit:
        clock = asyncio.get_running_loop().time
        limit = ConcurrencyLimit(server, SESSIONS, clock=clock)

        async def converse() -> None:
            model = Retry(limit, RetryPolicy(attempts=1000, first_wait=0.1), clock=clock)
            while True:
                await model.reply(Request(()))

        sessions = [asyncio.create_task(converse()) for _ in range(SESSIONS)]
        await asyncio.sleep(seconds / 2)
        if later is not None:
            later()
        await asyncio.sleep(seconds / 2)
        for session in sessions:
            session.cancel()
        await asyncio.wait(sessions)
        return limit

    random.seed(1)
    return run_virtually(ask())


def count_since(begun: float, times: list[float]) -> int:
    return sum(time >= begun for time in times)


@pytest.mark.parametrize(("faults", "least"), [(0.01, 0.9), (0.05, 0.75), (0.2, 0.6)])
@pytest.mark.parametrize("after", [None, 0.1])
def test_refusals_by_chance_slow_their_own_sessions_only(
    faults: float, least: float, after: float | None
) -> None:
    server = Server(Rules(faults, after=after))
    ask_for(15, server)
    assert len(server.answers) >= least * 15 * SESSIONS / SECONDS


@pytest.mark.parametrize(
    ("rules", "rate", "refused"),
    [
        (Rules(room=10), 10 / SECONDS, 0.1),
        (Rules(room=10, faults=0.05), 10 / SECONDS, 0.15),
        (Rules(per_second=50, burst=10), 50, 0.1),
        (Rules(per_second=50, burst=50, after=1.0), 50, 0.1),
        (Rules(per_second=10, burst=10, seconds=0.01), 10, 0.2),
        (Rules(overload=10), 10 / SECONDS, 0.1),
    ],
)
def test_a_limit_of_the_endpoint_is_found_within_ten_seconds(
    rules: Rules, rate: float, refused: float
) -> None:
    server = Server(rules)
    ask_for(25, server)
    answers, refusals = count_since(10, server.answers), count_since(10, server.refusals)
    assert answers >= 0.85 * 15 * rate
    assert refusals <= refused * (answers + refusals)


@pytest.mark.parametrize("rooms", [(8, 24), (24, 8)])
def test_a_limit_that_changes_is_found_again_within_ten_seconds(rooms: tuple[int, int]) -> None:
    server = Server(Rules(room=rooms[0]))

    def change() -> None:
        server.rules = replace(server.rules, room=rooms[1])

    ask_for(30, server, change)
    answers, refusals = count_since(25, server.answers), count_since(25, server.refusals)
    assert answers >= 0.85 * 5 * rooms[1] / SECONDS
    assert refusals <= 0.15 * (answers + refusals)


@pytest.mark.parametrize("after", [None, 5.0])
def test_an_endpoint_that_refuses_all_for_the_rest_of_a_minute_is_tried_by_single_requests(
    after: float | None,
) -> None:
    server = Server(Rules(per_minute=300, after=after))
    ask_for(180, server)
    assert len(server.answers) >= 0.9 * 3 * 300
    assert len(server.refusals) <= 0.35 * len(server.answers)


def test_answers_far_slower_than_the_best_lower_the_limit_until_they_are_fast_again() -> None:
    server = Server(Rules(seconds=0.5))

    def slow_down() -> None:
        server.rules = replace(server.rules, seconds=20.0)

    limit = ask_for(80, server, slow_down)
    assert limit.limit <= SESSIONS / 4
