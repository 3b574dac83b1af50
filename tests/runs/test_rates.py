"""Limits on requests a minute count what was sent, also where connections are cut."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.helpers.endpoint import Endpoint, Plan, Raw, Received
from tests.helpers.generation import generate, said

_PER_MINUTE = 2400


@pytest.mark.slow
@pytest.mark.parametrize(
    "cut",
    [
        Raw(ending="reset"),
        Raw(ending="close"),
        Raw((b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{",), "close"),
        Raw((b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{",), "reset"),
    ],
    ids=["reset before", "closed before", "closed within", "reset within"],
)
async def test_connections_that_are_cut_do_not_raise_the_rate(folder: Path, cut: Raw) -> None:
    at: list[float] = []
    asked: set[bytes] = set()

    async def reply(request: Received) -> Plan:
        at.append(time.monotonic())
        await asyncio.sleep(0.01)
        # Once for the same request: the waits before it is sent again would double.
        first = request.body not in asked
        asked.add(request.body)
        return cut if first and len(asked) % 3 == 2 else said(request)

    async with Endpoint([reply]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--requests-per-minute", str(_PER_MINUTE))
    assert code == 0, err
    assert len(at) == 51 + 51 // 3
    assert (at[-1] - at[0]) >= (len(at) - 1) * 60 / _PER_MINUTE * 0.95
