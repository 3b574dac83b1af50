"""A chat-completions server with random words, in a process of its own: ``python -m benchmarks.server PORT LATENCY``.

With the options of :class:`Gate` as JSON behind them, it refuses requests by chance, or above a limit.

It reads just enough of a request to answer it, so that the client is what is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import sys
from dataclasses import dataclass, field

# As long as real replies are, and with new words in each turn: short ones that differ in a number cost the endings
# nothing, and hid that a call had become dearer by a quarter.
WORDS = 80
_VOCABULARY = [
    "".join(syllables) for syllables in itertools.product(("ba", "ko", "li", "mu", "ne"), repeat=4)
]
_END = b"\r\n\r\n"


@dataclass
class Gate:
    """What the server refuses; 0 stands for no limit."""

    faults: float = 0.0
    """Share of requests that are refused by chance."""
    status: int = 429
    room: int = 0
    """Requests at once."""
    per_second: float = 0.0
    tokens_per_second: float = 0.0
    burst: float = 1.0
    """Seconds for which unused requests and tokens are kept."""
    retry_after: int = 0
    """Seconds that a refusal asks for; 0 for no such header."""
    inside: int = 0
    _free_at: float = 0.0
    _chance: random.Random = field(default_factory=lambda: random.Random(2))

    def accept(self, now: float, tokens: int) -> bool:
        """Tell whether a request is let in, and count it."""
        if self._chance.random() < self.faults or (self.room and self.inside >= self.room):
            return False
        # Seconds that the request uses up; the bucket is as full as `_free_at` lies in the past.
        costs = [1 / self.per_second] if self.per_second else []
        costs += [tokens / self.tokens_per_second] if self.tokens_per_second else []
        if costs:
            begun = max(self._free_at, now - self.burst)
            if begun + max(costs) > now:
                return False
            self._free_at = begun + max(costs)
        self.inside += 1
        return True

    def refuse(self) -> bytes:
        """Return the answer to a request that is not let in."""
        after = f"Retry-After: {self.retry_after}\r\n" if self.retry_after else ""
        return f"HTTP/1.1 {self.status} No\r\n{after}Content-Length: 0\r\n\r\n".encode()


class Conversation(asyncio.BufferedProtocol):
    """One connection of a client. Receives into one small buffer for all: a large one each time takes longer."""

    _room = memoryview(bytearray(1 << 16))

    def __init__(self, latency: float, source: random.Random, gate: Gate) -> None:
        self._latency = latency
        self._gate = gate
        self._random = source
        self._received = bytearray()
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's word for it)
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._received += self._room[:nbytes]
        head = self._received.find(_END)
        if head < 0:
            return
        length = int(self._received[:head].lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(self._received) < head + len(_END) + length:
            return
        asks = b"you instruct" in self._received[head : head + 600]
        self._received.clear()
        if not self._gate.accept(asyncio.get_running_loop().time(), length // 4 + 60):
            if self._transport is not None:
                self._transport.write(self._gate.refuse())
            return
        if self._latency:
            asyncio.get_running_loop().call_later(self._latency, self._answer, asks)
        else:
            self._answer(asks)

    def _answer(self, asks: bool) -> None:
        self._gate.inside -= 1
        words = " ".join(self._random.choices(_VOCABULARY, k=WORDS))
        text = f"Instruction: {words}\\nInput: None" if asks else f"Solution: {words}.\\nNext request."
        body = (
            '{"id":"b","object":"chat.completion","created":1,"model":"bench","choices":[{"index":0,"message":'
            f'{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],'
            '"usage":{"prompt_tokens":1000,"completion_tokens":60,"total_tokens":1060}}'
        ).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        if self._transport is not None:
            self._transport.write(head.encode() + body)


async def serve(port: int, latency: float, gate: Gate) -> None:
    """Serve until the process is ended."""
    source = random.Random(1)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: Conversation(latency, source, gate), "127.0.0.1", port, backlog=2048
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(
        serve(int(sys.argv[1]), float(sys.argv[2]), Gate(**json.loads("".join(sys.argv[3:]) or "{}")))
    )
