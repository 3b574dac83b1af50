"""A way to a server on loopback that breaks as told: it cuts connections, or swallows what goes either way."""

from __future__ import annotations

import asyncio


class Proxy:
    """Passes TCP connections on to a port.

    async with Proxy(server.port) as proxy:
        ...  # a client of proxy.port
        proxy.swallow()
    """

    def __init__(self, to: int) -> None:
        self.port = 0
        self.cuts_left = 0
        """How often an answer is yet to be swallowed and its connection cut."""
        self._token = b""
        self._to = to
        self._open = asyncio.Event()
        self._open.set()
        self._refuses = False
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Proxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self._break()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def swallow(self) -> None:
        """Accept everything and pass nothing on, as where there is no route."""
        self._open.clear()

    def cut(self) -> None:
        """Cut all connections, and each new one."""
        self._refuses = True
        self._break()

    def cut_at_answer(self, token: bytes, times: int) -> None:
        """Cut a connection instead of passing on an answer of the server that holds ``token``, so many times."""
        self._token, self.cuts_left = token, times

    def mend(self) -> None:
        """Pass on again. What was swallowed is lost with its connections."""
        self._break()
        self._refuses = False
        self._open.set()

    def _break(self) -> None:
        for writer in list(self._connections):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        if self._refuses:
            writer.transport.abort()
            return
        there, to = await asyncio.open_connection("127.0.0.1", self._to)
        self._connections.add(to)
        for each in (self._pass(reader, to, writer, False), self._pass(there, writer, to, True)):
            task = asyncio.create_task(each)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        other: asyncio.StreamWriter,
        is_answer: bool,
    ) -> None:
        try:
            while data := await reader.read(1 << 16):
                await self._open.wait()
                if is_answer and self.cuts_left and self._token in data:
                    self.cuts_left -= 1
                    break
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass
        for each in (writer, other):
            self._connections.discard(each)
            each.transport.abort()
