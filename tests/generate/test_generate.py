"""``bactrian generate`` as a person and a program meet it, against a server on loopback."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from bactrian.recipes.load import read_recipe_text
from bactrian.store import open_store
from tests.helpers.command import bactrian, clean_environment
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, completion
from tests.helpers.generation import RECIPE, TASKS, asks, generate, said, start, stored


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "small.toml").write_text(RECIPE)
    return tmp_path


async def test_a_recipe_becomes_its_conversations(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json")
    assert code == 0, err
    sessions = {session.id: session for session in await stored(folder)}
    assert sorted(sessions) == [f"{role:03}_{task:03}" for role in (1, 2, 3) for task in (1, 2, 3, 4)]
    assert sessions["002_003"].values == {"role": "Pilot", "task": "Dress a wound"}
    assert sessions["002_003"].assistant.name == "Pilot"
    assert all(len(session.turns) == 4 for session in sessions.values())
    assert lines[-1]["event"] == "ended"
    assert (lines[-1]["done"], lines[-1]["calls"]) == (12, 12 * 4 + 3)
    assert lines[-1]["endings"] == {"max_messages": 12}


async def test_the_same_command_again_asks_for_nothing(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint)
        before = len(endpoint.requests)
        code, _, _ = await generate(folder, endpoint)
        assert (code, len(endpoint.requests)) == (0, before)


async def test_a_limit_makes_the_first_jobs_and_a_larger_one_goes_on(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--limit", "2")
        assert [session.id for session in await stored(folder)] == ["001_001", "001_002"]
        assert Counter(map(asks, endpoint.requests)) == {"lister": 1, "user": 4, "assistant": 4}
        await generate(folder, endpoint, "--limit", "5")
        assert Counter(map(asks, endpoint.requests)) == {"lister": 2, "user": 10, "assistant": 10}


async def test_another_plan_is_refused_with_its_differences_and_can_be_forked(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        await generate(folder, endpoint, "--limit", "2")
        code, _, err = await generate(folder, endpoint, "--set", "max_messages=2")
        assert code == 2
        assert "recipe.role_play.max_messages: 4 → 2" in err
        assert "--fork" in err
        before = Counter(map(asks, endpoint.requests))
        code, _, err = await generate(
            folder, endpoint, "--set", "max_messages=2", "--limit", "2", "--fork", "new.db"
        )
        assert code == 0, err
        assert Counter(map(asks, endpoint.requests)) - before == {"user": 2, "assistant": 2}
        asked = len(endpoint.requests)
        again = ["--set", "max_messages=2", "--limit", "2", "--fork", "new.db"]
        assert (await generate(folder, endpoint, *again))[0] == 0
        assert len(endpoint.requests) == asked
        code, _, err = await generate(folder, endpoint, "--set", "max_messages=3", "--fork", "new.db")
        assert code == 2
        assert "recipe.role_play.max_messages: 2 → 3" in err
        assert (await generate(folder, endpoint, "--fork", "run.db"))[0] == 2
    assert [len(session.turns) for session in await stored(folder, "new.db")] == [2, 2]
    assert [len(session.turns) for session in await stored(folder)] == [4, 4]


async def test_figures_of_a_command_are_its_own_and_those_of_the_run_stand_beside_them(folder: Path) -> None:
    price = ["--price", "1/2", "--json"]
    async with Endpoint([said]) as endpoint:
        _, first, _ = await generate(folder, endpoint, "--limit", "2", *price)
        _, second, _ = await generate(folder, endpoint, "--limit", "6", *price, "--max-tokens", "1000000")
    one, two = first[-1], second[-1]
    assert (one["calls"], one["prompt_tokens"]) == (1 + 8, 11 * (1 + 8))
    assert (two["calls"], two["prompt_tokens"]) == (1 + 16, 11 * (1 + 16))
    assert two["usd"] == pytest.approx((11 * 1 + 7 * 2) * 17e-6)
    assert (one["run_tokens"], one["run_usd"]) == (None, None)
    assert two["run_tokens"] == 18 * (9 + 17)
    assert two["run_usd"] == pytest.approx((11 * 1 + 7 * 2) * 26e-6)
    assert two["calls_per_second"] == pytest.approx(two["calls"] / two["seconds"], rel=0.2)


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


async def test_a_job_that_fails_is_kept_with_what_came_and_taken_up_again_on_request(folder: Path) -> None:
    broken = True

    def reply(request: Received) -> Plan:
        if broken and asks(request) == "assistant" and "Fly a kite" in request.json["messages"][0]["content"]:
            return Answer("<html>no</html>", content_type="text/html")
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--limit", "4", "--json")
        assert code == 4
        assert (lines[-1]["done"], lines[-1]["failed"]) == (4, 1)
        failed = next(session for session in await stored(folder) if session.id == "001_002")
        assert failed.ending is not None
        assert failed.ending.code == "failed"
        assert len(failed.turns) == 1
        shown = bactrian("failures", "run.db", cwd=folder)
        assert (shown.returncode, shown.stdout.count("001_002")) == (0, 1)
        assert "what came: <html>no</html>" in shown.stdout
        told = [
            json.loads(line)
            for line in bactrian("failures", "run.db", "--json", cwd=folder).stdout.splitlines()
        ]
        assert [(one["session"], one["turns"], one["raw"]) for one in told] == [
            ("001_002", 1, "<html>no</html>")
        ]
        assert told[0]["reason"]
        broken = False
        asked = len(endpoint.requests)
        assert (await generate(folder, endpoint, "--limit", "4"))[0] == 4
        assert len(endpoint.requests) == asked
        assert (await generate(folder, endpoint, "--limit", "4", "--retry-failed"))[0] == 0
        assert len(endpoint.requests) == asked + 3
    assert all(session.ending and session.ending.code == "max_messages" for session in await stored(folder))
    assert bactrian("failures", "run.db", cwd=folder).stdout == "None failed.\n"


async def test_a_list_that_stays_short_is_told(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        return "1. Bake bread" if asks(request) == "lister" else said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--json")
        assert code == 4
        assert lines[-1]["short_lists"]["task@001"] == {
            "has": 1,
            "wanted": 4,
            "why": "The replies brought nothing new.",
        }
        assert len(await stored(folder)) == 3


async def test_a_refused_key_stops_the_run_after_one_request(folder: Path) -> None:
    async with Endpoint([Answer({"error": {"message": "bad key"}}, status=401)]) as endpoint:
        code, _, err = await generate(folder, endpoint)
        assert code == 1
        assert "401" in err
        assert len(endpoint.requests) == 1


async def test_too_many_requests_are_waited_out(folder: Path) -> None:
    seen: Counter[bytes] = Counter()

    def reply(request: Received) -> Plan:
        seen[request.body] += 1
        again = seen[request.body] == 1 and asks(request) != "lister"
        return Answer("slow down", status=429, headers={"Retry-After": "0.05"}) if again else said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json")
        assert code == 0, err
        assert (lines[-1]["done"], lines[-1]["failed_calls"]) == (12, 48)


async def test_what_is_waited_out_is_told_once_a_minute_and_not_for_each_call(folder: Path) -> None:
    seen: Counter[bytes] = Counter()

    def reply(request: Received) -> Plan:
        seen[request.body] += 1
        if seen[request.body] == 1 and asks(request) != "lister":
            return Answer(f"<html>\x1b[31mBusy {'y' * 500}</html>", status=503, content_type="text/html")
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json")
    assert (code, lines[-1]["failed_calls"]) == (0, 48)
    (told,) = [line for line in err.splitlines() if line]
    assert "answered 503: <html> [31mBusy yyy" in told
    assert told.count("y" * 170) == 1
    assert "y" * 200 not in told
    assert re.search(r"Asking again in \d+\.\d s\.$", told)


async def test_the_longest_wait_is_the_users_and_what_stays_open_is_told_with_its_reason(
    folder: Path,
) -> None:
    def reply(request: Received) -> Plan:
        if "Fly a kite" in request.body.decode() and asks(request) == "assistant":
            return Answer("slow down", status=429, headers={"Retry-After": "9999"})
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--json", "--max-wait", "0.2")
        assert (code, lines[-1]["done"], lines[-1]["open"]) == (4, 9, 3)
        told = re.compile(
            r"The endpoint answered 429: slow down\. Asked (once|twice) in \d+ s\. It asks to wait 9999 s\."
        )
        assert sum(lines[-1]["reasons"].values()) == 3
        assert [reason for reason in lines[-1]["reasons"] if not told.fullmatch(reason)] == []
    async with Endpoint([said]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--json")
        assert (code, lines[-1]["done"]) == (0, 12)


async def test_a_clock_that_jumps_changes_no_deadline_and_no_wait(folder: Path) -> None:
    seen: Counter[bytes] = Counter()

    def reply(request: Received) -> Plan:
        seen[request.body] += 1
        return (
            Answer("busy", status=429, headers={"Retry-After": "0.2"}) if seen.total() == 1 else said(request)
        )

    jumping = (
        "import itertools, sys, time\n"
        "clock, day = time.time, itertools.cycle((-86_400, 86_400, 0))\n"
        "time.time = lambda: clock() + next(day)\n"
        "from bactrian.cli.main import main\n"
        "main()\n"
    )
    async with Endpoint([reply]) as endpoint:
        where = ("--model", "openai:any", "--base-url", endpoint.url, "--timeout", "30", "--json")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", jumping, "generate", "small.toml", "--run", "run.db", *where),
            cwd=folder,
            env=clean_environment(),
            stdout=-1,
            stderr=-1,
        )
        out, _ = await asyncio.wait_for(process.communicate(), 60)
    last = json.loads(out.splitlines()[-1])
    assert (process.returncode, last["done"]) == (0, 12)
    assert 0 < last["seconds"] < 60


async def test_one_interrupt_finishes_the_turns_in_flight_and_says_how_to_go_on(folder: Path) -> None:
    async def slow(request: Received) -> Plan:
        await asyncio.sleep(0.2)
        return said(request)

    async with Endpoint([slow]) as endpoint:
        process = start(folder, endpoint)
        while len(endpoint.requests) < 10:
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert process.returncode == 130
        assert "To go on: bactrian generate small.toml" in err.decode()
        asked = len(endpoint.requests)
        kept = sum(len(session.turns) for session in await stored(folder))
        lists = Counter(map(asks, endpoint.requests))["lister"]
        assert kept == asked - lists
        assert (await generate(folder, endpoint))[0] == 0
        assert len(endpoint.requests) == 12 * 4 + 3


async def test_a_second_interrupt_stops_at_once_and_nothing_stored_is_lost(folder: Path) -> None:
    async def stuck(request: Received) -> Plan:
        if asks(request) == "assistant":
            await asyncio.sleep(60)
        return said(request)

    async with Endpoint([stuck]) as endpoint:
        process = start(folder, endpoint)
        while Counter(map(asks, endpoint.requests))["assistant"] < 5:
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.3)
        assert process.returncode is None
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.communicate(), 10)
        assert process.returncode == 130
        assert sum(len(session.turns) for session in await stored(folder)) >= 5


async def test_a_second_command_on_the_same_run_is_refused(folder: Path) -> None:
    refused = asyncio.Event()

    async def held(request: Received) -> Plan:
        await refused.wait()
        return said(request)

    async with Endpoint([held]) as endpoint:
        first = start(folder, endpoint)
        while not endpoint.requests:
            await asyncio.sleep(0.02)
        code, _, err = await generate(folder, endpoint)
        assert code == 1
        assert "is being written by another process" in err
        refused.set()
        await first.communicate()
        assert first.returncode == 0


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


async def test_answers_are_stored_with_their_questions(folder: Path) -> None:
    (folder / "small.toml").write_text(
        """
