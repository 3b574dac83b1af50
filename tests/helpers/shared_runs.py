"""What a run in PostgreSQL has to be after any fault: whole, of one piece, and equal to the run of one process."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import psycopg

from bactrian.shared.reading import pull_run
from bactrian.store.locations import read_address
from tests.helpers.command import Command
from tests.helpers.endpoint import Endpoint, Received
from tests.helpers.generation import asks, generate, said, stored

SESSIONS, TURNS, LISTS = 12, 4, 3
"""What the small recipe makes."""
_LONGEST_WAIT = 120
"""Seconds after which a test fails that would wait for ever."""
CALLS = LISTS + SESSIONS * TURNS


class NumberedReplies:
    """The replies of :func:`said` after about ``delay`` seconds, each with a number of its own: no two are alike."""

    def __init__(self, delay: float, *, length: int = 0) -> None:
        self.delay = delay
        self.requests: list[Received] = []
        self._more = Random(1).randbytes(length // 2).hex()

    def plain(self, request: Received) -> str:
        """The reply without its number."""
        text = said(request)
        return text if asks(request) == "lister" else text.replace("art ", f"art {self._more}", 1)

    async def __call__(self, request: Received) -> str:
        number = len(self.requests)
        self.requests.append(request)
        # Not in the order of asking: of two that play the same conversation, each is the first at times.
        await asyncio.sleep(self.delay * (0.5 + number * 7 % 10 / 10))
        text = self.plain(request)
        return text if asks(request) == "lister" else text.replace("art ", f"art [{number}] ", 1)


def remove_numbers(text: str) -> str:
    return re.sub(r"\[\d+\] ", "", text)


async def check_whole(folder: Path, address: str, replies: NumberedReplies) -> None:
    """Pull the run and check it: no turn is missing, each answers the turns before it, and it equals an SQLite run."""
    pull_run(read_address(address), folder / "pulled.db")
    async with Endpoint([replies.plain]) as endpoint:
        assert (await generate(folder, endpoint))[0] == 0
    pulled = await stored(folder, "pulled.db")
    for session in pulled:
        assert [turn.number for turn in session.turns] == list(range(1, TURNS + 1))
        for turn in session.turns:
            (number,) = re.findall(r"\[(\d+)\]", turn.text)
            read = [message["content"] for message in replies.requests[int(number)].json["messages"]]
            for earlier in session.turns[: turn.number - 1]:
                assert any(earlier.text in text for text in read), (session.id, turn.number, earlier.number)
    one, other = (
        {
            each.id: (each.ending, each.task, [remove_numbers(turn.text) for turn in each.turns])
            for each in sessions
        }
        for sessions in (await stored(folder), pulled)
    )
    assert len(one) == SESSIONS
    assert one == other


async def finish(*workers: Command) -> tuple[list[int], list[str]]:
    """Wait for the end of workers; give their exit codes and what they said to a person."""
    said = await asyncio.gather(*(worker.communicate() for worker in workers))
    return [worker.wait() for worker in workers], [text.decode() for _, text in said]


def ask(address: str, query: str) -> list[tuple[object, ...]]:
    """The rows that the tables of a shared run give for a query."""
    where = read_address(address)
    with psycopg.connect(where.connection, options=f"-c search_path={where.schema}") as connection:
        return connection.execute(query.encode()).fetchall()


async def wait_for(address: str, query: str) -> None:
    """Wait until a query gives a row."""
    async with asyncio.timeout(_LONGEST_WAIT):
        while not await asyncio.to_thread(ask, address, query):
            await asyncio.sleep(0.1)


async def wait_for_calls(replies: NumberedReplies, number: int) -> None:
    async with asyncio.timeout(_LONGEST_WAIT):
        while len(replies.requests) < number:
            await asyncio.sleep(0.02)


def through(address: str, port: int) -> str:
    """The same run, reached by another port."""
    parts = urlsplit(address)
    return parts._replace(netloc=parts.netloc.rpartition(":")[0] + f":{port}").geturl()
