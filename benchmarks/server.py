"""A chat-completions server with random words, in a process of its own: ``python -m benchmarks.server PORT LATENCY``.

It reads just enough of a request to answer it, so that the client is what is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sys

# As long as real replies are, and with new words in each turn: short ones that differ in a number cost the endings
# nothing, and hid that a call had become dearer by a quarter.
WORDS = 80
_VOCABULARY = [
    "".join(syllables) for syllables in itertools.product(("ba", "ko", "li", "mu", "ne"), repeat=4)
]
_END = b"\r\n\r\n"


class Conversation(asyncio.BufferedProtocol):
    """One connection of a client. Receives into one small buffer for all: a large one each time takes longer."""

    _room = memoryview(bytearray(1 << 16))

    def __init__(self, latency: float, source: random.Random) -> None:
        self._latency = latency
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
        if self._latency:
            asyncio.get_running_loop().call_later(self._latency, self._answer, asks)
        else:
            self._answer(asks)

    def _answer(self, asks: bool) -> None:
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


async def serve(port: int, latency: float) -> None:
    """Serve until the process is ended."""
    source = random.Random(1)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Conversation(latency, source), "127.0.0.1", port, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
