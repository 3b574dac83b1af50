"""One measured run in a process of its own: ``python -m benchmarks.client WHO PORT CONVERSATIONS``.

``WHO`` is ``raw`` (aiohttp posting the same bytes and decoding the reply) or ``bactrian`` (the loop with its endings,
retry, and every turn in SQLite before the next request). Prints one line of JSON.
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

from bactrian.models.openai import OpenAI
from bactrian.models.retry import Retry
from bactrian.play.keep import kept
from bactrian.play.scene import role_play
from bactrian.play.session import play
from bactrian.play.setup import Setup, new_session
from bactrian.prompts.pack import load_pack
from bactrian.records.events import Spoke
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


async def bactrian(port: int, conversations: int, folder: Path) -> tuple[int, int]:
    """Play all conversations at once. Gives the number of calls and the characters that were said."""
    pack = load_pack("ai-society")
    model = Retry(OpenAI("bench", base_url=f"http://127.0.0.1:{port}/v1"))

    async def one(number: int) -> tuple[int, int]:
        setup = wish(number)
        session = await store.begin(new_session(setup, pack))
        scene = role_play(session, pack, dict.fromkeys(AGENTS, model), rules=setup.rules())
        said = [
            len(event.turn.text)
            async for event in kept(play(scene), session.id, store)
            if isinstance(event, Spoke)
        ]
        return len(said), sum(said)

    async with open_store(folder / "bench.db") as store:
        results = await asyncio.gather(*(one(number) for number in range(conversations)))
        await model.close()
    return sum(calls for calls, _ in results), sum(said for _, said in results)


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
