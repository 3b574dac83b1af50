"""What becomes of a command whose output is closed, full, or read by nobody any more."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest

import bactrian
from bactrian.store import open_store
from tests.helpers.endpoint import Answer, Endpoint, Received, completion
from tests.helpers.shell import open_shell

pytestmark = pytest.mark.system

ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("OPENAI", "BACTRIAN", "PYTHON"))
}
TURNS = 30
RECIPE = f"""
name = "tea"
[[axes]]
name = "idea"
count = 3
given = ["Boil", "Pour", "Drink"]
[role_play]
assistant = "Cook"
user = "Guest"
idea = "{{{{ idea }}}}"
specify = false
max_messages = {TURNS}
"""


async def answer(request: Received) -> Answer:
    """A turn of some length, a moment after it was asked for."""
    number = len(request.json["messages"])
    await asyncio.sleep(0.08)
    asks = "and you instruct" in request.json["messages"][0]["content"]
    words = f"Part {number} {'x' * 2_000}"
    text = f"Instruction: {words}\nInput: None" if asks else f"Solution: {words}\nNext request."
    return Answer(completion(text))


@pytest.fixture(scope="module")
def forked(tmp_path_factory: pytest.TempPathFactory) -> Generator[str]:
    """The program ``bactrian``, whose commands are forked."""
    with open_shell(tmp_path_factory.mktemp("programs") / "bin") as folder:
        yield str(folder / "bactrian")


def command(program: str, verb: str, url: str) -> list[str]:
    wish = ["tea", "--no-specify", "--max-messages", str(TURNS)] if verb == "play" else ["tea.toml"]
    where = ["--run", "run.db", "--model", "openai:any", "--base-url", url, "--json"]
    return [program, verb, *wish, *where]


async def stored(path: Path) -> list[int]:
    async with open_store(path, read_only=True) as store:
        return [len(session.turns) async for session in store.sessions()]


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["play", "generate"])
async def test_a_reader_that_leaves_ends_the_command_quietly_and_it_can_be_taken_up(
    tmp_path: Path, forked: str, verb: str
) -> None:
    (tmp_path / "tea.toml").write_text(RECIPE)
    async with Endpoint([answer]) as endpoint:
        child = await asyncio.create_subprocess_exec(
            *command(forked, verb, endpoint.url), cwd=tmp_path, env=ENVIRONMENT, stdout=-1, stderr=-1
        )
        assert child.stdout is not None
        await child.stdout.readline()
        child.stdout._transport.close()  # type: ignore[attr-defined]
        assert child.stderr is not None
        assert await child.stderr.read() == b""
        assert await child.wait() == 141
        turns = await stored(tmp_path / "run.db")
        again = await asyncio.create_subprocess_exec(
            *command(forked, verb, endpoint.url), cwd=tmp_path, env=ENVIRONMENT, stdout=-1, stderr=-1
        )
        await again.communicate()
        assert again.returncode == 0
        total = TURNS * (1 if verb == "play" else 3)
        assert 0 < sum(turns) < total
        assert await stored(tmp_path / "run.db") == [TURNS] * (total // TURNS)
        assert len(endpoint.requests) <= total + len(turns)


SCRIPT = {
    "user": ["Instruction: Boil “it”.\nInput: None", "<CAMEL_TASK_DONE>"],
    "assistant": ["Solution: 😀é"],
}
PLAY = "play tea --no-specify --model scripted:script.json --run run.db"


FRESH = f"{sys.executable} -m bactrian"
"""Started by Python itself, which then makes the standard streams."""
ALL_CLOSED = "<&- >&- 2>&-"


def shell(
    folder: Path, line: str, *, program: str = FRESH, encoding: str = "utf-8", **environment: str
) -> subprocess.CompletedProcess[str]:
    (folder / "script.json").write_text(json.dumps(SCRIPT))
    return subprocess.run(
        ["bash", "-c", line.replace("bactrian", program, 1)],
        cwd=folder,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        encoding=encoding,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize(
    "line",
    [
        f"{PLAY} --json",
        PLAY,
        "recipes",
        "recipes show ai-society",
        "prompts show ai-society",
        "--help",
        "models",
    ],
)
def test_an_output_that_cannot_be_written_is_told_in_two_lines(
    tmp_path: Path, forked: str, line: str
) -> None:
    done = shell(tmp_path, f"bactrian {line} > /dev/full", program=forked)
    assert done.returncode == 1
    told = done.stderr.splitlines()
    assert told[0].endswith("standard output: The output cannot be written: No space left on device.")
    assert len(told) == 2
    assert shell(tmp_path, f"bactrian {line}", program=forked).returncode == 0


@pytest.mark.parametrize("more", ["", "--json"])
@pytest.mark.parametrize(
    "closed",
    [
        pytest.param(">&-", marks=pytest.mark.soak),
        pytest.param(">&- 2>&-", marks=pytest.mark.soak),
        ALL_CLOSED,
    ],
)
def test_a_closed_output_is_no_fault(tmp_path: Path, forked: str, more: str, closed: str) -> None:
    program = FRESH if (more, closed) == ("", ALL_CLOSED) else forked
    done = shell(tmp_path, f"bactrian {PLAY} {more} {closed}", program=program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert asyncio.run(stored(tmp_path / "run.db")) == [3]


@pytest.mark.parametrize("closed", ["2>&-", "2> /dev/full"])
def test_what_standard_error_cannot_take_never_lands_in_the_data(
    tmp_path: Path, forked: str, closed: str
) -> None:
    wrong = shell(tmp_path, f"bactrian play --model nonsense {closed}", program=forked)
    assert (wrong.returncode, wrong.stdout, wrong.stderr) == (2, "", "")
    right = shell(tmp_path, f"bactrian {PLAY} --json {closed}", program=forked)
    assert [json.loads(line)["event"] for line in right.stdout.splitlines()][-1] == "ended"


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_an_encoding_lacks_is_escaped_and_the_data_is_the_same(
    tmp_path: Path, forked: str, encoding: str
) -> None:
    program = FRESH if encoding == "ascii" else forked
    done = shell(
        tmp_path, f"bactrian {PLAY} --json", program=program, encoding=encoding, PYTHONIOENCODING=encoding
    )
    assert done.stderr == ""
    spoke = [json.loads(line) for line in done.stdout.splitlines()][1:3]
    assert [line["text"] for line in spoke] == [SCRIPT["user"][0], SCRIPT["assistant"][0]]
    shown = shell(tmp_path, f"bactrian {PLAY}", program=forked, PYTHONIOENCODING="ascii", NO_COLOR="1")
    assert shown.returncode == 0
    assert shown.stdout.isascii()
    assert "\x1b" not in shown.stdout


def test_the_version_is_shown(tmp_path: Path, forked: str) -> None:
    done = shell(tmp_path, "bactrian --version", program=forked)
    assert (done.returncode, done.stdout) == (0, f"{bactrian.__version__}\n")
