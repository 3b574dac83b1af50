"""Events from a task of their own, so that a caller may leave them at any time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

_Item = TypeVar("_Item")


async def yield_from_task(items: AsyncGenerator[_Item]) -> AsyncGenerator[_Item]:
    """Yield ``items``, which are produced in a task, each one when it is asked for.

    A caller that breaks out of its loop leaves closing to the event loop. At its end, the event loop closes all
    asynchronous generators at once, and those that wait for each other fail. It ends tasks before that, in order.
    """
    asked: asyncio.Queue[asyncio.Future[_Item | None]] = asyncio.Queue()

    async def produce() -> None:
        async with aclosing(items):
            while True:
                answer = await asked.get()
                try:
                    item = await anext(items, None)
                except Exception as error:  # noqa: BLE001  the caller gets it
                    if not answer.done():
                        answer.set_exception(error)
                    return
                if not answer.done():
                    answer.set_result(item)
                if item is None:
                    return

    task = asyncio.create_task(produce())
    try:
        while True:
            answer = asyncio.get_running_loop().create_future()
            asked.put_nowait(answer)
            done, _ = await asyncio.wait([task, answer], return_when=asyncio.FIRST_COMPLETED)
            if answer not in done:
                break
            item = answer.result()
            if item is None:
                break
            yield item
    finally:
        task.cancel()
        if not task.done():
            await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
