"""A run that is stopped loses nothing, and goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.command import clean_environment
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received
from tests.helpers.generation import asks, generate, said, start, stored


@pytest.mark.slow
async def test_one_interrupt_finishes_the_turns_in_flight_and_says_how_to_go_on(folder: Path) -> None:
    async def slow(request: Received) -> Plan:
        await asyncio.sleep(0.2)
        return said(request)

    async with Endpoint([slow]) as endpoint:
        process = start(folder, endpoint)
        while len(endpoint.requests) < 10:
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert process.returncode == 130
        assert "To resume: bactrian generate small.toml" in err.decode()
        asked = len(endpoint.requests)
        kept = sum(len(session.turns) for session in await stored(folder))
        lists = Counter(map(asks, endpoint.requests))["lister"]
        assert kept == asked - lists
        assert (await generate(folder, endpoint))[0] == 0
        assert len(endpoint.requests) == 12 * 4 + 3


@pytest.mark.system
async def test_a_second_interrupt_stops_at_once_and_nothing_stored_is_lost(folder: Path) -> None:
    async def stuck(request: Received) -> Plan:
        if asks(request) == "assistant":
            await asyncio.sleep(60)
        return said(request)

    async with Endpoint([stuck]) as endpoint:
        process = start(folder, endpoint)
        while Counter(map(asks, endpoint.requests))["assistant"] < 5:
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.3)
        assert process.returncode is None
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 10)
        assert process.returncode == 130
        assert sum(len(session.turns) for session in await stored(folder)) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP])
async def test_a_polite_end_finishes_what_is_in_flight_and_the_run_goes_on(
    folder: Path, which: signal.Signals
) -> None:
    async def slow(request: Received) -> Plan:
        await asyncio.sleep(0.2)
        return said(request)

    async with Endpoint([slow]) as endpoint:
        process = start(folder, endpoint)
        while len(endpoint.requests) < 10:
            await asyncio.sleep(0.02)
        process.send_signal(which)
        _, err = await process.communicate()
        assert process.returncode == 143
        assert "To resume: bactrian generate small.toml" in err.decode()
        assert (await generate(folder, endpoint))[0] == 0
        assert len(endpoint.requests) == 12 * 4 + 3


@pytest.mark.system
@pytest.mark.parametrize("waiting", ["for the endpoint", "for its turn", "to ask again"])
async def test_an_interrupt_does_not_sit_out_a_wait(folder: Path, waiting: str) -> None:
    asked = 0

    def reply(request: Received) -> Plan:
        nonlocal asked
        asked += 1
        if asked <= 6 or waiting == "for its turn":
            return said(request)
        after = {"Retry-After": "300"} if waiting == "for the endpoint" else {}
        return Answer("not now", status=429 if after else 502, headers=after)

    options = ["--requests-per-minute", "1"] if waiting == "for its turn" else []
    async with Endpoint([reply]) as endpoint:
        process = start(folder, endpoint, *options)
        while asked < (1 if options else 8):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(
            process.communicate(), 15
        )  # half of what it would wait for calls in flight
        assert process.returncode == 130
        assert "To resume: " in err.decode()


@pytest.mark.slow
async def test_signals_that_were_ignored_from_the_start_stay_ignored(folder: Path) -> None:
    async def slow(request: Received) -> Plan:
        await asyncio.sleep(0.05)
        return said(request)

    async with Endpoint([slow]) as endpoint:
        # As nohup and a shell's jobs in the background have them.
        usual = {which: signal.signal(which, signal.SIG_IGN) for which in (signal.SIGHUP, signal.SIGINT)}
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "bactrian", "generate", "small.toml", "--run", "run.db"),
                *("--model", "openai:any", "--base-url", endpoint.url),
                cwd=folder,
                env=clean_environment(),
                stderr=-1,
                start_new_session=True,
            )
        finally:
            for which, handler in usual.items():
                signal.signal(which, handler)
        while len(endpoint.requests) < 10:
            await asyncio.sleep(0.02)
        for which in usual:
            process.send_signal(which)
        _, err = await process.communicate()
    assert process.returncode == 0, err
    assert len(await stored(folder)) == 12


OWN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""Takes the standard input as the controlling terminal of a new session, and becomes the given command."""


@pytest.mark.slow
async def test_a_terminal_that_is_closed_loses_nothing(folder: Path) -> None:
    async def slow(request: Received) -> Plan:
        await asyncio.sleep(0.2)
        return said(request)

    terminal, theirs = os.openpty()
    async with Endpoint([slow]) as endpoint:
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-c",
                OWN_TERMINAL,
                sys.executable,
                "-m",
                "bactrian",
                "generate",
                "small.toml",
                "--run",
                "run.db",
            ),
            *("--model", "openai:any", "--base-url", endpoint.url),
            cwd=folder,
            env=clean_environment(),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        while len(endpoint.requests) < 10:
            await asyncio.sleep(0.02)
        os.close(terminal)  # the system sends SIGHUP, and every write fails from now on
        assert await asyncio.wait_for(process.wait(), 60) == 143
        asked = len(endpoint.requests)
        kept = sum(len(session.turns) for session in await stored(folder))
        assert kept == asked - Counter(map(asks, endpoint.requests))["lister"]
        assert (await generate(folder, endpoint))[0] == 0
        assert len(endpoint.requests) == 12 * 4 + 3
