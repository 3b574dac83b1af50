"""``bactrian evaluate agents`` and ``extract`` as a user calls them, with endpoints that judge in a known way."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bactrian.evaluate.comparison import find_figures, find_stage_figures
from bactrian.records.turn import Sampling
from bactrian.store import open_store
from tests.helpers.command import Command, bactrian, clean_environment
from tests.helpers.endpoint import Answer, Endpoint, Plan, Raw, Received, completion
from tests.helpers.runs import ORIGIN, make_run, session

TASKS = 4


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    made = [
        session(f"{number:03}_001_001", task=f"Build tea timer {number}", rounds=1 + number % 3)
        for number in range(1, 11)
    ]
    await make_run(tmp_path / "run.db", [*made, session("011_001_001", code=None)])
    return tmp_path


def find_answers(request: Received) -> tuple[str, str] | None:
    """The two answers that a judge is shown, or None if the request is for a solution."""
    text = request.json["messages"][1]["content"]
    if "[Start of the answer by Assistant 1]" not in text:
        return None
    first, second = (
        text.split(f"[Start of the answer by Assistant {number}]\n")[1].split(
            f"\n[End of the answer by Assistant {number}]"
        )[0]
        for number in (1, 2)
    )
    return first, second


def solve(request: Received) -> str:
    text = request.json["messages"][-1]["content"]
    if "Write the whole solution" in text:
        return "Solution: The timer has a dial, a spring and a bell, and it rings.\nNext request."
    return "A clock."


def serve(judge: Callable[[str, str], Plan]) -> Callable[[Received], Plan]:
    def reply(request: Received) -> Plan:
        answers = find_answers(request)
        return solve(request) if answers is None else judge(*answers)

    return reply


def write_scores(first: float, second: float) -> str:
    return json.dumps({"reason": "So it is.", "assistant_1": first, "assistant_2": second})


def judge_by_length(first: str, second: str) -> Plan:
    return write_scores(9, 3) if len(first) > len(second) else write_scores(3, 9)


def build_command(endpoint: Endpoint, *options: str, tasks: int = TASKS) -> tuple[str, ...]:
    models = ("--model", "openai:solver", "--judge", "openai:judge", "--base-url", endpoint.url)
    return ("evaluate", "agents", "run.db", *models, "--tasks", str(tasks), "--seed", "4", *options)


async def run(folder: Path, *command: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(lambda: bactrian(*command, cwd=folder))
    return done.returncode, done.stdout, done.stderr


async def test_role_plays_are_compared_with_single_answers_in_both_orders(folder: Path) -> None:
    async with Endpoint([serve(judge_by_length)]) as endpoint:
        command = build_command(endpoint, "--report", "page.html", "--dilemma", "votes.zip", "--json")
        code, out, err = await run(folder, *command)
        assert code == 0, err
        asked = len(endpoint.requests)
        (folder / "votes.zip").unlink()
        again, same, _ = await run(folder, *command)
        assert (again, json.loads(same)) == (0, json.loads(out))
        assert len(endpoint.requests) == asked == 4 * TASKS
        judged = [answers for request in endpoint.requests if (answers := find_answers(request))]
    report: dict[str, Any] = json.loads(out)
    (compared,) = report["comparisons"]
    assert compared["counts"] == {"draw": 0, "loss": 0, "win": TASKS, "unreadable": 0}
    assert compared["first_seat"]["value"] == 0.5
    assert compared["paper"] == []  # The tasks are not those of a recipe of the paper.
    assert report["makers"] == {
        "Role-play": "written by openai:two, extracted by openai:solver",
        "Single answer": "written by openai:solver",
        "judged by": "openai:judge",
    }
    assert [warning for warning in report["warnings"] if "of the family" in warning] == []
    assert any("prefers the longer of two solutions" in warning for warning in report["warnings"])
    assert not any("max_completion_tokens" in request.json for request in endpoint.requests)
    assert not any("max_tokens" in request.json for request in endpoint.requests)
    # Nothing in a solution tells who wrote it.
    assert {answer for pair in judged for answer in pair} == {
        "The timer has a dial, a spring and a bell, and it rings.",
        "A clock.",
    }
    page = (folder / "page.html").read_text()
    assert "Role-play wins" in page
    assert "<script" not in page
    with zipfile.ZipFile(folder / "votes.zip") as archive:
        rows = [json.loads(archive.read(name)) for name in archive.namelist()]
    assert len(rows) == TASKS
    assert all(
        list(row) == ["specified_task", "gpt_solution", "summary", "solution_extraction"] for row in rows
    )


async def test_the_draw_depends_on_the_seed_and_a_file_names_its_own(folder: Path) -> None:
    async with Endpoint([solve]) as endpoint:
        drawn: list[list[str]] = []
        for seed in ("1", "1", "2"):
            command = ("evaluate", "extract", "run.db", "--model", "openai:any", "--base-url", endpoint.url)
            options = ("--tasks", "4", "--seed", seed, "--out", f"draw{len(drawn)}", "--json")
            code, out, err = await run(folder, *command, *options)
            assert code == 0, err
            drawn.append([json.loads(line)["session"] for line in out.splitlines()])
        assert len(drawn[0]) == 4
        assert drawn[0] == drawn[1] != drawn[2]
        (folder / "names.txt").write_text("003_001_001\n\n007_001_001\n")
        command = ("evaluate", "extract", "run.db", "--model", "openai:any", "--base-url", endpoint.url)
        code, out, err = await run(folder, *command, "--only", "names.txt", "--json")
        rows = [json.loads(line) for line in out.splitlines()]
        assert [row["session"] for row in rows] == ["003_001_001", "007_001_001"]
        assert rows[0]["solution"] == "The timer has a dial, a spring and a bell, and it rings."
        (folder / "names.txt").write_text("011_001_001\n")
        code, _, err = await run(folder, *command, "--only", "names.txt")
        assert (code, "is not a conversation of the run that has ended" in err) == (2, True)


async def test_unreadable_and_failed_verdicts_are_kept_apart(folder: Path) -> None:
    replies = iter(["No idea.", "None at all.", write_scores(8, 8), Answer(status=400)])

    def judge(first: str, second: str) -> Plan:
        return next(replies, judge_by_length(first, second))

    async with Endpoint([serve(judge)]) as endpoint:
        command = build_command(endpoint, "--concurrency", "1", "--json")
        code, out, _ = await run(folder, *command)
        (compared,) = json.loads(out)["comparisons"]
        assert code == 4
        assert compared["counts"] == {"draw": 0, "loss": 0, "win": TASKS - 2, "unreadable": 1}
        assert compared["unreadable"] == 1
        assert compared["bounds"] == {"low": 2 / 3, "high": 1.0}
        again = [
            request.json["messages"] for request in endpoint.requests if len(request.json["messages"]) == 4
        ]
        assert [messages[2]["content"] for messages in again] == ["No idea."]
        # Both are failures, which say what came.
        verdicts = folder / "run.agents" / "verdicts.openai-judge.db"
        _, told, _ = await run(folder, "failures", str(verdicts))
        assert "reply cannot be read: None at all." in told
        code, out, _ = await run(folder, *command, "--retry-failed")
        (compared,) = json.loads(out)["comparisons"]
        assert (code, sum(compared["counts"].values())) == (0, TASKS)
        assert (compared["counts"]["unreadable"], compared["unreadable"]) == (0, 1)
        asked = len(endpoint.requests)
        assert (await run(folder, *command, "--retry-failed"))[0] == 0
        assert len(endpoint.requests) == asked
    async with open_store(verdicts, read_only=True) as store:
        texts = [turn.text async for session in store.sessions() for turn in session.turns]
    assert "None at all." in texts


async def test_a_judge_without_a_verdict_or_with_nothing_but_ties_gives_no_result(folder: Path) -> None:
    said = "Both are fine."
    async with Endpoint([serve(lambda *_: said)]) as endpoint:
        code, out, err = await run(folder, *build_command(endpoint))
        assert (code, "No winner: no verdict can be read." in " ".join(out.split())) == (4, True), err
        assert "cannot be read; --retry-failed asks again" in " ".join(err.split())
        said = write_scores(10, 10)
        code, out, err = await run(folder, *build_command(endpoint, "--retry-failed"))
        assert code == 0, err
        said = write_scores(10, 10)
        assert re.search(r"To vote on them: bactrian explore \S+(?<!solutions)\.db --edit", err)
        code, out, err = await run(folder, *build_command(endpoint, "--out", "ties"))
    assert code == 0, err
    assert re.search(r"To vote on them: bactrian explore \S*ties/solutions\.db --edit", err)
    told = "No result: openai:judge gave both the same score in each of its 8 replies."
    assert told in " ".join(out.split())


@pytest.mark.slow
async def test_a_kill_loses_no_answer_and_asks_none_twice(folder: Path) -> None:
    async with Endpoint([serve(judge_by_length)]) as endpoint:
        command = build_command(endpoint, "--concurrency", "2", "--json")
        killed = 0
        for stop_after in (3, 9, 17):
            process = Command(command, folder, clean_environment())
            while len(endpoint.requests) < stop_after and process.returncode is None:
                await asyncio.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            await process.communicate()
            killed += 1
        code, out, err = await run(folder, *command)
        assert code == 0, err
        # A kill may repeat what was in flight, two requests at most, and nothing else.
        assert 4 * TASKS <= len(endpoint.requests) <= 4 * TASKS + 2 * killed
    (compared,) = json.loads(out)["comparisons"]
    assert compared["counts"]["win"] == TASKS


@pytest.mark.slow
async def test_a_judge_that_hangs_ends_the_command_and_its_run_goes_on_later(folder: Path) -> None:
    async with Endpoint([serve(lambda *_: Raw(ending="hang"))]) as endpoint:
        code, out, err = await run(folder, *build_command(endpoint, "--timeout", "0.5", tasks=2))
        assert (code, "win rate" in out) == (1, False), err
        assert "No verdict was given yet" in err
        (verdicts,) = (path for path in folder.rglob("verdicts*.db"))
        told = await asyncio.to_thread(bactrian, "failures", str(verdicts), cwd=folder)
        assert " not answered; `bactrian resume " in told.stdout
        address = endpoint.url
    async with Endpoint([serve(judge_by_length)]) as endpoint:
        assert endpoint.url != address
        code, out, err = await run(folder, *build_command(endpoint, "--json", tasks=2))
        assert code == 0, err
        assert sum(find_answers(request) is None for request in endpoint.requests) == 0


async def test_a_limit_of_tokens_holds_for_solutions_and_judges_together(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        answers = find_answers(request)
        text = solve(request) if answers is None else write_scores(8, 5)
        return {**completion(text), "usage": {"prompt_tokens": 1000, "completion_tokens": 500}}

    async with Endpoint([reply]) as endpoint:
        command = build_command(endpoint, "--concurrency", "1")
        code, _, err = await run(folder, *command, "--max-tokens", "20000")
        assert code == 3, err
        asked = len(endpoint.requests)
        assert 2 * TASKS <= asked < 4 * TASKS
        code, _, err = await run(folder, *command, "--max-tokens", "60000")
        assert code == 0, err
        assert len(endpoint.requests) == 4 * TASKS


async def test_a_forecast_of_both_runs_asks_nothing(folder: Path) -> None:
    async with Endpoint([solve]) as endpoint:
        code, out, err = await run(folder, *build_command(endpoint, "--forecast", "--json"))
        assert code == 0, err
        _, with_cut, _ = await run(folder, *build_command(endpoint, "--forecast", "--json", "--judge-cut"))
        assert endpoint.requests == []
    calls = [json.loads(line)["calls"]["value"] for line in out.splitlines()]
    assert calls == [2 * TASKS, 2 * TASKS]
    assert [json.loads(line)["calls"]["value"] for line in with_cut.splitlines()] == calls
    assert "whole conversation" not in out  # Nothing is sent twice.
    assert not (folder / "run.agents").exists()


async def test_a_forecast_counts_the_prompts_that_are_on_disk(folder: Path) -> None:
    def count(requests: Sequence[Received]) -> int:
        """The tokens of the prompts, one for every four bytes of a message's JSON."""
        texts = ([message["content"] for message in request.json["messages"]] for request in requests)
        return sum(
            sum(len(json.dumps(text, ensure_ascii=False).encode()) for text in each) // 4 for each in texts
        )

    async with Endpoint([serve(judge_by_length)]) as endpoint:
        command = build_command(endpoint)
        _, before, _ = await run(folder, *command, "--forecast", "--json")
        code, _, err = await run(folder, *command)
        assert code == 0, err
        asked = list(endpoint.requests)
        verdicts = [request for request in asked if find_answers(request) is not None]
        other = [part.replace("openai:judge", "openai:other") for part in command]
        _, after, _ = await run(folder, *other, "--forecast", "--json")
    solutions, judgements = (
        json.loads(shown.splitlines()[which])["prompt_tokens"] for shown, which in ((before, 0), (after, 1))
    )
    assert solutions["value"] == pytest.approx(
        count([request for request in asked if find_answers(request) is None]), rel=0.02
    )
    assert solutions["high"] == pytest.approx(1.25 * solutions["value"])
    assert judgements["value"] == pytest.approx(count(verdicts), rel=0.02)


