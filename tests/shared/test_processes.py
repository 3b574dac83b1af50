"""A run that several processes of this computer play equals that of one, whatever happens to them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import bactrian as bt
from tests.helpers.command import Command, bactrian
from tests.helpers.endpoint import Calls, Endpoint, Plan, Received, completion
from tests.helpers.generation import RECIPE, asks, generate, said, start, stored
from tests.helpers.sandbox import needs_sandbox

pytestmark = pytest.mark.system

TWO = ("--processes", "2", "--concurrency", "4", "--seed", "7", "--json")


async def say(request: Received) -> Plan:
    await asyncio.sleep(0.1)
    return said(request)


async def read(folder: Path, name: str = "run.db") -> dict[str, Any]:
    """What was said in each session, its seeds, and how it ended."""
    return {
        session.id: (
            [(turn.number, turn.speaker, turn.text, turn.model) for turn in session.turns],
            session.ending,
            session.task,
            session.provenance,
            session.values,
        )
        for session in await stored(folder, name)
    }


async def expect_run_of_one(folder: Path) -> None:
    """Check that the run equals one of a single process."""
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--run", "alone.db", "--seed", "7"))[0] == 0
    assert await read(folder) == await read(folder, "alone.db")


def list_players(command: Command) -> list[int]:
    """The processes that play for a command."""
    return [int(pid) for pid in Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text().split()]


def is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until_asked(endpoint: Endpoint, number: int, command: Command) -> None:
    """Wait until the endpoint was asked so often."""
    while len(endpoint.requests) < number:
        assert command.returncode is None, command.peek()
        await asyncio.sleep(0.02)


@pytest.mark.slow
async def test_two_processes_make_the_run_of_one(folder: Path) -> None:
    async with Endpoint([say]) as endpoint:
        code, lines, err = await generate(folder, endpoint, *TWO)
        assert code == 0, err
        asked = list(endpoint.requests)
    assert Counter(map(asks, asked))["lister"] == 3  # each list once
    assert len({request.body for request in asked}) == len(asked) == 3 + 12 * 4  # each turn once
    assert len({request.peer for request in asked}) > 1
    ended = lines[-1]
    assert (ended["done"], ended["endings"], ended["calls"]) == (12, {"max_messages": 12}, 51)
    sessions = await stored(folder)
    listed = 3 * (11 + 7)
    assert ended["run_tokens"] == sum(session.usage.total for session in sessions) + listed
    await expect_run_of_one(folder)


@pytest.mark.slow
async def test_what_a_killed_process_played_goes_on_in_another_one(folder: Path) -> None:
    async with Endpoint([say]) as endpoint:
        command = start(folder, endpoint, *TWO)
        await until_asked(endpoint, 12, command)
        first, _ = list_players(command)
        os.kill(first, signal.SIGKILL)
        _, err = await command.communicate()
        assert command.wait() == 0, err
        assert b"SIGKILL" in err
        # What was in flight at the killed process is paid for twice, and no more.
        assert len(endpoint.requests) <= 3 + 12 * 4 + 2
    await expect_run_of_one(folder)


@pytest.mark.soak
async def test_a_process_that_is_stopped_is_continued(folder: Path) -> None:
    async with Endpoint([say]) as endpoint:
        command = start(folder, endpoint, *TWO)
        await until_asked(endpoint, 12, command)
        for player in list_players(command):
            os.kill(player, signal.SIGSTOP)
        _, err = await command.communicate()
        assert command.wait() == 0, err
        assert len(endpoint.requests) == 3 + 12 * 4
    await expect_run_of_one(folder)


@pytest.mark.slow
async def test_processes_that_are_killed_again_and_again_leave_the_run_whole(folder: Path) -> None:
    async def answer(request: Received) -> Plan:
        await asyncio.sleep(0.2)
        return said(request)

    chance = random.Random(5)
    kills = 0
    async with Endpoint([answer]) as endpoint:
        command = start(folder, endpoint, *TWO)
        for asked in (8, 22, 36):
            await until_asked(endpoint, asked, command)
            os.kill(chance.choice(list_players(command)), signal.SIGKILL)
            kills += 1
        _, err = await command.communicate()
        assert command.wait() == 0, err
        assert len(endpoint.requests) <= 3 + 12 * 4 + 4 * kills
    await expect_run_of_one(folder)


@pytest.mark.slow
async def test_the_processes_of_a_killed_command_end_and_resume_goes_on(folder: Path) -> None:
    async with Endpoint([say]) as endpoint:
        command = start(folder, endpoint, *TWO)
        await until_asked(endpoint, 20, command)
        players = list_players(command)
        assert len(players) == 2
        command.kill()
        await command.communicate()
        async with asyncio.timeout(5):
            while any(map(is_alive, players)):
                await asyncio.sleep(0.02)
        resumed = Command(
            ("resume", "run.db", "--send-keys-to", endpoint.url, "--json"), folder, dict(os.environ)
        )
        # As many as the stored command had.
        while resumed.returncode is None and len(list_players(resumed)) < 2:
            await asyncio.sleep(0.02)
        _, err = await resumed.communicate()
        assert resumed.wait() == 0, err
    await expect_run_of_one(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.soak)]
)
async def test_a_signal_to_all_processes_finishes_what_is_in_flight(
    folder: Path, which: signal.Signals, code: int
) -> None:
    async with Endpoint([say]) as endpoint:
        command = start(folder, endpoint, *TWO)
        await until_asked(endpoint, 20, command)
        for pid in (command.pid, *list_players(command)):
            os.kill(pid, which)
        _, err = await command.communicate()
        assert command.wait() == code, err
        asked = len(endpoint.requests)
        assert asked < 3 + 12 * 4
        assert (await generate(folder, endpoint, *TWO))[0] == 0
        assert len(endpoint.requests) == 3 + 12 * 4  # nothing is paid for twice
    await expect_run_of_one(folder)


def count(request: Received) -> Plan:
    """A reply that says honestly what it used."""
    text = said(request)
    assert isinstance(text, str)
    prompt = sum(len(message["content"]) for message in request.json["messages"]) // 4
    return {**completion(text), "usage": {"prompt_tokens": prompt, "completion_tokens": len(text) // 4 + 1}}


@pytest.mark.slow
async def test_one_budget_holds_for_all_processes(folder: Path) -> None:
    async with Endpoint([count]) as endpoint:
        limits = ("--price", "1000/1000", "--set", "task.max_tokens=1000", *TWO)
        limits = (*limits, "--set", "parameters.max_tokens=100", "--budget")
        code, lines, err = await generate(folder, endpoint, *limits, "8")
        assert code == 3, err
        assert 5 < lines[-1]["usd"] <= 8
        assert 3 < len(endpoint.requests) < 12 * 4
        code, lines, err = await generate(folder, endpoint, *limits, "100")
        assert code == 0, err
        assert len(endpoint.requests) == 12 * 4 + 3


@pytest.mark.slow
async def test_a_budget_is_not_passed_where_no_process_knows_how_long_replies_are(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        text = said(request)
        assert isinstance(text, str)
        return {**completion(text), "usage": {"prompt_tokens": 100, "completion_tokens": 8000}}

    asked = 'per = ["role"]\nask = "List {{ count }} tasks for {{ role }}."'
    (folder / "small.toml").write_text(RECIPE.replace(asked, 'given = ["Sing", "Run", "Dig", "Swim"]'))
    async with Endpoint([reply]) as endpoint:
        options = ("--set", "parameters.max_tokens=none", "--processes", "4", "--concurrency", "4", "--json")
        code, lines, err = await generate(folder, endpoint, *options, "--max-tokens", "30000")
        assert code == 3, err
        assert 8100 < lines[-1]["run_tokens"] <= 30_000
        code, lines, err = await generate(folder, endpoint, *options, "--max-tokens", "1000000")
        assert code == 0, err
        assert len(endpoint.requests) == 12 * 4


@pytest.mark.slow
async def test_one_limit_of_requests_holds_for_all_processes(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        options = ("--requests-per-minute", "600", "--limit", "4", *TWO)
        code, lines, err = await generate(folder, endpoint, *options)
        assert code == 0, err
        assert lines[-1]["seconds"] > (len(endpoint.requests) - 2) / 10


CRITIC = """
[critic]
role = "Head of {{ role }}"
proposals = 2
"""


def choose(request: Received) -> Plan:
    body = request.json
    if "numbered proposals" in body["messages"][0]["content"]:
        return "Choice: 2\nIt is longer."
    text = said(request)
    assert isinstance(text, str)
    return completion(*[text, text.replace("Part", "Chapter").replace("Do", "Finish")][: body.get("n", 1)])


@pytest.mark.slow
async def test_critics_choose_as_in_one_process(folder: Path) -> None:
    (folder / "small.toml").write_text(RECIPE + CRITIC)
    async with Endpoint([choose]) as endpoint:
        assert (await generate(folder, endpoint, *TWO))[0] == 0
        assert (await generate(folder, endpoint, "--run", "alone.db", "--seed", "7"))[0] == 0
    assert await read(folder) == await read(folder, "alone.db")
    runs = [bt.open_run(folder / name) for name in ("run.db", "alone.db")]
    chosen = [[session.turns[-1].text for session in run] for run in runs]
    assert all("Chapter" in text for text in chosen[0])


TOOLS = """
[tools]
python = "shop.py"
"""


@pytest.mark.slow
@pytest.mark.parametrize("crashes", [False, True])
async def test_the_tools_of_a_recipe_run_in_each_process(folder: Path, crashes: bool) -> None:
    end = "os.kill(os.getpid(), 9)" if crashes else "pass"
    (folder / "shop.py").write_text(
        f"import os\ndef price(item: str) -> int:\n    'Return a price.'\n    {end}\n    return os.getpid()\n"
    )
    (folder / "small.toml").write_text(RECIPE + TOOLS)

    def buy(request: Received) -> Plan:
        messages = request.json["messages"]
        if asks(request) != "assistant" or messages[-1]["role"] == "tool":
            return said(request)
        return Calls([("price", {"item": "tea"})])

    async with Endpoint([buy]) as endpoint:
        code, _, err = await generate(folder, endpoint, *TWO, "--limit", "4")
    if crashes:
        assert code == 1
        assert "3 processes have died" in err
        assert "Traceback" not in err
        return
    assert code == 0, err
    results = [use.result for session in await stored(folder) for turn in session.turns for use in turn.uses]
    assert len({result.text for result in results if result is not None}) == 2


@pytest.mark.slow
@needs_sandbox
def test_embodied_agents_run_their_code_in_each_process(tmp_path: Path) -> None:
    (tmp_path / "shopping.toml").write_text(
        """
        name = "shopping"
        [[axes]]
        name = "buyer"
        count = 4
        given = ["Buyer", "Cook", "Clerk", "Nurse"]
        [role_play]
        assistant = "{{ buyer }}"
        user = "Boss"
        idea = "Add one and two"
        embodied = true
        specify = false
        """
    )
    act = "```python\nprint(1 + 2)\nopen('sum.txt', 'w').write('3')\n```"
    script = {
        "user": ["Instruction: Add 1 and 2.\nInput: None", "<CAMEL_TASK_DONE>"],
        "assistant": [act, "Solution: 3.\nNext request."],
    }
    (tmp_path / "script.json").write_text(json.dumps(script))
    run = bt.generate(
        tmp_path / "shopping.toml",
        run=tmp_path / "s.db",
        model=f"scripted:{tmp_path / 'script.json'}",
        processes=2,
        run_code=True,
    )
    assert run.endings == {"task_done": 4}
    assert sorted(path.name for path in (tmp_path / "s.db.files").glob("*/*")) == ["sum.txt"] * 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--model", "local"), "all cores already"),
        (("--model", "openai:any", "--batch"), "hardly any computing"),
        (("--model", "openai:any", "--run", "postgresql://db/society"), "as many commands"),
    ],
)
def test_what_gains_nothing_by_processes_is_refused_with_the_reason(
    folder: Path, options: tuple[str, ...], reason: str
) -> None:
    run = () if "--run" in options else ("--run", "run.db")
    done = bactrian("generate", "small.toml", *run, *options, "--processes", "2", cwd=folder)
    assert done.returncode == 2
    assert "--processes: " in done.stderr
    assert reason in done.stderr
    assert "Leave --processes N out" in done.stderr


def test_objects_of_python_stay_in_their_process(tmp_path: Path) -> None:
    model = bt.Scripted(["Instruction: Name one.\nInput: None"])
    with pytest.raises(bt.BactrianError, match="object of this Python process"):
        bt.generate("ai-society", run=tmp_path / "run.db", model=model, processes=2)