name = "sums"
[[axes]]
name = "problem"
count = 3
each = true
ask = "Write a problem."
[answer]
role = "Mathematician"
system = "You are a Mathematician. Solve it."
question = "{{ problem }}"
"""
    )
    problems = iter(["What is\n1 + 1?", "What is 2 + 3?", "What is 8 * 7?"])

    def reply(request: Received) -> Plan:
        return next(problems) if asks(request) == "lister" else "It is a number."

    async with Endpoint([reply]) as endpoint:
        code, _, err = await generate(folder, endpoint)
    assert code == 0, err
    sessions = await stored(folder)
    assert [turn.text for turn in sessions[0].turns] == ["What is\n1 + 1?", "It is a number."]
    assert sessions[0].assistant.name == "Mathematician"
    assert {session.ending.code for session in sessions if session.ending} == {"answered"}
    assert sessions[2].values == {"problem": "What is 8 * 7?"}


async def test_a_limit_asks_for_no_more_single_items_than_its_jobs_need(folder: Path) -> None:
    (folder / "small.toml").write_text(
        """
name = "sums"
[[axes]]
name = "problem"
count = 50
each = true
ask = "Write a problem."
[answer]
role = "Mathematician"
system = "Solve it."
question = "{{ problem }}"
"""
    )
    numbers = iter(range(50))

    def reply(request: Received) -> Plan:
        return f"What is {next(numbers)} + 1?" if asks(request) == "lister" else "A number."

    async with Endpoint([reply]) as endpoint:
        for limit in (2, 5):
            code, _, err = await generate(folder, endpoint, "--limit", str(limit))
            assert code == 0, err
            assert len(endpoint.requests) == 2 * limit
    assert [session.task.original for session in await stored(folder)] == [
        f"What is {n} + 1?" for n in range(5)
    ]


async def test_a_run_is_translated_with_markers_code_and_done_token_as_they_are(folder: Path) -> None:
    def speak(request: Received) -> Plan:
        if asks(request) == "assistant":
            return "Solution: Write this:\n```python\nprint('hello')\n```\nNext request."
        if asks(request) == "user" and len(request.json["messages"]) > 2:
            return "<CAMEL_TASK_DONE>"
        return said(request)

    def translate(request: Received) -> Plan:
        return f"[{request.json['messages'][1]['content']}]"

    async with Endpoint([speak]) as endpoint:
        await generate(folder, endpoint, "--limit", "1")
    async with Endpoint([translate]) as endpoint:
        translation = [
            *("generate", "translate", "--run", "de.db", "--set", "source=run.db"),
            *("--set", "language.count=2", "--model", "openai:any", "--base-url", endpoint.url),
        ]
        code = await asyncio.to_thread(lambda: bactrian(*translation, cwd=folder).returncode)
        assert code == 0
        asked = len(endpoint.requests)
        again = bactrian(*translation, "--forecast", cwd=folder)
        assert again.stdout.startswith("0 sessions are left")
    found = {session.id: session for session in await stored(folder, "de.db")}
    assert sorted(found) == ["ar_001_001", "de_001_001"]
    assert [turn.text for turn in found["de_001_001"].turns] == [
        "Instruction: [Do part 2.]\nInput: None",
        "Solution: [Write this:]\n```python\nprint('hello')\n```\nNext request.",
        "<CAMEL_TASK_DONE>",
    ]
    assert found["de_001_001"].provenance.language == "German"
    assert found["de_001_001"].ending == (await stored(folder))[0].ending
    assert asked == 4


async def test_bold_markers_and_other_fences_stay_as_they_are_in_all_ten_languages(folder: Path) -> None:
    def speak(request: Received) -> Plan:
        match asks(request):
            case "lister":
                return TASKS
            case "user":
                return "**Instruction:** Do it.\n**Input:** None"
            case _:
                return "**Solution**: Run:\n~~~\nhello\n~~~\n**Next request.**"

    async with Endpoint([speak]) as endpoint:
        await generate(folder, endpoint, "--limit", "1")
    (folder / "small.toml").write_text(read_recipe_text("translate"))
    async with Endpoint([lambda request: f"[{request.json['messages'][1]['content']}]"]) as endpoint:
        options = ("--set", "source=run.db", "--run", "ten.db")
        code, _, err = await generate(folder, endpoint, *options)
    assert code == 0, err
    found = {session.id: session for session in await stored(folder, "ten.db")}
    assert sorted(each[:2] for each in found) == ["ar", "de", "es", "fr", "hi", "it", "ja", "ko", "ru", "zh"]
    for session in found.values():
        assert [turn.text for turn in session.turns[:2]] == [
            "**Instruction:** [Do it.]\n**Input:** None",
            "**Solution**: [Run:]\n~~~\nhello\n~~~\n**Next request.**",
        ]


async def test_more_conversations_than_files_may_be_open_are_refused_before_any_request(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--concurrency", "10000000000")
        assert (code, endpoint.requests) == (2, [])
        assert "open files" in err


async def test_temperatures_that_are_set_reach_the_endpoint(folder: Path) -> None:
    settings = ("--set", "temperature=0.9", "--set", "specify=true", "--set", "specify_temperature=0.6")
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, *settings, "--limit", "1")
        sent = [request.json.get("temperature") for request in endpoint.requests]
    assert code == 0, err
    assert sorted(each for each in sent if each is not None) == [0.6, 0.9, 0.9, 0.9, 0.9]


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


async def test_a_system_that_changes_in_mid_run_is_recorded_with_each_turn_and_told(folder: Path) -> None:
    asked = 0

    def reply(request: Received) -> Plan:
        nonlocal asked
        asked += 1
        return {**completion(said(request)), "system_fingerprint": "fp_1" if asked < 4 else "fp_2"}

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--limit", "1", "--concurrency", "1", "--json")
    assert code == 0
    (session,) = await stored(folder)
    assert {turn.fingerprint for turn in session.turns} == {"fp_1", "fp_2"}
    assert "user: served-model (fp_1) → served-model (fp_2)" in lines[-1]["changes"]


async def test_an_endpoint_that_goes_down_is_shown_and_waited_for(folder: Path) -> None:
    refused = 0

    def reply(request: Received) -> Plan:
        nonlocal refused
        if asks(request) == "assistant" and refused < 14:
            refused += 1
            return Answer(status=500, body="down")
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--limit", "12", "--json")
    assert code == 0
    assert len(await stored(folder)) == 12
    assert [line for line in lines if line["silent"] and line["closed_for"] > 0]
    assert not lines[-1]["silent"]


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
        assert lines[0]["calls"]["low"] == 2 * 4
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
    assert [turn.text for turn in session.turns] == [one.texts[1] for one in known.choices()]
    systems = {message["content"] for one in endpoint.requests for message in one.json["messages"][:1]}
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


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer("<!doctype html><title>Log in</title>", content_type="text/html"), "did you omit /v1?"),
        (
            Answer({"error": {"message": "No such value.", "param": "temperature"}}, 400),
            "parameter 'temperature'",
        ),
        (Answer({"detail": "Not Found"}, 404), "did you omit /v1?"),
    ],
    ids=["login page", "bad parameter", "wrong path"],
)
async def test_what_no_session_can_get_past_stops_the_run_at_its_first_requests(
    folder: Path, answer: Answer, says: str
) -> None:
    async with Endpoint([answer]) as endpoint:
        code, _, err = await generate(folder, endpoint)
        assert code == 1
        assert says in err
        assert len(endpoint.requests) == 1
        assert [session.ending for session in await stored(folder)] == []


async def test_a_bad_request_of_one_session_fails_that_one_alone(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        if "Fly a kite" in request.body.decode() and asks(request) == "assistant":
            return Answer({"error": {"message": "No.", "param": "messages"}}, 400)
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--json", "--limit", "4", "--concurrency", "1")
    assert code == 4
    assert lines[-1]["endings"] == {"max_messages": 3, "failed": 1}


async def test_a_tool_that_nobody_offered_is_not_called_and_the_turn_asked_for_again(folder: Path) -> None:
    called = 0

    def reply(request: Received) -> Plan:
        nonlocal called
        if asks(request) == "assistant" and not called:
            called += 1
            calls = [{"id": "1", "type": "function", "function": {"name": "rm", "arguments": "{not json"}}]
            return completion(None, finish="tool_calls", tool_calls=calls)
        text = said(request)
        assert isinstance(text, str)
        return text

    async with Endpoint([reply]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--limit", "1")
    assert code == 0, err
    (session,) = await stored(folder)
    assert [turn.text for turn in session.turns if "rm" in turn.text] == []
    assert len(session.turns) == 4


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP])
async def test_a_polite_end_finishes_what_is_in_flight_and_the_run_goes_on(
    folder: Path, which: signal.Signals
) -> None:
    async def slow(request: Received) -> Plan:
        await asyncio.sleep(0.2)
        return said(request)

    async with Endpoint([slow]) as endpoint:
        process = start(folder, endpoint)
        while len(endpoint.requests) < 10:
            await asyncio.sleep(0.02)
        process.send_signal(which)
        _, err = await process.communicate()
        assert process.returncode == 143
        assert "To go on: bactrian generate small.toml" in err.decode()
        assert (await generate(folder, endpoint))[0] == 0
        assert len(endpoint.requests) == 12 * 4 + 3


@pytest.mark.parametrize("waiting", ["for the endpoint", "for its turn", "to ask again"])
async def test_an_interrupt_does_not_sit_out_a_wait(folder: Path, waiting: str) -> None:
    asked = 0

    def reply(request: Received) -> Plan:
        nonlocal asked
        asked += 1
        if asked <= 6 or waiting == "for its turn":
            return said(request)
        after = {"Retry-After": "300"} if waiting == "for the endpoint" else {}
        return Answer("not now", status=429 if after else 502, headers=after)

    options = ["--requests-per-minute", "1"] if waiting == "for its turn" else []
    async with Endpoint([reply]) as endpoint:
        process = start(folder, endpoint, *options)
        while asked < (1 if options else 8):
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, err = await asyncio.wait_for(
            process.communicate(), 15
        )  # half of what it would wait for calls in flight
        assert process.returncode == 130
        assert "To go on: " in err.decode()


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


async def test_a_budget_without_a_price_is_refused_before_anything_is_made(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        code, _, err = await generate(folder, endpoint, "--budget", "1")
    assert code == 2
    assert "needs the price of 'openai:any'" in err
    assert "--price" in err
    assert endpoint.requests == []
    assert not (folder / "run.db").exists()


async def test_the_reasons_that_are_kept_are_few_however_many_jobs_cannot_begin(folder: Path) -> None:
    tasks = "\n".join(f"task {number}" for number in range(300))
    (folder / "tasks.txt").write_text(tasks)
    recipe = RECIPE.replace(
        'per = ["role"]\nask = "List {{ count }} tasks for {{ role }}."', 'file = "tasks.txt"'
    )
    recipe = recipe.replace("count = 4", "count = 300").replace(
        'idea = "{{ task }}"', "idea = '{% if task == role %}x{% endif %}'"
    )
    (folder / "small.toml").write_text(recipe)
    async with Endpoint([said]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json")
    assert code == 4, err
    assert lines[-1]["failed"] == 900
    assert len(lines[-1]["refused"]) == 100
    assert endpoint.requests == []
