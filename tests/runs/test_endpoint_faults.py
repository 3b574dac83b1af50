"""What an endpoint refuses or cannot do for a while stops a run, or is waited out."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.helpers.command import clean_environment
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received
from tests.helpers.generation import asks, generate, said, start, stored


async def test_a_refused_key_stops_the_run_after_one_request(folder: Path) -> None:
    async with Endpoint([Answer({"error": {"message": "bad key"}}, status=401)]) as endpoint:
        code, _, err = await generate(folder, endpoint)
        assert code == 1
        assert "401" in err
        assert len(endpoint.requests) == 1


def forbid_kites(request: Received) -> Plan:
    if "Fly a kite" in request.body.decode() and asks(request) == "assistant":
        return Answer({"error": {"message": "blocked"}}, status=403)
    return said(request)


async def test_a_prompt_that_is_forbidden_at_each_try_costs_its_session_alone(folder: Path) -> None:
    async with Endpoint([forbid_kites]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json")
        assert code == 4, err
        assert lines[-1]["endings"] == {"max_messages": 9, "failed": 3}
        assert lines[-1]["reasons"] == {f"{endpoint.url}: The endpoint answered 403: blocked": 3}
        asked = len(endpoint.requests)
        assert (await generate(folder, endpoint))[0] == 4
        assert len(endpoint.requests) == asked
    async with Endpoint([said]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json", "--retry-failed")
        assert (code, lines[-1]["endings"]) == (0, {"max_messages": 12}), err


async def test_a_list_that_is_forbidden_costs_its_own_jobs_alone(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        if asks(request) == "lister" and "Chef" in request.body.decode():
            return Answer({"error": {"message": "blocked"}}, status=403)
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json")
        assert (code, lines[-1]["done"]) == (4, 8), err
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint))[0] == 0
    assert len(await stored(folder)) == 12


async def test_a_key_without_rights_stops_the_run_after_a_greeting_was_forbidden_too(folder: Path) -> None:
    async with Endpoint([Answer({"error": {"message": "no rights"}}, status=403)]) as endpoint:
        code, _, err = await generate(folder, endpoint)
        assert code == 1
        assert "Every request is refused, a simple greeting too. The endpoint answered 403: no rights" in err
        assert "Check the rights of the key (OPENAI_API_KEY)" in err
        assert len(endpoint.requests) == 2
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint))[0] == 0
    assert len(await stored(folder)) == 12


async def test_a_resumed_run_whose_next_prompts_are_all_forbidden_goes_on(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--limit", "1"))[0] == 0

    def reply(request: Received) -> Plan:
        if "Chef" in request.body.decode() or "Pilot" in request.body.decode():
            return Answer({"error": {"message": "blocked"}}, status=403)
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json", "--concurrency", "1")
        assert (code, lines[-1]["endings"]) == (4, {"max_messages": 5, "failed": 3}), err
        asked = len(endpoint.requests)
        assert (await generate(folder, endpoint, "--json", "--concurrency", "1"))[0] == 4
        assert len(endpoint.requests) <= asked + 2  # the list that is forbidden, and the greeting


async def test_a_resumed_run_whose_key_has_lost_its_rights_stops(folder: Path) -> None:
    async with Endpoint([said]) as endpoint:
        assert (await generate(folder, endpoint, "--limit", "1"))[0] == 0
    async with Endpoint([Answer({"error": {"message": "no rights"}}, status=403)]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json")
        assert (code, lines[-1]["endings"]) == (1, {"max_messages": 1})
        assert "Every request is refused" in err
        assert len(endpoint.requests) == 2


@pytest.mark.slow
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


@pytest.mark.system
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
    assert "answered 503: <html>Busy yyy" in told
    assert told.count("y" * 170) == 1
    assert "y" * 200 not in told
    assert re.search(r"Asking again in \d+\.\d s\.$", told)


@pytest.mark.system
async def test_the_longest_wait_is_the_users_and_what_stays_open_is_told_with_its_reason(
    folder: Path,
) -> None:
    def reply(request: Received) -> Plan:
        if "Fly a kite" in request.body.decode() and asks(request) == "assistant":
            return Answer("slow down", status=429, headers={"Retry-After": "9999"})
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--json", "--set", "endpoint.max_wait=0.2")
        assert (code, lines[-1]["done"], lines[-1]["open"]) == (4, 9, 3)
        # However often each was asked for, the reason is the same.
        why = "The endpoint answered 429: slow down. It asks to wait 9999 s."
        assert lines[-1]["reasons"] == {f"{endpoint.url}: {why}": 3}
    async with Endpoint([said]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--json")
        assert (code, lines[-1]["done"]) == (0, 12)


@pytest.mark.slow
async def test_an_endpoint_that_always_fails_is_told_with_its_address_its_answer_and_what_to_do(
    folder: Path,
) -> None:
    async with Endpoint([Answer({"error": {"message": "still loading"}}, status=500)]) as endpoint:
        _, _, told = await generate(folder, endpoint, "--limit", "1", "--set", "endpoint.max_wait=0.2")
        answered = f"{endpoint.url}: The endpoint answered 500: still loading.\n"
        assert f"1 × {answered}1 job waited for the endpoint in vain. Check that it works, and run" in told
    empty = Endpoint([lambda request: said(request) if asks(request) == "lister" else {"choices": []}])
    async with empty as endpoint:
        _, _, told = await generate(folder, endpoint, "--limit", "1", "--set", "endpoint.max_wait=0.2")
        assert f"1 × {endpoint.url}: The endpoint's reply contains no choices." in told
        (failed,) = await stored(folder)
        assert failed.ending
        assert failed.ending.evidence.startswith(f"{endpoint.url}: The endpoint's reply contains no choices.")


@pytest.mark.slow
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
        where = (
            "--model",
            "openai:any",
            "--base-url",
            endpoint.url,
            "--set",
            "endpoint.timeout=30",
            "--json",
        )
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


@pytest.mark.slow
async def test_an_endpoint_that_goes_down_is_shown_and_waited_for(folder: Path) -> None:
    refused = 0

    def reply(request: Received) -> Plan:
        nonlocal refused
        if (asks(request) == "assistant" or refused) and refused < 14:
            refused += 1
            return Answer(status=500, body="down")
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, _ = await generate(folder, endpoint, "--limit", "12", "--json")
    assert code == 0
    assert len(await stored(folder)) == 12
    assert [line for line in lines if line["silent"] and line["closed_for"] > 0]
    assert not lines[-1]["silent"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Answer("<!doctype html><title>Log in</title>", content_type="text/html"), "did you omit /v1?"),
        (
            Answer({"error": {"message": "No such value.", "param": "temperature"}}, 400),
            "parameter 'temperature'",
        ),
        (Answer({"detail": "Not Found"}, 404), "did you omit /v1?"),
        (
            Answer({"error": {"message": "max_tokens must be at least 1, got -1."}}, 400),
            "Correct the parameter",
        ),
        (
            Answer({"detail": [{"loc": ["body", "temperature"], "msg": "Input should be less than 3"}]}, 422),
            "Correct the parameter",
        ),
        (Answer({"error": {"message": "The model `any` does not exist"}}, 400), "does not exist"),
    ],
    ids=["login page", "bad parameter", "wrong path", "in the message", "in its place", "wrong model"],
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


@pytest.mark.slow
async def test_two_model_names_on_one_endpoint_share_its_rate_and_its_concurrency(folder: Path) -> None:
    at: list[float] = []
    at_once = most = 0

    async def reply(request: Received) -> Plan:
        nonlocal at_once, most
        at.append(time.monotonic())
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.05)
        at_once -= 1
        return said(request)

    async with Endpoint([reply]) as endpoint:
        names = (
            "--user-model",
            f"openai:one@{endpoint.url}",
            "--assistant-model",
            f"openai:two@{endpoint.url}",
        )
        code, _, err = await generate(folder, endpoint, *names, "--concurrency", "3")
        assert code == 0, err
        assert most <= 3
        at.clear()
        fast = ("--requests-per-minute", "1200", "--run", "other.db")
        code, _, err = await generate(folder, endpoint, *names, *fast)
        assert code == 0, err
    assert (at[-1] - at[0]) >= (len(at) - 1) * 60 / 1200 * 0.95


@pytest.mark.slow
async def test_what_arrived_while_the_process_was_stopped_is_not_paid_again(folder: Path) -> None:
    async def slow(request: Received) -> Plan:
        await asyncio.sleep(0.25)
        return said(request)

    async with Endpoint([slow]) as endpoint:
        process = start(folder, endpoint, "--set", "endpoint.timeout=2")
        while len(endpoint.requests) < 20:
            await asyncio.sleep(0.02)
        process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2.5)
        process.send_signal(signal.SIGCONT)
        _, err = await process.communicate()
        assert process.returncode == 0, err
    assert len(endpoint.requests) == 12 * 4 + 3


@pytest.mark.slow
async def test_a_conversation_that_waits_long_makes_room_for_another_but_for_no_request_more(
    folder: Path,
) -> None:
    order: list[str] = []
    at_once: list[int] = [0]

    async def reply(request: Received) -> Plan:
        at_once.append(at_once[-1] + 1)
        await asyncio.sleep(0.02)
        at_once.append(at_once[-1] - 1)
        if asks(request) == "lister":
            return said(request)
        body = request.body.decode()
        role = next(role for role in ("Chef", "Pilot", "Nurse") if role in body)
        order.append(role + next(task for task in ("Bake", "kite", "wound", "time") if task in body))
        if len(order) == 2:
            return Answer("slow down", status=429, headers={"Retry-After": "1"})
        return said(request)

    async with Endpoint([reply]) as endpoint:
        code, lines, err = await generate(folder, endpoint, "--json", "--concurrency", "1")
    assert (code, lines[-1]["done"], lines[-1]["failed_calls"]) == (0, 12, 1), err
    assert max(at_once) == 1
    assert order[1] == order[0] != order[2]
    assert Counter(order) == {each: 4 + (each == order[0]) for each in order}
