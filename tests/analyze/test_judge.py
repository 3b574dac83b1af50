"""A judge that is asked about findings."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from pathlib import Path

import pytest

from bactrian.analyze.aggregate import measure
from bactrian.analyze.judge import list_judged, read_answer
from bactrian.records.run import Confirmation, Finding
from bactrian.records.session import Session
from bactrian.records.turn import Usage
from bactrian.store import open_store
from tests.helpers.command import bactrian, clean_environment
from tests.helpers.endpoint import Answer, Endpoint, Plan, Received, Reply, completion
from tests.helpers.runs import make_run, session

ASK = "Instruction: Design the dial of the timer.\nInput: None"
PROMISES = (
    "Solution: I will get started right away.\nNext request.",
    "Solution: I am going to work on it now.\nNext request.",
)


def flaky(name: str, times: int = 1) -> Session:
    texts = [text for promise in PROMISES[:times] for text in (ASK, promise)]
    return session(name, texts=texts, code="max_messages")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("yes, it only promises", True),
        ("**No.** It holds a solution.", False),
        ("No", False),
        ("I think yes", None),
        ("Nothing is wrong", None),
        ("", None),
    ],
)
def test_an_answer_is_its_first_word(text: str, holds: bool | None) -> None:
    assert read_answer(text) is holds


async def test_each_finding_is_put_to_the_judge_once_with_the_turns_and_the_definition(
    tmp_path: Path,
) -> None:
    await make_run(tmp_path / "tea.db", [flaky("1", 2), flaky("2"), session("3", rounds=3)])

    def answer(request: Received) -> str:
        turn = request.json["messages"][1]["content"].rpartition("[")[2]
        return "No: it begins." if "going to work" in turn else "Yes."

    async with Endpoint([answer]) as endpoint:
        words = ("analyze", "tea.db", "--judge", "openai:judge", "--base-url", endpoint.url, "--price", "1/1")
        first = await asyncio.to_thread(bactrian, *words, "--json", "--findings", "f.jsonl", cwd=tmp_path)
        assert first.returncode == 0, first.stderr
        flakes = json.loads(first.stdout)["judged"]["behaviours"]["flake_reply"]
        assert (flakes["asked"], flakes["confirmed"]["count"], flakes["sessions"]) == (3, 2, 2)
        asked = len(endpoint.requests)
        lines = [json.loads(line) for line in (tmp_path / "f.jsonl").read_text("utf-8").splitlines()]
        assert len(lines) == asked
        flakes = [line for line in lines if line["behaviour"] == "flake_reply"]
        confirmed = {(line["session"], line["turn"]): line["confirmed"] for line in flakes}
        assert confirmed == {("1", 2): True, ("1", 4): False, ("2", 2): True}
        system, question = (message["content"] for message in endpoint.requests[0].json["messages"])
        assert "Flake reply" in system
        assert re.search(r"Does turn \d, by the AI \w+ \(\w+\), show the fault", question)
        assert re.search(r"asked \d questions \(about [\d,]+ tokens, \$0\.\d{4}\); 0 answers", first.stderr)
        again = await asyncio.to_thread(bactrian, *words, "--report", "page.html", cwd=tmp_path)
        assert again.returncode == 0, again.stderr
        assert len(endpoint.requests) == asked
        assert "confirmed" in again.stdout
        assert "What the judge confirms" in (tmp_path / "page.html").read_text("utf-8")
        assert "66.7 % (–)" in again.stdout


async def test_findings_of_one_conversation_are_one_observation(tmp_path: Path) -> None:
    found: list[Finding] = []
    path = await make_run(tmp_path / "tea.db", [flaky(str(number), 2) for number in range(6)])
    async with open_store(path, read_only=True) as store:
        facts = (await measure(store, found.extend)).facts
    answers = {
        each.key: Confirmation(*each.key, "judge", True, "Yes.", Usage(), 0.0, "judge") for each in found
    }
    flakes = list_judged("judge", found, answers, facts)["behaviours"]["flake_reply"]
    assert (flakes["confirmed"]["count"], flakes["confirmed"]["rate"]) == (12, 1.0)
    assert flakes["confirmed"]["withheld"] == "only 6 conversations, and an interval needs 10"


async def test_a_sample_of_found_and_other_turns_corrects_the_rate(tmp_path: Path) -> None:
    """The judge denies what the detector found: with every turn asked, the corrected rate is exactly the judge's."""
    plain = [session(str(number), rounds=3) for number in (2, 3)]
    await make_run(tmp_path / "tea.db", [session("1", rounds=3), flaky("4", 2), *plain])

    def answer(request: Received) -> str:
        question = request.json["messages"][1]["content"]
        return "Yes." if "Part 2 is" in question.rpartition("\n[")[2] else "No."

    async with Endpoint([answer]) as endpoint:
        words = ("analyze", "tea.db", "--judge", "openai:judge", "--base-url", endpoint.url, "--price", "1/1")
        done = await asyncio.to_thread(bactrian, *words, "--sample", "50", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        flakes = json.loads(done.stdout)["judged"]["corrected"]["flake_reply"]
        assert flakes["found"] == {"turns": 2, "asked": 2, "unreadable": 0, "confirmed": 0}
        assert flakes["other"]["asked"] == flakes["other"]["turns"] == 9
        assert flakes["other"]["confirmed"] == 3
        assert (
            flakes["rate"]["value"]
            == flakes["rate"]["low"]
            == flakes["rate"]["high"]
            == pytest.approx(3 / 11)
        )
        assert (flakes["precision"]["value"], flakes["recall"]["value"]) == (0, 0)
        assert flakes["detected_rate"] == pytest.approx(2 / 11)
        asked = len(endpoint.requests)
        shown = await asyncio.to_thread(bactrian, *words, "--sample", "50", cwd=tmp_path)
        assert "turns, corrected by the judge" in shown.stdout
        assert len(endpoint.requests) == asked


def test_a_sample_without_a_judge_is_refused(tmp_path: Path) -> None:
    refused = bactrian("analyze", "tea.db", "--sample", "5", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--judge" in refused.stderr


async def test_answers_are_kept_when_the_judge_falls_silent(tmp_path: Path) -> None:
    await make_run(tmp_path / "tea.db", [flaky(str(number)) for number in range(6)])
    replies: list[Reply] = [*["Yes."] * 3, Answer(status=401, body={"error": {"message": "key revoked"}})]
    async with Endpoint(replies) as endpoint:
        words = (
            "analyze",
            "tea.db",
            "--judge",
            "openai:judge",
            "--base-url",
            endpoint.url,
            "--concurrency",
            "1",
        )
        cut = await asyncio.to_thread(bactrian, *words, cwd=tmp_path)
        assert cut.returncode == 1
        assert "Traceback" not in cut.stderr
    async with Endpoint(["Yes."]) as endpoint:
        words = (*words[:5], endpoint.url, *words[6:])
        done = await asyncio.to_thread(bactrian, *words, "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert "3 answers are stored already" in done.stderr
        assert json.loads(done.stdout)["judged"]["behaviours"]["flake_reply"]["confirmed"]["count"] == 6


@pytest.mark.parametrize("status", [400, 403])
async def test_a_question_that_is_refused_is_unreadable_and_never_asked_again(
    tmp_path: Path, status: int
) -> None:
    await make_run(tmp_path / "tea.db", [flaky("1", 2), flaky("2")])

    def answer(request: Received) -> Plan:
        question = request.json["messages"][-1]["content"].rpartition("[")[2]
        return Answer(b'{"error": {"message": "policy"}}', status) if "going to work" in question else "Yes."

    async with Endpoint([answer]) as endpoint:
        words = ("analyze", "tea.db", "--judge", "openai:judge", "--base-url", endpoint.url, "--json")
        done = await asyncio.to_thread(bactrian, *words, cwd=tmp_path)
        assert done.returncode == 4, done.stderr
        flakes = json.loads(done.stdout)["judged"]["behaviours"]["flake_reply"]
        assert (flakes["asked"], flakes["unreadable"], flakes["confirmed"]["count"]) == (3, 1, 2)
        assert (flakes["sessions"], flakes["rate"]) == (2, None)
        assert flakes["withheld"] == "1 finding without an answer that could be read"
        asked = len(endpoint.requests)
        again = await asyncio.to_thread(bactrian, *words, cwd=tmp_path)
        assert again.returncode == 4, again.stderr
        assert len(endpoint.requests) == asked


async def test_an_answer_that_cannot_be_read_is_asked_for_once_more_and_then_on_request(
    tmp_path: Path,
) -> None:
    await make_run(tmp_path / "tea.db", [flaky(str(number)) for number in range(12)])
    usage = {"usage": {"prompt_tokens": 900, "completion_tokens": 9}}
    async with Endpoint([completion("Let me think about this.") | usage]) as endpoint:
        words = ("analyze", "tea.db", "--judge", "openai:judge", "--base-url", endpoint.url, "--json")
        done = await asyncio.to_thread(bactrian, *words, cwd=tmp_path)
        assert done.returncode == 4, done.stderr
        assert "12 of 12 answers could not be read" in done.stderr
        assert "--retry-failed asks again" in done.stderr
        assert len(endpoint.requests) == 24
        *before, said, correction = endpoint.requests[-1].json["messages"]
        assert [message["role"] for message in before] == ["system", "user"]
        assert said == {"role": "assistant", "content": "Let me think about this."}
        assert "must be Yes or No" in correction["content"]
        judged = json.loads(done.stdout)["judged"]
        assert judged["tokens"] == 24 * 909
    usage = {"usage": {"prompt_tokens": 700, "completion_tokens": 7}}
    answers = iter(["Yes.", "Well.", "No."] * 20)
    async with Endpoint([lambda _: completion(next(answers)) | usage]) as endpoint:
        words = (*words[:5], endpoint.url, "--json", "--retry-failed")
        done = await asyncio.to_thread(bactrian, *words, "--concurrency", "1", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        judged = json.loads(done.stdout)["judged"]
        flakes = judged["behaviours"]["flake_reply"]
        assert (flakes["asked"], flakes["unreadable"], flakes["confirmed"]["count"]) == (12, 0, 6)
        assert judged["tokens"] == 24 * 909 + 18 * 707


async def test_a_second_question_that_fails_keeps_the_tokens_of_the_first(tmp_path: Path) -> None:
    await make_run(tmp_path / "tea.db", [flaky(str(number)) for number in range(3)])
    usage = {"usage": {"prompt_tokens": 900, "completion_tokens": 9}}
    policy = {"error": {"message": "policy"}}
    refuse: list[Reply] = [completion("Well.") | usage, Answer(status=400, body=policy)]
    stop: list[Reply] = [completion("Well.") | usage, Answer(status=401, body=policy)]
    async with Endpoint([*refuse, *stop]) as endpoint:
        words = ("analyze", "tea.db", "--judge", "openai:judge", "--base-url", endpoint.url)
        done = await asyncio.to_thread(bactrian, *words, "--concurrency", "1", cwd=tmp_path)
        assert done.returncode == 1, done.stderr
        assert len(endpoint.requests) == 4
    async with open_store(tmp_path / "tea.db", read_only=True) as store:
        answers = await store.confirmations("openai:judge")
    assert [(answer.holds, answer.usage.total) for answer in answers] == [(None, 909)] * 2


async def test_a_comparison_says_which_run_was_read(tmp_path: Path) -> None:
    for name in ("read.db", "other.db"):
        await make_run(tmp_path / name, [flaky("1"), flaky("2")])
    async with Endpoint([lambda _: "No."]) as endpoint:
        words = ("analyze", "read.db", "--judge", "openai:judge", "--base-url", endpoint.url)
        assert (await asyncio.to_thread(bactrian, *words, cwd=tmp_path)).returncode == 0
    compared = await asyncio.to_thread(
        bactrian, "analyze", "read.db", "other.db", "--report", "page.html", cwd=tmp_path
    )
    words = "Readers confirmed or rejected findings in read only"
    for text in (compared.stdout, (tmp_path / "page.html").read_text("utf-8")):
        assert words in " ".join(text.split())
    same = await asyncio.to_thread(bactrian, "analyze", "other.db", "other.db", cwd=tmp_path)
    assert "Readers" not in same.stdout


async def test_answers_that_cannot_be_read_widen_the_interval_to_the_worst_case(tmp_path: Path) -> None:
    found: list[Finding] = []
    path = await make_run(tmp_path / "tea.db", [flaky(str(number)) for number in range(30)])
    async with open_store(path, read_only=True) as store:
        facts = (await measure(store, found.extend)).facts
    flakes = [finding for finding in found if finding.behaviour == "flake_reply"]
    shares: list[dict[str, float]] = []
    for unread in (0, 10):
        held = [True, False] * 10 + ([None] * 10 if unread else [])
        answers = {
            each.key: Confirmation(*each.key, "judge", holds, "", Usage(), 0.0, "judge")
            for each, holds in zip(flakes, held, strict=False)
        }
        asked = flakes[: len(held)]
        shares.append(list_judged("judge", asked, answers, facts)["behaviours"]["flake_reply"]["confirmed"])
    read, all_ = shares
    assert read["rate"] == all_["rate"] == 0.5
    assert all_["low"] < read["low"] - 0.1
    assert all_["high"] > read["high"] + 0.1


async def test_a_limit_stops_the_judge_before_it_is_passed(tmp_path: Path) -> None:
    await make_run(tmp_path / "tea.db", [flaky(str(number)) for number in range(6)])
    reply = completion("Yes.") | {"usage": {"prompt_tokens": 500, "completion_tokens": 5}}
    async with Endpoint([reply]) as endpoint:
        words = ("analyze", "tea.db", "--judge", "openai:judge", "--base-url", endpoint.url)
        limit = ("--concurrency", "1", "--max-tokens", "1700")
        done = await asyncio.to_thread(bactrian, *words, *limit, cwd=tmp_path)
        assert done.returncode == 3
        assert 0 < len(endpoint.requests) <= 1700 // 505


def test_a_judge_does_not_compare_two_runs(tmp_path: Path) -> None:
    done = bactrian("analyze", "one.db", "two.db", "--judge", "local", cwd=tmp_path)
    assert done.returncode == 2
    assert "one run" in done.stderr


async def test_a_judge_with_other_parameters_is_asked_anew_with_them(tmp_path: Path) -> None:
    await make_run(tmp_path / "tea.db", [flaky("1")])
    async with Endpoint(["Yes."]) as endpoint:
        words = ("analyze", "tea.db", "--judge", "openai:judge", "--base-url", endpoint.url, "--price", "1/1")
        assert (await asyncio.to_thread(bactrian, *words, cwd=tmp_path)).returncode == 0
        asked = len(endpoint.requests)
        assert endpoint.requests[0].json["temperature"] == 0
        more = (
            "--temperature",
            "0.7",
            "--top-p",
            "0.9",
            "--reply-length",
            "50",
            "--seed",
            "3",
            "--tier",
            "flex",
        )
        other = await asyncio.to_thread(
            bactrian, *words, *more, "--reasoning-effort", "low", "--json", cwd=tmp_path
        )
        assert other.returncode == 0, other.stderr
        sent = endpoint.requests[asked].json
        assert (sent["temperature"], sent["top_p"], sent["seed"]) == (0.7, 0.9, 3)
        assert 50 in (sent.get("max_tokens"), sent.get("max_completion_tokens"))
        assert (sent["reasoning_effort"], sent["service_tier"]) == ("low", "flex")
        assert json.loads(other.stdout)["judged"]["judge"].startswith("openai:judge temperature=0.7")


def test_sampling_parameters_without_a_judge_are_refused(tmp_path: Path) -> None:
    refused = bactrian("analyze", "tea.db", "--temperature", "0.5", cwd=tmp_path)
    assert refused.returncode == 2
    assert "--judge" in refused.stderr


def test_a_judge_has_its_own_price_and_not_that_of_the_models_of_the_run(tmp_path: Path) -> None:
    script = {"user": [ASK, ASK, "<CAMEL_TASK_DONE>"], "assistant": PROMISES}
    (tmp_path / "script.json").write_text(json.dumps(script))
    (tmp_path / "judge.json").write_text(json.dumps(["Yes."] * 9))
    play = ("play", "tea", "--model", "scripted:script.json", "--no-specify", "--run", "tea.db")
    for words in (play, ("analyze", "tea.db", "--judge", "scripted:judge.json", "--json")):
        done = bactrian(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    judged = json.loads(bactrian("status", "tea.db", "--json", cwd=tmp_path).stdout)["judged"]
    assert judged["tokens"] > 0
    assert judged["usd"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_loses_no_answer_in_flight_and_none_is_asked_twice(
    tmp_path: Path, which: signal.Signals
) -> None:
    async def slow(_: Received) -> Plan:
        await asyncio.sleep(0.5)
        return "Yes."

    await make_run(tmp_path / "tea.db", [flaky(str(number)) for number in range(40)])
    async with Endpoint([slow]) as endpoint:
        words = ("analyze", "tea.db", "--judge", "openai:judge", "--base-url", endpoint.url)
        words = (*words, "--concurrency", "4", "--report", "tea.html")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bactrian", *words),
            cwd=tmp_path,
            env=clean_environment(),
            stderr=asyncio.subprocess.PIPE,
        )
        while len(endpoint.requests) < 10:
            await asyncio.sleep(0.02)
        process.send_signal(which)
        _, err = await process.communicate()
        assert process.returncode == {signal.SIGINT: 130, signal.SIGTERM: 143}[which]
        assert "answers are stored; the same command resumes" in err.decode()
        assert not (tmp_path / "tea.html").exists()
        done = await asyncio.to_thread(bactrian, *words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert len(endpoint.requests) == 40
