"""``bactrian evaluate emergence`` with judges: the stages of a training in the layout of table 2."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from bactrian.errors import InputError
from bactrian.evaluate.comparison import load_paper
from bactrian.evaluate.known_answers import pair_stages, read_stages
from bactrian.models.local.weights import BUILT_IN, find_cache_folder
from bactrian.models.open import ModelOptions
from tests.helpers.command import Command, bactrian, clean_environment
from tests.helpers.endpoint import Endpoint, Plan, Received

STAGES = tuple(f"openai:stage-{number}" for number in range(5))
ASKED = 2
"""Questions of each of two sets."""
CALLS = 2 * ASKED * (5 + 2 * 5)
"""Answers of five stages, and five pairs in both orders."""


def reply(request: Received) -> Plan:
    """A stage tells its number; the judge scores by it, and finds the first two stages equally bad."""
    text = request.json["messages"][-1]["content"]
    if request.json["model"] != "judge":
        return f"I am number {request.json['model'][-1]}."
    first, second = (max(1, int(digit)) for digit in re.findall(r"I am number (\d)\.", text))
    return json.dumps({"reason": "By number.", "assistant_1": 2 * first, "assistant_2": 2 * second})


def build_command(endpoint: Endpoint, *options: str) -> tuple[str, ...]:
    sets = ("--questions", "ai-society", "--questions", "code", "--limit", str(ASKED))
    judge = ("--judge", "openai:judge", "--base-url", endpoint.url, "--concurrency", "2")
    return ("evaluate", "emergence", *STAGES, *sets, *judge, *options)


async def run(folder: Path, *command: str) -> tuple[int, str, str]:
    done = await asyncio.to_thread(lambda: bactrian(*command, cwd=folder))
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
async def test_stages_stand_beside_the_papers_rows_after_a_kill_and_nothing_is_asked_twice(
    tmp_path: Path,
) -> None:
    async with Endpoint([reply]) as endpoint:
        command = build_command(endpoint)
        for stop_after in (5, 25):
            process = Command(command, tmp_path, clean_environment())
            while len(endpoint.requests) < stop_after and process.returncode is None:
                await asyncio.sleep(0.005)
            process.send_signal(signal.SIGKILL)
            await process.communicate()
        code, shown, errors = await run(tmp_path, *command)
        assert code == 0, errors
        _, out, _ = await run(tmp_path, *command, "--json", "--report", "page.html")
        # A kill may repeat the two requests in flight, and nothing else.
        assert CALLS <= len(endpoint.requests) <= CALLS + 4
    report: dict[str, Any] = json.loads(out)
    assert len(report["rows"]) == 2 * 5
    first = report["rows"][0]
    assert (first["questions"], first["first"], first["second"]) == ("ai-society", "Base", "+ AI Society")
    assert (first["draw"], first["draws"]["bad"], first["second_rate"]["value"]) == (ASKED, ASKED, 0.5)
    assert first["paper"] == {"draw": 0, "first_wins": 6, "second_wins": 14}
    assert [row["second_wins"] for row in report["rows"][1:5]] == [ASKED] * 4
    strengths = [report["strengths"]["openai:judge"][name]["value"] for name in report["titles"]]
    assert strengths[1:] == sorted(strengths[1:])
    assert strengths[0] == pytest.approx(strengths[1], abs=0.2)
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count("<svg") == 3  # two sets, and the strengths
    assert '<td class="n">0 / 6 / 14</td>' in page  # the paper's row
    assert f'<td class="n">0 / 0 / {ASKED}</td>' in page  # draws that are both bad
    assert re.search(r"code\s+Base.*Base +\+ Science +0 +0 +2 +0/0/20", shown, re.S)


async def test_other_questions_in_the_same_folder_are_refused_and_the_answers_kept(tmp_path: Path) -> None:
    questions = tmp_path / "mine.jsonl"
    questions.write_text('{"text": "Why?"}\n')
    async with Endpoint([reply]) as endpoint:
        options = ("--questions", "mine.jsonl", "--judge", "openai:judge", "--base-url", endpoint.url)
        command = ("evaluate", "emergence", "base=openai:stage-0", "all=openai:stage-4", *options, "--json")
        code, out, errors = await run(tmp_path, *command)
        assert code == 0, errors
        asked = len(endpoint.requests)
        assert asked == 4
        questions.write_text('{"text": "How?"}\n')
        code, _, errors = await run(tmp_path, *command)
        assert (code, "another plan" in errors, len(endpoint.requests)) == (2, True, asked)
        questions.write_text('{"text": "Why?"}\n')
        assert (await run(tmp_path, *command))[1] == out


def judge_all_alike(request: Received) -> Plan:
    judged = request.json["model"] == "judge"
    return json.dumps({"assistant_1": 5, "assistant_2": 5, "reason": "Alike."}) if judged else "I know it."


@pytest.mark.slow
async def test_weights_that_were_moved_are_the_same_stage_and_others_are_another(tmp_path: Path) -> None:
    weights = tmp_path / "here/model.gguf"
    weights.parent.mkdir()
    weights.symlink_to(find_cache_folder() / BUILT_IN.file)
    async with Endpoint([judge_all_alike]) as endpoint:

        async def compare(stage: Path) -> tuple[int, str, str]:
            asked = ("--questions", "code", "--limit", "1", "--reply-length", "4", "--judge-cut")
            models = (f"base=local:{stage}", "code=openai:stage-1", "--judge", "openai:judge")
            options = ("--base-url", endpoint.url, "--out", "compared", "--json")
            return await run(tmp_path, "evaluate", "emergence", *models, *asked, *options)

        code, report, errors = await compare(weights)
        assert (code, len(endpoint.requests)) == (0, 3), errors
        weights = weights.parent.rename(tmp_path / "there") / weights.name
        code, again, errors = await compare(weights)
        assert (code, len(endpoint.requests)) == (0, 3), errors
        assert json.loads(again)["rows"] == json.loads(report)["rows"]
        other = tmp_path / "other.gguf"
        other.write_bytes(weights.read_bytes() + bytes(32))
        code, _, errors = await compare(other)
        assert (code, "another plan" in errors, len(endpoint.requests)) == (2, True, 3), errors


async def test_a_judge_that_dies_loses_nothing(tmp_path: Path) -> None:
    async with Endpoint([reply]) as endpoint:
        options = ("--questions", "math", "--limit", "1", "--base-url", endpoint.url)
        command = ("evaluate", "emergence", "openai:stage-0", "openai:stage-1", *options)
        dead = "openai:judge@http://127.0.0.1:9/v1"
        code, _, errors = await run(tmp_path, *command, "--judge", dead, "--timeout", "1")
        assert code in (1, 4)
        assert "Traceback" not in errors
        code, out, errors = await run(tmp_path, *command, "--judge", "openai:judge", "--json")
        assert code == 0, errors
        assert len(endpoint.requests) == 4
    assert json.loads(out)["rows"][0]["draw"] == 1


def test_the_pairs_are_those_of_table_2() -> None:
    stages = read_stages(STAGES, ModelOptions())
    table = [row for row in load_paper()["pairs"] if row["table"] == "Table 2"]
    assert pair_stages(stages) == [tuple(row["pair"]) for row in table]
    for row in table:
        totals = {name: sum(counts) for name, counts in row["sets"].items()}
        assert totals == {"ai-society": 20, "code": 20, "math": 20, "science": 60}
    assert pair_stages(stages[:2]) == [("base", "ai-society")]


def test_stages_have_names_of_their_own(tmp_path: Path) -> None:
    stages = read_stages(("base=openai:a", "openai:b", "all=openai:c"), ModelOptions())
    assert [(stage.name, stage.model) for stage in stages] == [
        ("base", "openai:a"),
        ("ai-society", "openai:b"),
        ("all", "openai:c"),
    ]
    for models, told in ((("openai:a",), "alone"), (("x=openai:a", "x=openai:b"), "same name")):
        with pytest.raises(InputError, match=told):
            read_stages(models, ModelOptions())
    with pytest.raises(InputError, match="missing.gguf"):
        read_stages(("openai:a", f"local:{tmp_path}/missing.gguf"), ModelOptions())
