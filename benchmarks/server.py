"""A chat-completions server with canned replies, in a process of its own: ``python -m benchmarks.server PORT LATENCY``.

It reads just enough of a request to answer it, so that the client is what is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import sys

INSTRUCTION = (
    "Instruction: Describe part {0} of the work, with its names and the reasons for {0}.\\nInput: None"
)
SOLUTION = (
    "Solution: Part {0} loads the prices, checks the columns and keeps the mean of {0} days. A second one compares "
    "the newest price with it and gives a signal; two tests cover an empty history and a constant one.\\nNext request."
)
_END = b"\r\n\r\n"


class Conversation(asyncio.BufferedProtocol):
    """One connection of a client. Receives into one small buffer for all: a large one each time takes longer."""

    _room = memoryview(bytearray(1 << 16))

    def __init__(self, latency: float, counter: itertools.count[int]) -> None:
        self._latency = latency
        self._counter = counter
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
        # The words differ from turn to turn, or the conversation would be ended as a loop.
        word = f"{next(self._counter) * 2654435761 % 2**32:x}"
        text = (INSTRUCTION if asks else SOLUTION).replace("{0}", word)
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
    counter = itertools.count()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Conversation(latency, counter), "127.0.0.1", port, backlog=2048)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), float(sys.argv[2])))
