"""One measured run in a process of its own: ``python -m benchmarks.client WHO PORT CONVERSATIONS``.

``WHO`` is ``raw`` (aiohttp posting the same bytes and decoding the reply) or ``bactrian`` (``generate`` with
everything on: endings, retry, throttle, spend, and every turn in SQLite before the next request). Prints one line of
JSON.
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import aiohttp

from bactrian.generate.crew import Limits
from bactrian.generate.plan import AGENTS as PLAN_AGENTS
from bactrian.generate.plan import Plan
from bactrian.generate.work import Order, open_work, spare_the_collector
from bactrian.models.names import Access
from bactrian.models.openai import OpenAI
from bactrian.models.spend import Meter
from bactrian.play.scene import role_play
from bactrian.play.setup import Setup, new_session
from bactrian.prompts.pack import load_pack
from bactrian.recipes.load import load_recipe
from bactrian.records.task import Role
from bactrian.store.store import open_store

CALLS = 40
AGENTS = ("user", "assistant", "task_specifier", "task_planner")


def wish(number: int) -> Setup:
    """The conversation with this number."""
    return Setup(
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


async def bactrian(port: int, conversations: int, folder: Path) -> tuple[int, int]:
    """Generate all conversations at once, as the command does. Gives the calls and the characters that were said."""
    recipe = folder / "bench.toml"
    ideas = ", ".join(f'"Build tool {number}"' for number in range(conversations))
    recipe.write_text(RECIPE.format(count=conversations, ideas=ideas, calls=CALLS))
    order = Order(
        plan=Plan(load_recipe(str(recipe)), dict.fromkeys(PLAN_AGENTS, "openai:bench")),
        run=folder / "bench.db",
        access=Access(base_url=f"http://127.0.0.1:{port}/v1"),
        meter=Meter(),
        limits=Limits(concurrency=conversations),
    )
    spare_the_collector()
    async with open_work(order) as work:
        await work.runner.run()
        calls = work.tally.meter.calls
    async with open_store(folder / "bench.db", read_only=True) as store:
        first = [session async for session in store.sessions() if session.id.endswith("1")]
    said = sum(len(turn.text) for session in first for turn in session.turns)
    return calls, said * conversations // len(first)


async def raw(port: int, conversations: int) -> tuple[int, int]:
    """The same requests from aiohttp alone: the body is put together from bytes, the reply decoded."""
    pack = load_pack("ai-society")
    url = f"http://127.0.0.1:{port}/v1/chat/completions"

    async def one(number: int) -> tuple[int, int]:
        setup = wish(number)
        agents = role_play(
            new_session(setup, pack), pack, dict.fromkeys(AGENTS, OpenAI("bench")), rules=()
        ).agents
        heads = {
            name: [
                _message("system", agent.system),
                *([_message("user", agent.opening)] if agent.opening else []),
            ]
            for name, agent in agents.items()
        }
        said = 0
        for call in range(CALLS):
            speaker = "user" if call % 2 == 0 else "assistant"
            body = b'{"model":"bench","messages":[' + b",".join(heads[speaker])
            body += b'],"temperature":0.2,"max_tokens":1024}'
            async with session.post(url, data=body, headers={"Content-Type": "application/json"}) as response:
                reply = json.loads(await response.read())
            text = reply["choices"][0]["message"]["content"]
            said += len(text)
            encoded = json.dumps(text).encode()
            for name, messages in heads.items():
                role = b"assistant" if name == speaker else b"user"
                messages.append(b'{"role":"' + role + b'","content":' + encoded + b"}")
        return CALLS, said

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        results = await asyncio.gather(*(one(number) for number in range(conversations)))
    return sum(calls for calls, _ in results), sum(said for _, said in results)


def _message(role: str, text: str) -> bytes:
    return json.dumps({"role": role, "content": text}).encode()


def main() -> None:
    """Run and print what it took."""
    who, port, conversations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, wall = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        work = raw(port, conversations) if who == "raw" else bactrian(port, conversations, Path(folder))
        calls, characters = asyncio.run(work)
    taken = {
        "cpu_ms_per_call": 1000 * (time.process_time() - cpu) / calls,
        "calls_per_second": calls / (time.perf_counter() - wall),
        "kb_per_conversation": (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / conversations,
        "text_kb": characters / conversations / 1024,
        "calls": calls,
    }
    print(json.dumps(taken))


if __name__ == "__main__":
    main()
