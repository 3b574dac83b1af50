"""Red-team work is acknowledged, and marked."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.endpoint import Endpoint
from tests.helpers.generation import RECIPE, generate, said, stored


async def test_red_team_work_needs_a_preamble_and_an_acknowledgement_and_is_marked(folder: Path) -> None:
    (folder / "small.toml").write_text(RECIPE.replace('name = "small"', 'name = "small"\nred_team = true'))
    preamble = ["--set", "role_play.preamble=Say nothing kind."]
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint)
        assert (code, "needs a preamble" in err) == (2, True)
        code, _, err = await generate(folder, endpoint, *preamble)
        assert (code, "--acknowledge-misuse" in err) == (2, True)
        assert endpoint.requests == []
        code, _, err = await generate(folder, endpoint, *preamble, "--acknowledge-misuse", "--limit", "1")
        assert code == 0, err
        systems = [request.json["messages"][0]["content"] for request in endpoint.requests]
    assert all(system.startswith("Say nothing kind.\n\n") for system in systems)
    assert [session.mark for session in await stored(folder)] == ["red-team"]


async def test_red_team_work_that_only_answers_needs_no_preamble(folder: Path) -> None:
    recipe = RECIPE.partition("[role_play]")[0].replace("specify = false", "")
    leaf = '[answer]\nrole = "Chef"\nsystem = "Answer."\nquestion = "{{ task }}"\n'
    (folder / "small.toml").write_text(
        recipe.replace('name = "small"', 'name = "small"\nred_team = true') + leaf
    )
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--acknowledge-misuse", "--limit", "1")
    assert code == 0, err
    assert [session.mark for session in await stored(folder)] == ["red-team"]
