"""The example that starts workers by Ray, with a real Ray and a real PostgreSQL, and an actor that is killed."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.helpers.command import clean_environment
from tests.helpers.endpoint import Endpoint
from tests.helpers.network import LOG
from tests.helpers.postgres import PostgresServer
from tests.helpers.shared_runs import CALLS, NumberedReplies, check_whole

EXAMPLE = Path(__file__).parents[2] / "examples" / "ray_workers.py"


def find_actors(database: str) -> set[int]:
    """The actors whose processes play the run in ``database``."""
    actors: set[int] = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes().split(b"\0")
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            above = Path(f"/proc/{parent}/cmdline").read_bytes()
        except OSError:
            continue  # It has ended meanwhile.
        if above.startswith(b"ray::Worker") and any(database.encode() in each for each in command):
            actors.add(parent)
    return actors


@pytest.mark.soak
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install ray")
async def test_three_actors_of_ray_of_which_one_is_killed_make_the_run_that_one_process_makes(
    folder: Path, server: PostgresServer, database: str
) -> None:
    replies, refused = NumberedReplies(0.6), folder / "refused.txt"
    refused.touch()
    async with Endpoint([replies]) as endpoint:
        run = ("small.toml", "--run", server.address(database), "--quiet", "--concurrency", "2")
        model = ("--model", "openai:any", "--base-url", endpoint.url)
        ray = await asyncio.create_subprocess_exec(
            *(sys.executable, str(EXAMPLE), "3", *run, *model),
            cwd=folder,
            env=clean_environment(RAY_USAGE_STATS_ENABLED="0", **{LOG: str(refused)}),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        told = asyncio.create_task(ray.communicate())
        while len(actors := find_actors(database)) < 3 or len(endpoint.requests) < 10:
            assert not told.done(), (await told)[0].decode()
            await asyncio.sleep(0.2)
        os.kill(min(actors), signal.SIGKILL)
        out = (await told)[0].decode()
        assert ray.returncode == 0, out
        assert "Exit codes: 0 0 0" in out
        # The killed one had two conversations in flight.
        assert CALLS <= len(endpoint.requests) <= CALLS + 2
    # Ray itself asks on which cloud it is, and is not let.
    assert re.sub(r".*(169\.254\.169\.254|metadata\.google\.internal).*\n", "", refused.read_text()) == ""
    await check_whole(folder, server.address(database), replies)
