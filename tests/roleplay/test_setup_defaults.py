"""What a conversation uses where nothing was said."""

from __future__ import annotations

from pathlib import Path

import pytest

from bactrian.api.conversation import order_session
from bactrian.records.session import Role
from bactrian.roleplay.response_formats import build_user_format
from bactrian.roleplay.role_play import SessionOrder
from bactrian.roleplay.setup import (
    EXAMPLE,
    ROLES,
    RolePlaySetup,
    complete_setup,
)
from tests.helpers.command import bactrian, events

IDEA = "Plan a vegetable garden for a small balcony"


def set_up(idea: str = IDEA, *, model: str = "local", protocol: str | None = None) -> RolePlaySetup:
    assistant, user = EXAMPLE[1:] if idea == EXAMPLE[0] else ROLES
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
    for idea, names in ((EXAMPLE[0], EXAMPLE[1:]), (None, EXAMPLE[1:]), (IDEA, ROLES)):
        order = order_session(idea, options={})
        assert isinstance(order, SessionOrder)
        assert (order.setup.assistant.name, order.setup.user.name) == names


def test_the_small_model_gets_neutral_prompts_and_specifies_only_if_asked() -> None:
    by_default, pack = complete_setup(set_up(), None, None)
    assert (pack.name, by_default.specify) == ("plain-small", False)
    asked, pack = complete_setup(set_up(), True, "v1")
    assert (pack.name, asked.specify) == ("v1", True)


def test_the_small_model_is_told_the_format_where_nothing_enforces_it() -> None:
    _, pack = complete_setup(set_up(protocol="free"), None, None)
    assert pack.name == "ai-society-small"


def test_the_example_and_larger_models_keep_their_prompts_and_the_specifier() -> None:
    example, pack = complete_setup(set_up(EXAMPLE[0]), None, None)
    assert (pack.name, example.specify) == ("ai-society-small", True)
    larger, pack = complete_setup(set_up(model="openai:gpt-4o-mini"), None, None)
    assert (pack.name, larger.specify) == ("ai-society", True)


@pytest.mark.slow
def test_the_command_says_which_roles_it_chose(tmp_path: Path) -> None:
    words = ("--max-messages", "1", "--set", "parameters.max_tokens=1", "--no-keep", "--json")
    done = bactrian("play", IDEA, *words, cwd=tmp_path)
    started, *_ = events(done.stdout)
    assert (started["assistant_role"], started["user_role"]) == ROLES
    assert started["specified_task"] is None