async def test_a_judge_that_cannot_be_asked_is_refused_before_anything_is_paid_for(folder: Path) -> None:
    async with Endpoint([solve]) as endpoint:
        code, _, err = await run(folder, *build_command(endpoint, "--judge", "anthropic:judge"))
        assert (code, endpoint.requests) == (1, [])
    assert "Set ANTHROPIC_API_KEY" in err


async def test_a_run_without_endings_is_refused(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("001", code=None)])
    code, _, err = await run(tmp_path, "evaluate", "agents", "run.db", "--model", "openai:any")
    assert code == 2
    assert "no conversation that has ended" in err


async def test_each_side_is_extracted_by_who_wrote_it_and_the_report_says_who(folder: Path) -> None:
    for name, author in (("large", "openai:gpt-4o"), ("mini", "openai:gpt-4o-mini")):
        sampling = {"assistant": Sampling(0.9, max_tokens=99, extra={"top_k": 40})}
        origin = replace(ORIGIN, models={"user": author, "assistant": author}, sampling=sampling)
        made = [session(f"00{number}", task="Build a tea timer", provenance=origin) for number in range(1, 5)]
        await make_run(folder / f"{name}.db", made)
    async with Endpoint([serve(judge_by_length)]) as endpoint:
        compare = (
            "evaluate",
            "agents",
            "mini.db",
            "--against",
            "large.db",
            "--base-url",
            endpoint.url,
            "--json",
        )
        code, out, err = await run(folder, *compare, "--judge", "openai:gpt-4o")
        assert code == 0, err
        asked = [request.json["model"] for request in endpoint.requests[:8]]
        assert sorted(asked) == ["gpt-4o"] * 4 + ["gpt-4o-mini"] * 4
        used = {
            tuple(request.json.get(name) for name in ("temperature", "top_k", "max_tokens"))
            for request in endpoint.requests
        }
        assert used == {(0.9, 40, None), (0.0, None, None)}
        _, shown, _ = await run(folder, *compare[:-1], "--judge", "openai:gpt-4o")
        assert "mini wins" in shown.partition("Draw")[0]
        assert "win rate of mini " in shown
    report = json.loads(out)
    assert report["makers"]["mini"] == "written by openai:gpt-4o-mini, extracted by openai:gpt-4o-mini"
    assert report["makers"]["large"] == "written by openai:gpt-4o, extracted by openai:gpt-4o"
    related = [warning for warning in report["warnings"] if "of the family" in warning]
    assert ["which wrote mini" in warning or "which wrote large" in warning for warning in related] == [
        True
    ] * 2
    assert any("3 of 4 tasks are copies of others" in warning for warning in report["warnings"])


