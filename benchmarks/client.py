"""One measured run in a process of its own: ``python -m benchmarks.client WHO PORT CONVERSATIONS WINDOW``.

``WHO`` is ``raw`` (aiohttp posting the same bytes and decoding the reply), ``client`` (the same histories through the
model ``openai:`` and nothing around it) or ``bactrian`` (``generate`` with everything on: endings, retry, throttle,
spend, and every turn in SQLite before the next request). Prints one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from bactrian.models.budget import UsageMeter
from bactrian.models.model import Request
from bactrian.models.open import ModelOptions
from bactrian.models.openai import OpenAIModel
from bactrian.protocol.pack import Pack, load_pack
from bactrian.recipes.load import load_recipe
from bactrian.records.session import Role
from bactrian.records.text import Text
from bactrian.records.turn import Message, Sampling
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import RolePlaySetup, new_session
from bactrian.runs.plan import Plan
from bactrian.runs.wiring import RunLimits, RunOrder, prepare_run, tune_gc

CALLS = 40
AGENTS = ("user", "assistant", "task_specifier", "task_planner")


def wish(number: int) -> RolePlaySetup:
    """The conversation with this number."""
    return RolePlaySetup(
        idea=f"Build tool {number}",
        assistant=Role("Programmer"),
        user=Role("Trader"),
        models=dict.fromkeys(AGENTS, "openai:bench"),
        specify=False,
        max_messages=CALLS,
    )


RECIPE = """
name = "bench"
[[axes]]
name = "idea"
count = {count}
given = [{ideas}]
[role_play]
assistant = "Programmer"
user = "Trader"
idea = "{{{{ idea }}}}"
specify = false
max_messages = {calls}
"""


@dataclass(frozen=True, slots=True)
class Work:
    """What is to be done."""

    port: int
    conversations: int
    window: int
    """Conversations in flight."""
    folder: Path
    """For the run."""


async def bactrian(work: Work) -> int:
    """Generate the conversations, as the command does. Gives the calls that this took."""
    conversations, folder = work.conversations, work.folder
    recipe = folder / "bench.toml"
    ideas = ", ".join(f'"Build tool {number}"' for number in range(conversations))
    recipe.write_text(RECIPE.format(count=conversations, ideas=ideas, calls=CALLS))
    order = RunOrder(
        plan=Plan(load_recipe(str(recipe)), dict.fromkeys((*AGENTS, "lister"), "openai:bench")),
        run=folder / "bench.db",
        access=ModelOptions(base_url=f"http://127.0.0.1:{work.port}/v1"),
        meter=UsageMeter(),
        limits=RunLimits(concurrency=work.window),
    )
    tune_gc()
    async with prepare_run(order) as opened:
        await opened.run()
        return opened.progress.meter.calls


def openings(pack: Pack, number: int) -> dict[str, list[Message]]:
    """What each agent has before it when the conversation with this number begins."""
    scene = build_role_play(
        new_session(wish(number), pack), pack, dict.fromkeys(AGENTS, OpenAIModel("bench")), rules=()
    )
    return {
        name: [
            Message("system", agent.system),
            *([Message("user", agent.opening)] if agent.opening else []),
        ]
        for name, agent in scene.agents.items()
    }


async def raw(work: Work) -> int:
    """The same requests from aiohttp alone: the body is put together from bytes, the reply decoded."""
    pack = load_pack("ai-society")
    url = f"http://127.0.0.1:{work.port}/v1/chat/completions"

    async def converse(number: int) -> None:
        heads = {
            name: [_encoded(message.role, message.text) for message in messages]
            for name, messages in openings(pack, number).items()
        }
        for call in range(CALLS):
            speaker = "user" if call % 2 == 0 else "assistant"
            body = b'{"model":"bench","messages":[' + b",".join(heads[speaker])
            body += b'],"temperature":0.2,"max_tokens":1024}'
            async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                reply = json.loads(await response.read())
            text = reply["choices"][0]["message"]["content"]
            encoded = json.dumps(text).encode()
            for name, messages in heads.items():
                role = b"assistant" if name == speaker else b"user"
                messages.append(b'{"role":"' + role + b'","content":' + encoded + b"}")

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        await in_window(converse, work)
    return CALLS * work.conversations


async def client(work: Work) -> int:
    """The same requests from ``openai:`` alone: no loop, no endings, no wrappers, no store."""
    pack = load_pack("ai-society")
    model = OpenAIModel("bench", base_url=f"http://127.0.0.1:{work.port}/v1")
    sampling = Sampling(temperature=0.2, max_tokens=1024)

    async def converse(number: int) -> None:
        histories = openings(pack, number)
        for call in range(CALLS):
            speaker = "user" if call % 2 == 0 else "assistant"
            text = (await model.reply(Request(histories[speaker], sampling))).text
            for name, messages in histories.items():
                messages.append(Message("assistant" if name == speaker else "user", text))

    await in_window(converse, work)
    await model.close()
    return CALLS * work.conversations


async def in_window(converse: Callable[[int], Awaitable[None]], work: Work) -> None:
    """Have all conversations, so many at once."""
    numbers = iter(range(work.conversations))

    async def worker() -> None:
        for number in numbers:
            await converse(number)

    await asyncio.gather(*(worker() for _ in range(work.window)))


def _encoded(role: str, text: Text) -> bytes:
    return json.dumps({"role": role, "content": text}).encode()


def main() -> None:
    """Run and print what it took."""
    who = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        port, conversations, window = map(int, sys.argv[2:5])
        work = Work(port, conversations, window, Path(folder))
        run = {"raw": raw, "client": client, "bactrian": bactrian}[who]
        first = work.folder / "first"
        first.mkdir()
        asyncio.run(run(Work(port, 1, 1, first)))  # imports what it needs
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        cpu, wall = time.process_time(), time.perf_counter()
        calls = asyncio.run(run(work))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    taken = {
        "cpu_ms_per_call": 1000 * cpu / calls,
        "calls_per_second": calls / wall,
        "kb_per_conversation": (peak - before) / work.window,
        "peak_mb": peak / 1024,
    }
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
