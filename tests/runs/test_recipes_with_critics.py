"""A recipe whose turns a critic chooses."""

from __future__ import annotations

from pathlib import Path

from bactrian.store import open_store
from tests.helpers.endpoint import Endpoint, Plan, Received, completion
from tests.helpers.generation import RECIPE, generate, said

CRITIC = """
[critic]
role = "Head of {{ role }}"
proposals = 2
criteria = "it fits {{ task }}"
"""


def said_with_critic(request: Received) -> Plan:
    body = request.json
    if "numbered proposals" in body["messages"][0]["content"]:
        return "Choice: 2\nIt is longer."
    text = said(request)
    assert isinstance(text, str)
    return completion(*[text, text.replace("Part", "Chapter").replace("Do", "Finish")][: body.get("n", 1)])


async def test_a_recipe_with_a_critic_keeps_what_was_rejected_and_is_forecast(folder: Path) -> None:
    (folder / "small.toml").write_text(RECIPE + CRITIC)
    async with Endpoint([said_with_critic]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json", "--limit", "3")
        assert code == 0, err
        assert lines[-1]["endings"] == {"max_messages": 3}
        assert len(endpoint.requests) == 1 + 3 * 4 * 2
        code, lines, err = await generate(folder, endpoint, "--json", "--limit", "4", "--forecast")
        assert code == 0, err
        assert lines[0]["calls"]["value"] <= lines[0]["calls"]["high"]
        asked = len(endpoint.requests)
        await generate(folder, endpoint, "--limit", "3")
        assert len(endpoint.requests) == asked
    async with open_store(folder / "run.db", read_only=True) as store:
        session = await store.session("001_002")
        assert session is not None
        assert session.provenance.critic is not None
        assert session.provenance.critic.role == "Head of Chef"
        assert session.provenance.critic.criteria == "it fits Fly a kite"
        known = await store.deliberation("001_002")
    assert [turn.text for turn in session.turns] == [choice.texts[1] for choice in known.choices()]
    systems = {
        message["content"] for request in endpoint.requests for message in request.json["messages"][:1]
    }
    assert any("Head of Chef" in text and "it fits Fly a kite" in text for text in systems)


async def test_any_recipe_can_be_given_a_critic(folder: Path) -> None:
    async with Endpoint([said_with_critic]) as endpoint:
        code, _, err = await generate(
            folder, endpoint, "--limit", "1", "--set", "critic.role=Judge", "--set", "critic.proposals=2"
        )
        assert code == 0, err
        code, _, err = await generate(folder, endpoint, "--set", "critic.proposals=0")
        assert (code, "critic" in err) == (2, True)
        code, _, err = await generate(folder, endpoint, "--set", "critic.roles=x")
        assert (code, "Did you mean 'critic.role'" in err) == (2, True)