async def test_a_solution_that_is_cut_is_counted_and_judged_only_on_request(folder: Path) -> None:
    def reply(request: Received) -> Plan:
        cut = "tea timer 3 " in request.json["messages"][-1]["content"]
        answers = find_answers(request)
        return (
            completion(solve(request), finish="length" if cut else "stop")
            if answers is None
            else judge_by_length(*answers)
        )

    async with Endpoint([reply]) as endpoint:
        (folder / "names.txt").write_text("002_001_001\n003_001_001\n")
        command = build_command(
            endpoint, "--json", "--only", "names.txt", "--reply-length", "9", "--extractor-reply-length", "8"
        )
        code, out, err = await run(folder, *command)
        assert (code, len(endpoint.requests)) == (0, 6), err
        report = json.loads(out)
        assert report["comparisons"][0]["counts"]["win"] == 1
        assert any(
            "(Role-play) are cut" in text and "only with --judge-cut" in text for text in report["warnings"]
        )
        lengths = [
            request.json.get("max_tokens") for request in endpoint.requests if not find_answers(request)
        ]
        assert sorted(lengths) == [8, 8, 9, 9]
        code, out, err = await run(folder, *command, "--judge-cut")
        assert (code, len(endpoint.requests)) == (0, 8), err
        report = json.loads(out)
        assert report["comparisons"][0]["counts"]["win"] == 2
        assert any("(Role-play) are cut" in text and "were judged" in text for text in report["warnings"])


