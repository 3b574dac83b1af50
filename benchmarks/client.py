"""One measured run in a process of its own: ``python -m benchmarks.client WHO PORT CONVERSATIONS``.

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
from functools import partial
from pathlib import Path

import aiohttp

from bactrian.generate.crew import Limits
from bactrian.generate.plan import Plan
from bactrian.generate.work import Order, open_work, spare_the_collector
from bactrian.models.model import Request
from bactrian.models.names import Access
from bactrian.models.openai import OpenAI
from bactrian.models.spend import Meter
from bactrian.play.scene import role_play
from bactrian.play.setup import Setup, new_session
from bactrian.prompts.pack import Pack, load_pack
from bactrian.recipes.load import load_recipe
from bactrian.records.message import Message
from bactrian.records.sampling import Sampling
from bactrian.records.task import Role
from bactrian.records.text import Text
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
        plan=Plan(load_recipe(str(recipe)), dict.fromkeys((*AGENTS, "lister"), "openai:bench")),
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


def openings(pack: Pack, number: int) -> dict[str, list[Message]]:
    """What each agent has before it when the conversation with this number begins."""
    scene = role_play(new_session(wish(number), pack), pack, dict.fromkeys(AGENTS, OpenAI("bench")), rules=())
    return {
        name: [
            Message("system", agent.system),
            *([Message("user", agent.opening)] if agent.opening else []),
        ]
        for name, agent in scene.agents.items()
    }


async def raw(port: int, conversations: int) -> tuple[int, int]:
    """The same requests from aiohttp alone: the body is put together from bytes, the reply decoded."""
    pack = load_pack("ai-society")
    url = f"http://127.0.0.1:{port}/v1/chat/completions"

    async def one(number: int) -> int:
        heads = {
            name: [_encoded(message.role, message.text) for message in messages]
            for name, messages in openings(pack, number).items()
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
        return said

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        said = await asyncio.gather(*(one(number) for number in range(conversations)))
    return CALLS * conversations, sum(said)


async def client(port: int, conversations: int) -> tuple[int, int]:
    """The same requests from ``openai:`` alone: no loop, no endings, no wrappers, no store."""
    pack = load_pack("ai-society")
    model = OpenAI("bench", base_url=f"http://127.0.0.1:{port}/v1")
    sampling = Sampling(temperature=0.2, max_tokens=1024)

    async def one(number: int) -> int:
        histories = openings(pack, number)
        said = 0
        for call in range(CALLS):
            speaker = "user" if call % 2 == 0 else "assistant"
            text = (await model.reply(Request(histories[speaker], sampling))).text
            said += len(text)
            for name, messages in histories.items():
                messages.append(Message("assistant" if name == speaker else "user", text))
        return said

    said = await asyncio.gather(*(one(number) for number in range(conversations)))
    await model.close()
    return CALLS * conversations, sum(said)


def _encoded(role: str, text: Text) -> bytes:
    return json.dumps({"role": role, "content": text}).encode()


def main() -> None:
    """Run and print what it took."""
    who, port, conversations = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, wall = time.process_time(), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        works = {"raw": raw, "client": client, "bactrian": partial(bactrian, folder=Path(folder))}
        calls, characters = asyncio.run(works[who](port, conversations))
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
