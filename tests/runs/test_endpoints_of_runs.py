"""Where commands that continue a run, or read one, ask their models: at the run's endpoint, or where a person says."""

from __future__ import annotations

import asyncio
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from bactrian.store import open_store
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint
from tests.helpers.explorer import explore
from tests.helpers.runs import make_run, session
from tests.helpers.versatile import answer_anyone

PLAY = ("play", "Fly to Rome", "--run", "play.db", "--model", "openai:m", "--no-specify")
RECIPE = """
name = "flights"
[[axes]]
name = "assistant_role"
given = ["Pilot"]
count = 1
[[axes]]
name = "user_role"
given = ["Nurse"]
count = 1
[[axes]]
name = "task"
given = ["Fly to Rome", "Land in Oslo"]
count = 2
[role_play]
assistant = "{{ assistant_role }}"
user = "{{ user_role }}"
idea = "{{ task }}"
specify = false
max_messages = 4
"""


@dataclass
class Places:
    """A folder with a run made at ``home``; ``official`` is where openai:NAME is if nobody says anything."""

    folder: Path
    home: Endpoint
    official: Endpoint

    @property
    def settings(self) -> dict[str, Any]:
        """Variables of the environment: the user's providers file, and a key."""
        return {"BACTRIAN_CONFIG": str(self.folder), "OPENAI_API_KEY": "sk-secret"}

    async def run(self, *command: str, **variables: str) -> tuple[int, str]:
        settings: dict[str, Any] = {**self.settings, **variables}
        done = await asyncio.to_thread(lambda: bactrian(*command, cwd=self.folder, **settings))
        return done.returncode, " ".join(done.stderr.split())

    async def count(self, *command: str, **variables: str) -> tuple[int, int, int, str]:
        """The exit code, the requests to each endpoint, and what was said."""
        asked = len(self.home.requests), len(self.official.requests)
        code, said = await self.run(*command, **variables)
        return code, len(self.home.requests) - asked[0], len(self.official.requests) - asked[1], said


@pytest.fixture
async def places(tmp_path: Path) -> AsyncIterator[Places]:
    async with Endpoint([answer_anyone]) as home, Endpoint([answer_anyone]) as official:
        (tmp_path / "providers.toml").write_text(
            f'[[providers]]\nname = "openai"\naddress = "{official.url}"\nkey = "OPENAI_API_KEY"\n'
            f'[[providers]]\nname = "lab"\naddress = "{home.url}"\n'
        )
        (tmp_path / "flights.toml").write_text(RECIPE)
        yield Places(tmp_path, home, official)


MAKE = ("generate", "flights.toml", "--run", "run.db", "--limit", "1")
COMMANDS = {
    "the same command": ("generate", "flights.toml", "--run", "run.db", "--model", "openai:m"),
    "resume": ("resume", "run.db", "--limit", "2"),
    "a fork": ("generate", "flights.toml", "--run", "run.db", "--fork", "fork.db", "--model", "openai:m"),
    "a translation": (
        *("generate", "translate", "--run", "de.db", "--set", "source=run.db"),
        "--model",
        "openai:m",
    ),
    "a judge of findings": ("analyze", "run.db", "--judge", "openai:j", "--sample", "2", "--json"),
    "extraction": ("evaluate", "extract", "run.db", "--json"),
    "a comparison": ("evaluate", "agents", "run.db", "--judge", "openai:j", "--json"),
    "a play again": (*PLAY, "--max-messages", "6", "--json"),
    "words from a run": (
        *("play", "Fly on", "--run", "new.db", "--user-model", "recorded:run.db#001_001_001"),
        *("--assistant-model", "openai:m", "--no-specify", "--max-messages", "2", "--json"),
    ),
    "a resumed play": ("resume", "play.db", "ID", "--max-messages", "8", "--json"),
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ((), ("OPENAI_BASE_URL", "BACTRIAN_BASE_URL")),
        pytest.param((("OPENAI_BASE_URL",), ("BACTRIAN_BASE_URL",)), marks=pytest.mark.soak),
    ],
    ids=["none and both", "each alone"],
)
async def test_no_command_forgets_where_a_run_was_made(
    places: Places, settings: tuple[tuple[str, ...], ...]
) -> None:
    at_home = ("--model", "openai:m", "--base-url", places.home.url)
    assert (await places.run(*MAKE, *at_home, "--price", "1/2"))[0] == 0
    # A budget needs the price, which the run knows.
    assert (await places.run("evaluate", "extract", "run.db", "--out", "priced", "--budget", "1"))[0] == 0
    for title, command in COMMANDS.items():
        for names in settings:
            variables = dict.fromkeys(names, places.official.url)
            for file in ("fork.db", "de.db", "play.db", "new.db"):
                (places.folder / file).unlink(missing_ok=True)
            shutil.rmtree(places.folder / "run.agents", ignore_errors=True)
            shutil.rmtree(places.folder / "run.extraction", ignore_errors=True)
            if "play.db" in command:
                await places.run(*PLAY, "--base-url", places.home.url, "--max-messages", "4", "--json")
            asked = [await find_session(places.folder / part) if part == "ID" else part for part in command]
            code, home, official, said = await places.count(*asked, **variables)
            assert (code, official) == (0, 0), (title, said)
            assert home or title in ("resume", "the same command", "a judge of findings"), title
            if variables:
                assert f"is asked at {places.home.url}" in said, title


