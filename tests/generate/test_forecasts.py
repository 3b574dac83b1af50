"""What a run will take is told before it is spent."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.helpers.command import bactrian
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.generation import TASKS, asks, generate, said


async def test_a_forecast_asks_for_nothing_and_learns_from_the_run(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        price = ["--price", "1/2/0.5", "--json"]
        code, before, _ = await generate(folder, endpoint, "--forecast", *price)
        assert (code, endpoint.requests) == (0, [])
        assert before[0]["sessions"] == 12
        assert before[0]["calls"]["high"] >= 12 * 4 + 3
        assert before[0]["usd_cached"]["value"] < before[0]["usd"]["value"]
        await generate(folder, endpoint, "--limit", "6")
        _, after, _ = await generate(folder, endpoint, "--forecast", *price)
        assert after[0]["sessions"] == 6
        assert after[0]["calls"]["value"] == 6 * 4 + 1
        assert "6 sessions of this run" in after[0]["basis"]


def within(estimate: dict[str, float], truth: float) -> bool:
    return estimate["low"] <= truth <= estimate["high"]


async def test_what_a_run_takes_lies_in_the_range_of_its_forecast(folder: Path) -> None:
    """Conversations of 6 to 16 messages, of a length that is usual."""
    taken = Counter[str]()

    def reply(request: Received) -> Plan:
        messages = request.json["messages"]
        match asks(request):
            case "user" if len(messages) > 2 * (3 + len(messages[0]["content"]) * 7 % 6):
                text = "<CAMEL_TASK_DONE>"
            case "user":
                text = (
                    f"Instruction: Do part {len(messages)} of it with care."
                    + " And mind it." * 15
                    + "\nInput: None"
                )
            case "assistant":
                text = f"Solution: Part {len(messages)} is done." + " It was work." * 70 + "\nNext request."
            case _:
                text = TASKS
        usage = {
            "prompt_tokens": sum(len(message["content"]) for message in messages) // 4,
            "completion_tokens": len(text) // 4,
        }
        taken.update(usage, calls=1)
        return Answer(completion(text) | {"usage": usage})

    forecast = ["--forecast", "--json", "--price", "1/2", "--set", "max_messages=40"]
    async with Endpoint([reply]) as endpoint:
        _, [before], _ = await generate(folder, endpoint, *forecast)
        assert not (folder / "run.db").exists()
        await generate(folder, endpoint, "--set", "max_messages=40", "--limit", "6")
        begun = taken.copy()
        _, [after], _ = await generate(folder, endpoint, *forecast)
        assert (await generate(folder, endpoint, "--set", "max_messages=40"))[0] == 0
    for estimate, truth in ((before, taken), (after, taken - begun)):
        assert within(estimate["calls"], truth["calls"])
        assert within(estimate["prompt_tokens"], truth["prompt_tokens"])
        assert within(estimate["completion_tokens"], truth["completion_tokens"])
        assert within(estimate["usd"], (truth["prompt_tokens"] + 2 * truth["completion_tokens"]) / 1e6)
        assert within(estimate["cached_tokens"], estimate["cached_tokens"]["value"])


async def test_a_forecast_shows_how_a_conversation_grows(folder: Path) -> None:
    done = bactrian(
        "generate", "ai-society", "--run", "r.db", "--model", "openai:x", "--forecast", cwd=folder
    )
    assert done.returncode == 0
    assert "10 messages take" in done.stdout
    assert "40 messages take" in done.stdout
    assert list(folder.iterdir()) == [folder / "small.toml"]
