"""What a conversation uses where nothing was said, and that sessions with earlier defaults resume."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from bactrian.models.open import ModelOptions
from bactrian.recipes.parameters import read_parameters
from bactrian.records.session import Role, Session
from bactrian.roleplay.agent import build_user_format
from bactrian.roleplay.setup import (
    EXAMPLE,
    ROLES,
    CompleteSetup,
    RolePlaySetup,
    choose_role_names,
    complete_as_before,
    complete_setup,
)
from bactrian.roleplay.start import SessionOrder, play_one
from bactrian.store import open_store
from tests.helpers.command import bactrian, events

IDEA = "Plan a vegetable garden for a small balcony"


def set_up(idea: str = IDEA, *, model: str = "local", protocol: str | None = None) -> RolePlaySetup:
    assistant, user = choose_role_names(idea)
    agents = ("task_specifier", "task_planner", "user", "assistant")
    return RolePlaySetup(
        idea=idea,
        assistant=Role(assistant),
        user=Role(user),
        models=dict.fromkeys(agents, model),
        protocol=protocol,
        max_messages=2,
    )


def test_neutral_prompts_come_with_openings_that_fit_any_subject() -> None:
    assert "Explain how to" in build_user_format(small=True, plain=True).grammar
    assert "Explain how to" not in build_user_format(small=True).grammar


def test_only_the_example_has_a_programmer_and_a_trader() -> None:
    assert choose_role_names(EXAMPLE[0]) == EXAMPLE[1:]
    assert choose_role_names(IDEA) == ROLES


def test_the_small_model_gets_neutral_prompts_and_specifies_only_if_asked() -> None:
    by_default = complete_setup(set_up(), None, None)
    assert (by_default.pack.name, by_default.setup.specify) == ("plain-small", False)
    assert complete_setup(set_up(), True, None).setup.specify
    assert complete_setup(set_up(), None, "v1").pack.name == "v1"


def test_the_small_model_is_told_the_format_where_nothing_enforces_it() -> None:
    assert complete_setup(set_up(protocol="free"), None, None).pack.name == "ai-society-small"


def test_the_example_and_larger_models_keep_their_prompts_and_the_specifier() -> None:
    example = complete_setup(set_up(EXAMPLE[0]), None, None)
    assert (example.pack.name, example.setup.specify) == ("ai-society-small", True)
    larger = complete_setup(set_up(model="openai:gpt-4o-mini"), None, None)
    assert (larger.pack.name, larger.setup.specify) == ("ai-society", True)


async def play_and_store(complete: CompleteSetup, run: Path) -> None:
    async for _ in play_one(SessionOrder(complete, ModelOptions(), run=run)):
        pass


async def read_sessions(run: Path) -> list[Session]:
    async with open_store(run, read_only=True) as store:
        return [session async for session in store.sessions()]


def test_a_session_with_the_earlier_defaults_goes_on_under_its_id_and_with_its_prompts(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run.db"
    short = replace(set_up(), max_messages=1, parameters=read_parameters({"max_tokens": 8}).by_agent())
    asyncio.run(play_and_store(complete_as_before(short, None, None), run))
    (before,) = asyncio.run(read_sessions(run))
    assert before.task.specified
    words = ("--max-messages", "2", "--reply-length", "8", "--json")
    done = bactrian("play", IDEA, "--run", str(run), *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (after,) = asyncio.run(read_sessions(run))
    assert (after.id, after.turns[:1], len(after.turns)) == (before.id, before.turns, 2)
    assert after.provenance.prompts == before.provenance.prompts == "ai-society-small"
    assert after.task.specified == before.task.specified


def test_the_command_says_which_roles_it_chose(tmp_path: Path) -> None:
    words = ("--max-messages", "1", "--reply-length", "1", "--no-keep", "--json")
    done = bactrian("play", IDEA, *words, cwd=tmp_path)
    started, *_ = events(done.stdout)
    assert (started["assistant_role"], started["user_role"]) == ROLES
    assert started["specified_task"] is None