def test_the_papers_figures_stand_only_beside_what_was_measured_as_they_are() -> None:
    beside = ("extraction", "single_shot")
    assert [row["win"] for row in find_figures(beside, "ai-society")] == [73.0]
    assert [row["win"] for row in find_figures(beside, "code")] == [76.0]
    assert [row["win"] for row in find_figures(beside, "ai-society", people=True)] == [76.3]
    assert find_figures(beside, "flights") == []
    assert find_figures(("extraction", "against"), "ai-society") == []
    assert [row["win"] for row in find_figures(("extraction", "against"), "ai-society", ablated=True)] == [
        75.0
    ]
    assert find_stage_figures(("first", "second"), "math") == []
    assert len(find_stage_figures(("base", "ai-society"), "math")) == 1


async def test_the_papers_figures_are_no_reason_to_leave_out_the_rest(folder: Path) -> None:
    async with Endpoint([serve(judge_by_length)]) as endpoint:
        command = build_command(
            endpoint, "--paper", "--report", "page.html", "--dilemma", "votes.zip", tasks=2
        )
        code, out, err = await run(folder, *command)
    assert (code, "No figure of the paper was measured as this comparison is" in err) == (0, True), err
    assert "win rate" in out
    assert "no 95 % interval: only 2 tasks, and an interval needs 10" in out
    assert (folder / "page.html").exists()
    assert (folder / "votes.zip").exists()
    assert "–" not in out.replace("0.0–", "").replace("–100.0", "")


def test_the_papers_figures_are_shown_with_what_they_stand_beside(tmp_path: Path) -> None:
    done = bactrian("evaluate", "agents", "--paper", cwd=tmp_path)
    assert done.returncode == 0
    assert "Table 8" in done.stdout
    assert "76.3" in done.stdout