async def find_session(folder: Path) -> str:
    async with open_store(folder.with_name("play.db"), read_only=True) as store:
        return await anext(session.id async for session in store.sessions())


@pytest.mark.slow
async def test_another_host_is_asked_only_by_its_address_and_a_person_is_told(places: Places) -> None:
    home, official = places.home.url, places.official.url
    at_home, at_official = (("--base-url", url, "--model", "openai:m") for url in (home, official))
    assert (await places.run(*MAKE, *at_home))[0] == 0
    judged = ("evaluate", "agents", "run.db", "--json", "--judge")
    code, _, asked, said = await places.count(*judged, f"openai:j@{official}")
    assert (code, asked, f"go to {official}" in said, f"until now they went to {home}" in said) == (
        0,
        2,
        True,
        True,
    )
    # Another run of the same tasks, elsewhere.
    made = (*MAKE[:2], "--run", "other.db", "--limit", "1")
    assert (await places.run(*made, *at_official))[0] == 0
    against = ("evaluate", "agents", "run.db", "--out", "both", "--against", "other.db", "--judge")
    code, *asked_at, said = await places.count(*against, "openai:j")
    assert (code, asked_at, "at several addresses" in said) == (2, [0, 0], True)
    code, *asked_at, said = await places.count(
        *against, f"openai:j@{home}", "--extractor", f"openai:m@{home}"
    )
    assert (code, asked_at, f"until now they went to {official}" in said) == (0, [4, 0], True)
    # A run may name the address of its model.
    assert (await places.run(*MAKE[:2], "--run", "named.db", "--limit", "1", "--model", f"openai:m@{home}"))[
        0
    ] == 0
    code, *asked_at, said = await places.count("evaluate", "extract", "named.db")
    assert (code, asked_at) == (0, [1, 0]), said
    # What the user's providers file says may change.
    assert (await places.run(*MAKE[:2], "--run", "lab.db", "--limit", "1", "--model", "lab:m"))[0] == 0
    path = places.folder / "providers.toml"
    path.write_text(path.read_text().replace(home, official))
    for command in (("resume", "lab.db", "--limit", "2"), ("evaluate", "extract", "lab.db")):
        code, *asked_at, said = await places.count(*command)
        assert (code, asked_at, f"were asked at {home}" in said) == (2, [0, 0], True), said
    code, _, asked, said = await places.count("resume", "lab.db", "--limit", "2", "--send-keys-to", official)
    assert (code, asked > 0, f"go to {official}" in said) == (0, True, True)


@pytest.mark.system
async def test_a_run_of_another_person_gets_no_key_and_nothing_leaves_this_computer_without_a_word(
    places: Places,
) -> None:
    away = "http://models.example:8000/v1"
    assert (
        await places.run(*MAKE, "--model", "openai:m", "--base-url", away, "--set", "endpoint.timeout=0.01")
    )[0] == 1
    await make_run(places.folder / "run.db", [session("009_001_001")])
    for command in (COMMANDS["a comparison"], COMMANDS["a judge of findings"], COMMANDS["extraction"]):
        code, *asked_at, said = await places.count(*command)
        assert (code, asked_at, f"If you trust it: --base-url {away}" in said) == (2, [0, 0], True), said
    (places.folder / "replies.json").write_text(
        '["Instruction: Go.\\nInput: None", "Solution: Gone.", "<CAMEL_TASK_DONE>"]'
    )
    made = ("generate", "flights.toml", "--run", "own.db", "--limit", "1", "--model", "scripted:replies.json")
    assert (await places.run(*made))[0] == 0
    code, _, asked, said = await places.count(
        "evaluate", "agents", "own.db", "--model", "openai:m", "--judge", "openai:j"
    )
    assert (code, asked > 0, "until now they stayed on this computer" in said) == (0, True, True), said


@pytest.mark.slow
async def test_the_explorer_plays_with_the_model_of_its_run_where_the_run_asked_it(places: Places) -> None:
    assert (await places.run(*MAKE, "--model", "openai:m", "--base-url", places.home.url))[0] == 0
    asked = len(places.home.requests)

    def play(runs: Sequence[str], words: str, status: int, **form: str) -> None:
        model = ("--model", "openai:m")
        with explore(places.folder, *runs, "--edit", *model, **places.settings) as explorer:
            page = explorer.get("/play").text
            assert words in page
            csrf = re.findall(r'name="csrf" value="([^"]+)"', page)[0]
            content = urlencode({"csrf": csrf, "messages": "2", **form}).encode()
            answer = explorer.get("/play", content, Origin=explorer.address)
            assert (answer.status, status == 303 or words in answer.text) == (status, True)

    where = f"openai:m is asked at {places.home.url}"
    await asyncio.to_thread(lambda: play(["run.db"], where, 303, idea="Fly to Oslo"))
    await asyncio.to_thread(lambda: play(["run.db"], where, 303, society="panel"))
    assert len(places.home.requests) > asked
    assert places.official.requests == []
    (places.folder / "run.db").rename(places.folder / "first.db")
    assert (await places.run(*MAKE, "--model", "openai:m"))[0] == 0
    which = "Start the explorer with the one that you mean: --model openai:m@ADDRESS"
    await asyncio.to_thread(lambda: play(["run.db", "first.db"], which, 400, idea="Fly to Rome"))
