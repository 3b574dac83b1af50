"""A run stops before it has cost more than it may."""

from __future__ import annotations

from pathlib import Path

from tests.helpers.endpoint import Endpoint, Plan, Received
from tests.helpers.generation import asks, generate, said


async def test_a_budget_stops_the_run_before_it_is_passed_and_a_larger_one_goes_on(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        limits = ["--price", "1000/1000", "--set", "task.max_tokens=1000", "--concurrency", "1"]
        budget = [*limits, "--json", "--budget"]
        code, lines, err = await generate(folder, endpoint, *budget, "2.8")
        assert code == 3
        assert "past the limit of $2.8" in err
        assert 0 < lines[-1]["usd"] <= 2.8
        asked = len(endpoint.requests)
        assert 3 < asked < 12 * 4
        code, lines, _ = await generate(folder, endpoint, *budget, "100")
        assert code == 0
        assert lines[-1]["done"] == 12
        assert len(endpoint.requests) == 12 * 4 + 3


async def test_a_limit_on_tokens_counts_what_earlier_commands_used(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, _, _ = await generate(folder, endpoint, "--limit", "1")
        assert code == 0
        asked = len(endpoint.requests)
        code, _, err = await generate(folder, endpoint, "--max-tokens", "20")
        assert (code, len(endpoint.requests)) == (3, asked)
        assert "limit of 20" in err


async def test_a_budget_without_a_price_is_refused_before_anything_is_made(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--budget", "1")
    assert code == 2
    assert "requires the price of 'openai:any'" in err
    assert "--price" in err
    assert endpoint.requests == []
    assert not (folder / "run.db").exists()


async def test_replies_that_cost_and_carry_nothing_count_over_a_resume_too(folder: Path) -> None:
    usage = {"prompt_tokens": 200, "completion_tokens": 100}

    def reply(request: Received) -> Plan:
        return said(request) if asks(request) == "lister" else {"choices": [], "usage": usage}

    async with Endpoint([reply]) as endpoint:
        limits = ["--max-tokens", "6000", "--concurrency", "2", "--max-wait", "30", "--json"]
        code = 0
        for _ in range(3):
            code, _, err = await generate(folder, endpoint, *limits, "--retry-failed")
            assert code in (3, 4), err
        assert code == 3
        paid = sum(asks(request) != "lister" for request in endpoint.requests)
    assert paid * 300 <= 6000
