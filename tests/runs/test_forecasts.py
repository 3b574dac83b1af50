"""What a run will take is told before it is spent."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import bactrian as bt
from bactrian.amounts import write_about_duration
from bactrian.records.run import Progress
from bactrian.runs.cost import TurnSeconds
from bactrian.runs.forecast import JobStates
from bactrian.runs.jobs import JobCost, guess_role_plays
from tests.helpers.command import Command, bactrian, clean_environment
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.generation import TASKS, asks, generate, said, start


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
        _, longer, _ = await generate(folder, endpoint, "--forecast", "--set", "max_messages=400", *price)
    calls, seconds = longer[0]["calls"], longer[0]["seconds"]
    assert seconds["high"] / seconds["value"] >= calls["high"] / calls["value"] > 4


async def test_the_ways_that_a_provider_offers_stand_side_by_side(folder: Path) -> None:
    terms = ["--forecast", "--price", "1/2/0.5"]
    own = ("--model", "openai:any")
    _, (line,), _ = await generate(folder, None, *terms, *own, "--json")
    _, (flex,), _ = await generate(folder, None, *terms, *own, "--json", "--tier", "flex")
    shown = await (start(folder, None, *terms, *own)).communicate()
    async with Endpoint([said]) as endpoint:
        _, (alone,), _ = await generate(folder, endpoint, *terms, "--json")
    assert list(line["ways"]) == ["live", "flex", "batch"]
    usd = {name: way["usd"]["value"] for name, way in line["ways"].items()}
    assert usd["flex"] == usd["batch"] == pytest.approx(usd["live"] / 2)
    assert (usd["live"], usd["flex"]) == (line["usd"]["value"], flex["usd"]["value"])
    hours = {name: way["hours"]["value"] for name, way in line["ways"].items()}
    assert hours["batch"] > hours["live"] == pytest.approx(line["seconds"]["value"] / 3600)
    assert line["ways"]["live"]["usd"]["low"] is None
    assert [
        text.split()[0] for text in shown[0].decode().splitlines() if re.match("live|flex|batch", text)
    ] == [*usd]
    assert line["ways"]["batch"]["basis"].startswith("28 minutes a batch")
    assert alone["ways"] == {}


def within(estimate: dict[str, float | None], truth: float) -> bool:
    """True if the range holds the truth; before anything is measured it has only an upper end."""
    low, high = estimate["low"], estimate["high"]
    return (low is None or low <= truth) and high is not None and truth <= high


@pytest.mark.system
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

    # The paper's endings, since most words of these turns say the same: a loop, which would end them early.
    long = ["--set", "max_messages=40", "--set", "endings=paper"]
    forecast = ["--forecast", "--json", "--price", "1/2", *long]
    async with Endpoint([reply]) as endpoint:
        _, [before], _ = await generate(folder, endpoint, *forecast)
        assert not (folder / "run.db").exists()
        await generate(folder, endpoint, *long, "--limit", "6")
        begun = taken.copy()
        _, [after], _ = await generate(folder, endpoint, *forecast)
        assert (await generate(folder, endpoint, *long))[0] == 0
    for estimate, truth in ((before, taken), (after, taken - begun)):
        assert within(estimate["calls"], truth["calls"])
        assert within(estimate["prompt_tokens"], truth["prompt_tokens"])
        assert within(estimate["completion_tokens"], truth["completion_tokens"])
        assert within(estimate["usd"], (truth["prompt_tokens"] + 2 * truth["completion_tokens"]) / 1e6)
        assert within(estimate["cached_tokens"], estimate["cached_tokens"]["value"])


@pytest.mark.system
@pytest.mark.parametrize("done_after", [(5, 3), (99, 1)], ids=["some end before", "all reach the limit"])
async def test_a_forecast_counts_what_conversations_still_take_that_go_on_with_a_larger_limit(
    folder: Path, done_after: tuple[int, int]
) -> None:
    taken = Counter[str]()

    def reply(request: Received) -> Plan:
        messages = request.json["messages"]
        rounds = done_after[0] + len(messages[0]["content"]) * 7 % done_after[1]
        text = said(request) + "\n" + "And mind it. " * 30
        if asks(request) == "user" and len(messages) > 2 * rounds:
            text = "<CAMEL_TASK_DONE>"
        usage = {
            "prompt_tokens": sum(len(message["content"]) for message in messages) // 4,
            "completion_tokens": len(text) // 4,
        }
        taken.update(usage, calls=1)
        return Answer(completion(text) | {"usage": usage})

    larger = ("--set", "max_messages=16")
    async with Endpoint([reply]) as endpoint:
        assert (await generate(folder, endpoint))[0] == 0
        _, [forecast], _ = await generate(folder, endpoint, "--forecast", "--json", *larger)
        taken.clear()
        assert (await generate(folder, endpoint, *larger))[0] == 0
    assert forecast["sessions"] == 12
    for name, truth in (("calls", "calls"), ("prompt_tokens",) * 2, ("completion_tokens",) * 2):
        assert within(forecast[name], taken[truth]), (name, forecast[name], taken)


async def test_a_pilot_is_kept_and_its_range_is_an_interval(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--forecast", "--pilot", "10", "--json")
        forecast = next(line for line in lines if line["event"] == "forecast")
        assert (code, forecast["sessions"], forecast["measured"]) == (0, 2, True)
        prompt = forecast["prompt_tokens"]
        assert 0 < prompt["low"] < prompt["value"] < prompt["high"]
        asked = len(endpoint.requests)
        _, again, _ = await generate(folder, endpoint, "--forecast", "--pilot", "10", "--json")
        assert len(endpoint.requests) == asked  # the same jobs, which are there
        assert again[-1]["sessions"] == 2
        _, done, _ = await generate(folder, endpoint, "--json")
        assert done[-1]["done"] == 12
    refused, _, errors = await generate(folder, endpoint, "--pilot", "10")
    assert refused == 2 and "--forecast" in errors


@pytest.mark.slow
async def test_a_forecast_counts_failed_jobs_that_are_tried_again(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        return Answer(status=200, body=b"{}") if asks(request) == "user" else said(request)

    async with Endpoint([reply]) as endpoint:
        await generate(folder, endpoint, "--limit", "2", "--set", "endpoint.max_wait=1")
        for more, left in (((), 0), (("--retry-failed",), 2)):
            _, [forecast], _ = await generate(folder, endpoint, "--forecast", "--json", "--limit", "2", *more)
            assert forecast["sessions"] == left


async def test_a_forecast_counts_what_conversations_that_were_left_open_have_already(folder: Path) -> None:
    """They were broken off in their last turn."""

    def reply(request: Received) -> Plan:
        last = len(request.json["messages"]) == 4 and asks(request) == "assistant"
        return Answer(status=401) if last else said(request)

    async with Endpoint([reply]) as endpoint:
        await generate(folder, endpoint, "--limit", "1")
        left = len(endpoint.requests)
        _, [forecast], _ = await generate(folder, endpoint, "--forecast", "--json", "--limit", "1")
    assert (left, forecast["sessions"]) == (5, 1)
    assert forecast["calls"]["high"] == 1


async def test_a_forecast_says_in_a_few_lines_what_it_assumes(folder: Path) -> None:
    done = bactrian(
        "generate", "ai-society", "--run", "r.db", "--model", "openai:x", "--forecast", cwd=folder
    )
    assert done.returncode == 0
    assert "Assumed: 19 messages a session" in done.stdout
    assert "at most 40, with texts twice as long" in done.stdout
    assert "With --pilot 10" in done.stdout
    assert len(done.stdout.splitlines()[-1]) < 300
    assert list(folder.iterdir()) == [folder / "small.toml"]


_COUNTS = {
    "ai-society": ["assistant_role.count=2", "user_role.count=2", "task.count=2"],
    "code": ["programming_language.count=2", "domain.count=2", "task.count=2"],
    "misalignment": [
        "assistant_role.count=2",
        "user_role.count=1",
        "task.count=4",
        "role_play.preamble=Test.",
    ],
    **{
        name: ["topic.count=2", "sub_topic.count=2", "problem.count=8"]
        for name in ("math", "physics", "chemistry", "biology")
    },
}


def play_a_part(request: Received, asked: Counter[str]) -> str:
    """What a usual model says to each question of the built-in recipes."""
    messages = request.json["messages"]
    first = messages[0]["content"]
    if count := re.match(r"(?:Test\.\s+)?List (?:the )?(\d+)", first):
        return "\n".join(f"{n}. Thing {n} of {len(first)}" for n in range(1, int(count[1]) + 1))
    if first.startswith("Write one problem"):
        asked["problem"] += 1
        return f"A body of mass {asked['problem']} kg rests on a slope. " + "It is pulled along. " * 18
    if messages[0]["role"] == "user":
        return "Build a thing that does what is wanted, for those who want it, with what there is. " * 3
    if "Solve the problem" in first:
        return "First we draw the forces. " * 70
    if "you instruct" in first:
        done = len(messages) > 2 * (4 + len(first) % 7)
        instruction = f"Instruction: Do part {len(messages)}." + " Mind it." * 20 + "\nInput: None"
        return "<CAMEL_TASK_DONE>" if done else instruction
    return f"Solution: Part {len(messages)} is done." + " It was work." * 80 + "\nNext request."


@pytest.mark.parametrize("recipe", _COUNTS)
async def test_the_forecast_of_each_built_in_recipe_holds_what_it_takes(tmp_path: Path, recipe: str) -> None:
    taken, asked = Counter[str](), Counter[str]()

    def reply(request: Received) -> Plan:
        text = play_a_part(request, asked)
        said = sum(len(message["content"]) for message in request.json["messages"])
        usage = {"prompt_tokens": said // 4, "completion_tokens": len(text) // 4}
        taken.update(usage, calls=1)
        return Answer(completion(text) | {"usage": usage})

    async def command(endpoint: Endpoint, *more: str) -> list[dict[str, Any]]:
        where = ["--model", "openai:any", "--base-url", endpoint.url, "--run", "run.db", "--json"]
        settings = [word for setting in _COUNTS[recipe] for word in ("--set", setting)]
        words = ("generate", recipe, *where, *settings, "--acknowledge-misuse", *more)
        process = Command(words, tmp_path, clean_environment())
        out, err = await process.communicate()
        assert process.wait() == 0, err
        return [json.loads(line) for line in out.decode().splitlines()]

    async with Endpoint([reply]) as endpoint:
        [before] = await command(endpoint, "--forecast")
        await command(endpoint)
    assert within(before["calls"], taken["calls"]), (before["calls"], taken)
    assert within(before["prompt_tokens"], taken["prompt_tokens"]), (before["prompt_tokens"], taken)
    assert within(before["completion_tokens"], taken["completion_tokens"]), (
        before["completion_tokens"],
        taken,
    )


@pytest.mark.system
async def test_a_question_that_is_asked_alone_names_no_other_unless_the_recipe_says_so(
    tmp_path: Path,
) -> None:
    asked = Counter[str]()
    small = ["topic.count=1", "sub_topic.count=1", "problem.count=5"]

    async def longest(name: str, *more: str) -> tuple[int, float]:
        questions: list[str] = []

        def reply(request: Received) -> Plan:
            questions.append(request.json["messages"][0]["content"])
            return play_a_part(request, asked)

        async with Endpoint([reply]) as endpoint:
            words = [
                "generate",
                "physics",
                "--run",
                name,
                "--model",
                "openai:any",
                "--base-url",
                endpoint.url,
            ]
            words += [word for setting in [*small, *more] for word in ("--set", setting)]
            process = Command((*words, "--forecast", "--json"), tmp_path, clean_environment())
            out, _ = await process.communicate()
            process = Command(tuple(words), tmp_path, clean_environment())
            await process.communicate()
            assert process.wait() == 0
        named = max(question.count("A body of mass") for question in questions)
        return named, json.loads(out)["prompt_tokens"]["value"]

    alone, cheap = await longest("alone.db")
    with_earlier, dear = await longest("earlier.db", "problem.earlier=3")
    assert (alone, with_earlier) == (0, 3)
    assert dear > cheap


def test_the_time_left_follows_from_the_lengths_so_far_and_from_the_slowest_at_the_end() -> None:
    cost = JobCost(guess_role_plays(40, small=False), ("user", "assistant"))
    states = JobStates(done=[Progress(f"{number:03}", "task_done", 10, 1, 1, 0) for number in range(50)])
    many = states.estimate_seconds(cost, 4000, 4, TurnSeconds(0.5))
    assert many.value == pytest.approx(4000 * 10 * 0.5 / 4, rel=0.02)
    last = states.estimate_seconds(cost, 4, 4, TurnSeconds(0.5))
    assert last.value == pytest.approx(10 * 0.5, rel=0.1)
    states.open = [Progress("100", None, 2, 1, 1, 0), Progress("101", None, 8, 1, 1, 0)]
    assert states.estimate_seconds(cost, 0, 4, TurnSeconds(0.5)).value == pytest.approx(8 * 0.5, rel=0.1)


def test_the_time_left_counts_that_each_turn_takes_longer_than_the_one_before() -> None:
    cost = JobCost(guess_role_plays(40, small=False), ("user", "assistant"))
    states = JobStates(done=[Progress(f"{number:03}", "task_done", 10, 1, 1, 0) for number in range(50)])
    many = states.estimate_seconds(cost, 4000, 4, TurnSeconds(0.0, 0.1))
    assert many.value == pytest.approx(4000 * sum(range(1, 11)) * 0.1 / 4, rel=0.02)
    states.open = [Progress("100", None, 8, 1, 1, 0)]
    assert states.estimate_seconds(cost, 0, 4, TurnSeconds(0.0, 0.1)).value == pytest.approx(
        0.45 + 1.0, rel=0.1
    )


async def test_status_tells_the_time_left_as_the_forecast_does(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--limit", "6")
        _, forecast, _ = await generate(folder, endpoint, "--limit", "8", "--forecast", "--json")
        await generate(folder, endpoint, "--limit", "8", "--budget", "0.0001", "--price", "1000/1000")
    status = bt.open_run(folder / "run.db").status()
    left = status.describe()["seconds_left"]
    assert left is not None
    assert left == pytest.approx(forecast[0]["seconds"]["value"], abs=0.1)
    time = dict(status.list_facts())["time"]
    assert time.startswith(f"about {write_about_duration(left)} left, about ")
    assert " conversations a " in time


async def test_a_forecast_in_python_is_of_the_jobs_that_the_run_was_asked_for(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        for words, code in ((("--sample", "3", "--max-tokens", "20"), 3), (("--sample", "3"), 0)):
            assert (await generate(folder, endpoint, *words))[0] == code
            run = await asyncio.to_thread(bt.open_run, folder / "run.db")
            left = (await asyncio.to_thread(run.status)).left
            assert (await asyncio.to_thread(run.forecast)).sessions == left == (3 if code else 0)
        assert (await asyncio.to_thread(lambda: run.forecast(sample=5))).sessions == 2
        assert (await asyncio.to_thread(lambda: run.forecast(limit=12))).jobs == 12
