"""``python -m benchmarks.analysis [SESSIONS]``: how long analysing a run takes. 37,000 sessions: a million messages."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

from rich.console import Console

from bactrian.analyze.aggregate import measure
from bactrian.analyze.report import build_report
from bactrian.api.status import describe_usage
from bactrian.protocol.markers import read_instruction, read_solution
from bactrian.records.session import Ending, Provenance, Role, Session, Task
from bactrian.records.text import Text
from bactrian.records.turn import Turn, Usage
from bactrian.store import open_store

ROLES = ("Accountant", "Chef", "Doctor", "Lawyer", "Poet", "Coach", "Nurse", "Pilot")
WORDS = (
    "market data price model risk signal order trade volatility python function library error test review customer"
    " report analysis average window chart volume broker account parameter threshold"
).split()
AT_ONCE = 200


def sessions(count: int) -> Iterator[Session]:
    """Role-plays of 4, 12 or 40 messages, three of a hundred solutions being flakes and two being flips."""
    draw = Random(1)

    def said(sentences: int) -> str:
        return " ".join(
            " ".join(draw.choices(WORDS, k=draw.randint(6, 16))).capitalize() + "." for _ in range(sentences)
        )

    def solution() -> str:
        chance = draw.random()
        if chance < 0.02:
            return f"Instruction: {said(1)}"
        promise = "I will get started on that right away." if chance < 0.05 else said(5)
        return f"Solution: {promise}\nNext request."

    origin = Provenance("ai-society", "00" * 32, "free", {"user": "openai:m", "assistant": "openai:m"})
    for number in range(count):
        assistant, user = (Role(draw.choice(ROLES)) for _ in range(2))
        made: list[Turn] = []
        for place in range(1, 2 * draw.choice((2, 6, 20, 20, 20)) + 1):
            asks = place % 2 == 1
            text = f"Instruction: {said(2)}\nInput: None" if asks else solution()
            made.append(
                Turn(
                    number=place,
                    speaker="user" if asks else "assistant",
                    role=(user if asks else assistant).name,
                    text=Text(text),
                    said=(read_instruction if asks else read_solution)(text),
                    usage=Usage(100 + 130 * place, 80, 90 + 100 * (place - 1)),
                    seconds=draw.lognormvariate(0, 0.6),
                    first_token=None,
                    model="m",
                    finish="stop",
                )
            )
        ending = Ending("task_done", len(made), "user", "")
        yield Session(f"{number:06}", assistant, user, Task(said(1), said(2)), origin, tuple(made), ending)


async def write(path: Path, count: int) -> None:
    """Write a run of ``count`` sessions."""
    async with open_store(path) as store:

        async def store_session(session: Session) -> None:
            await store.begin(replace(session, turns=(), ending=None))
            await asyncio.gather(*(store.add_turn(session.id, turn) for turn in session.turns))
            assert session.ending is not None
            await store.end(session.id, session.ending, session.usage)

        some: list[Session] = []
        for session in sessions(count):
            some.append(session)
            if len(some) == AT_ONCE:
                await asyncio.gather(*map(store_session, some))
                some = []
        await asyncio.gather(*map(store_session, some))


async def read(path: Path) -> int:
    """Measure the run and make its report. Gives the number of messages."""
    async with open_store(path, read_only=True) as store:
        made = build_report(path.stem, await measure(store), await describe_usage(store))
    return made["messages"]


def main() -> None:
    """Write a run, analyse it, and print what that took."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 25_000
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        asyncio.run(write(path, count))
        wall, before = time.perf_counter(), os.times()
        messages = asyncio.run(read(path))
        wall, after = time.perf_counter() - wall, os.times()
        cpu = sum(after[:4]) - sum(before[:4])
        Console().print(
            f"{count:,} sessions, {messages:,} messages: {wall:.0f} s, {1000 * cpu / messages:.3f} ms CPU a message;"
            f" a million in {wall * 1e6 / messages:.0f} s"
        )


if __name__ == "__main__":
    main()
