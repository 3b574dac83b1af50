"""A wrong name of a session, a role, a mark or a file's content is answered with the nearest that there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bactrian as bt
from bactrian.cli.help_form import load_verb
from bactrian.records.run import Mark
from bactrian.store import open_store
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint
from tests.helpers.generation import RECIPE, generate, said
from tests.helpers.runs import make_run, session


@pytest.mark.parametrize(
    ("words", "near"),
    [
        ("recipes ai-societ", "Did you mean 'ai-society'?"),
        ("behaviours role_flp", "Did you mean 'role_flip'?"),
        ("prompts ai", "Did you mean 'ai-society'?"),
        ("train emerg", "Did you mean 'emergence'?"),
        ("recipes shwo", "There is no command 'shwo'. Did you mean 'show'?"),
    ],
)
def test_a_name_that_is_nearly_right_is_mended(tmp_path: Path, words: str, near: str) -> None:
    done = bactrian(*words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert near in done.stderr


async def test_a_filter_without_a_session_names_what_is_nearest(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("001")])
    async with open_store(tmp_path / "run.db") as store:
        await store.add_mark(Mark("001", "good", "", 0.0))
        (stored,) = [each async for each in store.sessions()]
    pair = f"{stored.assistant.name} x {stored.user.name}"
    for flag, word, hint in (
        ("--pair", pair[1:].lower(), f"Did you mean {pair!r}?"),
        ("--pair", "nobody x nothing", "Leave the filter out"),
        ("--marked", "goood", "--marked: There is no mark 'goood'. Did you mean 'good'?"),
    ):
        done = bactrian("show", "run.db", flag, word, cwd=tmp_path)
        assert done.returncode == 2
        assert hint in done.stderr
    done = bactrian("show", "unlike.db", cwd=tmp_path)
    assert "Did you mean" not in done.stderr


async def test_a_session_that_a_generated_run_lacks_is_not_resumed(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    async with Endpoint([said]) as endpoint:
        await generate(tmp_path, endpoint, "--limit", "1")
        before = len(endpoint.requests)
        done = bactrian("resume", "run.db", "NONSENSE", "--limit", "2", cwd=tmp_path)
        assert (done.returncode, len(endpoint.requests)) == (2, before)
        assert "The run has no session 'NONSENSE'." in done.stderr
        assert bactrian("resume", "run.db", "-q", cwd=tmp_path).stdout == ""


async def test_a_run_whose_requests_are_all_refused_cost_nothing(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(RECIPE)
    async with Endpoint([Answer(status=401)]) as endpoint:
        await generate(tmp_path, endpoint, "--price", "1/2")
    status = bactrian("status", "run.db", cwd=tmp_path).stdout
    assert "$0.00 so far; to come: " in status
    assert "(at most " in status


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        ("generate ai-society -r run.db --critic Boss", "Write --set critic.role=VALUE."),
        ("generate ai-society -r run.db --assistant Boss", "Write --set role_play.assistant=VALUE."),
        ("generate ai-society -r run.db --task 3", "Write --set task.count=N"),
        ("generate ai-society -r run.db --max-messages 12", "Write --set max_messages=N."),
        ("generate ai-society -r run.db --language German", "Write --set language=VALUE."),
        ("generate ai-society -r run.db --no-specify", "Write --set role_play.specify=false."),
        ("generate ai-society -r run.db --plan", "Write --set role_play.plan=true."),
        ("generate ai-society -r run.db --tools x.py", "Write --set tools.python=VALUE."),
        ("play tea --limit 2", "Write --max-messages N, or `bactrian generate`"),
        ("play tea -q", "Write --json"),
        ("show run.db --limit 3", "Write --sample N."),
        ("analyze run.db --html x", "Write --report FILE.html."),
    ],
)
def test_an_option_of_another_command_is_answered_with_what_to_write(
    tmp_path: Path, words: str, instead: str
) -> None:
    done = bactrian(*words.split(), cwd=tmp_path)
    assert done.returncode == 2
    assert instead in done.stderr


def test_an_argument_of_the_critic_is_answered_with_what_to_write() -> None:
    arguments: Any = {"critic": bt.Critic("X"), "proposals": 2}
    with pytest.raises(TypeError, match=r"Write critic=bactrian\.Critic\(ROLE, proposals=…\)\."):
        bt.play("Tea", **arguments)


def test_every_option_of_play_that_a_run_lacks_is_answered_with_what_to_write(tmp_path: Path) -> None:
    has = {flag for param in load_verb("generate").params for flag in param.opts}
    for param in load_verb("play").params:
        for flag in {*param.opts} - has if getattr(param, "key", "") else ():
            done = bactrian("generate", "ai-society", "-r", "run.db", flag, "x", cwd=tmp_path)
            assert f"There is no option {flag}. Write " in done.stderr, flag
