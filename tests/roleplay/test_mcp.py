"""Tools of a real MCP server."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

from bactrian.errors import InputError
from bactrian.models.scripted import Scripted
from bactrian.protocol.markers import DONE
from bactrian.recipes.schema import ToolsSpec
from bactrian.records.events import Ended, Returned
from bactrian.records.text import Text
from bactrian.records.turn import Invocation, ToolCall, ToolResult, Usage
from bactrian.roleplay.loop import play_session
from bactrian.roleplay.role_play import build_role_play
from bactrian.roleplay.setup import new_session
from bactrian.roleplay.tools import BadArguments, ToolFailed, open_server, open_tools
from tests.helpers.command import clean_environment
from tests.helpers.scenes import AGENTS, setup
from tests.roleplay.test_tools import ANSWER, ASK, PACK

SERVER = f"{sys.executable} {Path(__file__).parents[1] / 'helpers/mcp_server.py'}"


@pytest.mark.slow
async def test_a_server_says_which_tools_it_has_and_calls_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    async with open_server(SERVER) as tools:
        by_name = {tool.tool.name: tool for tool in tools}
        assert list(by_name) == ["price", "stock_count", "broken", "key", "leave"]
        price = by_name["price"]
        assert price.tool.description == "The price of something."
        properties = price.tool.parameters["properties"]
        assert isinstance(properties, dict)
        assert list(properties) == ["item"]
        assert await price.run('{"item": "tea"}') == "tea is 3.50"
        assert "3" in await by_name["stock_count"].run("{}")
        assert await by_name["key"].run("{}") == "none"
        with pytest.raises(ToolFailed, match="broken"):
            await by_name["broken"].run("{}")
        with pytest.raises(ToolFailed, match="item"):
            await price.run("{}")
        for wrong in ("[1]", '{"item": ', "tea"):
            with pytest.raises(BadArguments):
                await price.run(wrong)


async def said(*lines: str) -> tuple[Sequence[ToolResult], str]:
    """What comes of an assistant's ``lines`` with the server's tools, and how the session ends."""
    async with open_tools({"assistant": ToolsSpec(mcp=(SERVER,), seconds=20)}) as boxes:
        wish = setup(tools={name: box.kit for name, box in boxes.items()})
        model = Scripted({"user": [ASK, DONE], "assistant": [*lines, ANSWER]})
        scene = build_role_play(
            new_session(wish, PACK), PACK, dict.fromkeys(AGENTS, model), rules=wish.rules(), tools=boxes
        )
        found = [event async for event in play_session(scene)]
    last = found[-1]
    assert isinstance(last, Ended)
    results = [event.result for event in found if isinstance(event, Returned)]
    return sorted(results, key=lambda result: (result.round, result.place)), last.ending.code


@pytest.mark.slow
async def test_an_agent_calls_them_in_its_turn_and_the_session_goes_on_when_the_server_has_ended() -> None:
    results, code = await said(
        'Call: price {"item": "tea"}\nCall: price {"item": "milk"}\nCall: broken {}\nCall: price {}',
        "Call: leave {}",
        'Call: price {"item": "tea"}',
    )
    assert [result.problem for result in results] == [None, None, *["failed"] * 4]
    assert [result.text for result in results[:2]] == ["tea is 3.50", "milk is 3.50"]
    assert code == "task_done"


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("no-such-program-here", "cannot be used"),
        (f"{sys.executable} -c 'print(1)'", "cannot be used"),
        ("'open", "quot"),
        (" ", "empty"),
    ],
)
async def test_what_is_no_server_is_wrong_usage(command: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        async with open_server(command):
            pass


async def test_two_tools_of_one_name_are_refused(tmp_path: Path) -> None:
    files = tmp_path / "own.py", tmp_path / "shop.py"
    for file in files:
        file.write_text('def price(item: str) -> str:\n    "Own."\n    return item\n')
    with pytest.raises(InputError, match="two tools named 'price'"):
        async with open_tools({"assistant": ToolsSpec(python=tuple(map(str, files)))}):
            pass


HOSTILE = Path(__file__).parents[1] / "helpers" / "hostile_mcp_server.py"


@pytest.mark.system
@pytest.mark.parametrize(
    "way",
    [
        *("endless list", "same cursor", "huge schema", "no tools", "no name", "empty list", "silent"),
        pytest.param("deep schema", marks=pytest.mark.slow),
    ],
)
async def test_a_server_whose_list_of_tools_is_none_is_refused(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bactrian.roleplay.tools._CONNECT", {"silent": 0.3, "deep schema": 1.5}.get(way, 5.0))
    async with asyncio.timeout(20):
        with pytest.raises(InputError, match="cannot be used"):
            async with open_server(f"{sys.executable} {HOSTILE} '{way}'") as tools:
                assert way == "deep schema"
                assert len(tools) == 1
                raise InputError("deep schemas are passed on, and it cannot be used to harm anybody")


@pytest.mark.system
@pytest.mark.parametrize(
    "way",
    [
        "asks the client",
        "flood",
        "changes its list",
        "no JSON",
        "dies",
        pytest.param("never answers", marks=pytest.mark.slow),
        "long answer",
        "wrong ids",
        "slow pattern",
    ],
)
async def test_what_a_server_does_in_a_call_reaches_the_model_as_a_result_and_nobody_else(
    way: str, capfd: pytest.CaptureFixture[str]
) -> None:
    spec = ToolsSpec(
        mcp=(f"{sys.executable} {HOSTILE} '{way}'",), seconds=0.5 if way == "never answers" else 4.0
    )
    async with asyncio.timeout(30), open_tools({"assistant": spec}) as tools:
        wanted = Invocation("a", "price", "{}")
        call = ToolCall(1, 1, 1, "assistant", wanted, Text(""), Usage(), 0.0, "m")
        result = await tools["assistant"].call(call)
    assert result.problem == {"dies": "failed", "never answers": "timeout"}.get(way), result
    assert len(result.text) < 20_000
    assert "Traceback" not in capfd.readouterr().err


async def none_lives(file: Path) -> None:
    """Wait until the processes in ``file`` have ended."""
    async with asyncio.timeout(20):
        while any(Path(f"/proc/{process}").exists() for process in file.read_text().split()):
            await asyncio.sleep(0.1)


@pytest.mark.system
async def test_no_process_of_a_server_outlives_the_command(tmp_path: Path) -> None:
    file = tmp_path / "processes"
    async with open_server(f"{sys.executable} {HOSTILE} 'leaves processes' {file}"):
        assert len(file.read_text().split()) == 3
    await none_lives(file)


PROGRAM = """
import asyncio, os, signal, sys
from bactrian.roleplay.tools import open_server
async def main():
    async with open_server(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.mark.slow
async def test_no_process_of_a_server_outlives_a_command_that_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "processes"
    command = f"{sys.executable} {HOSTILE} 'leaves processes' {file}"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", PROGRAM, command)
    assert await process.wait() == -signal.SIGKILL
    await none_lives(file)


@pytest.mark.slow
async def test_a_server_that_does_not_answer_holds_up_no_end_of_the_command() -> None:
    async def wait() -> None:
        async with open_server(f"{sys.executable} {HOSTILE} silent"):
            raise AssertionError

    waiting = asyncio.create_task(wait())
    await asyncio.sleep(1)
    waiting.cancel()
    ended, _ = await asyncio.wait([waiting], timeout=30)
    assert ended
    assert waiting.cancelled()


PRINTS = """
import asyncio, sys
from bactrian.roleplay.tools import open_server
async def main():
    async with open_server(sys.argv[1]) as tools:
        print(len(tools))
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.system
async def test_a_server_starts_where_only_pythonpath_leads_to_the_package(tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    path = os.pathsep.join([str(Path(__file__).parents[2] / "src"), *filter(None, sys.path)])
    process = await asyncio.create_subprocess_exec(
        *(tmp_path / "bare/bin/python", "-c", PRINTS, f"{sys.executable} {HOSTILE} fine"),
        env=clean_environment(PYTHONPATH=path),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert out.split() == [b"1"]
