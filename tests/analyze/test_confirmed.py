"""What people and judges say of findings decides what counts, in reports and in filters."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from bactrian.api.stored_run import open_run
from bactrian.records.run import Behaviour, Confirmation, merge_answers
from bactrian.records.turn import Usage
from bactrian.store import open_store
from bactrian.train.training_data import ReadCounts, read_source
from bactrian.train.training_recipe import DataSource
from tests.helpers.command import bactrian
from tests.helpers.runs import make_run, session

ASK = "Instruction: Design the dial of the timer.\nInput: None"
ECHO = "Solution: Design the dial of the timer.\nNext request."
IN_SMALL_LETTERS = "solution: The dial has sixty marks and one hand of brass.\nNext request."


def answer(
    name: str, turn: int, behaviour: Behaviour, *, holds: bool | None, judge: str = "human"
) -> Confirmation:
    return Confirmation(name, turn, behaviour, judge, holds, "", Usage(), 0.0, judge)


def test_a_person_is_believed_more_than_a_judge_and_a_later_answer_more_than_an_earlier_one() -> None:
    answers = [
        answer("1", 2, "flake_reply", holds=False),
        answer("1", 2, "flake_reply", holds=True, judge="openai:judge"),
        answer("2", 2, "flake_reply", holds=True, judge="openai:judge"),
        answer("2", 2, "flake_reply", holds=False, judge="openai:other"),
        answer("3", 2, "flake_reply", holds=None, judge="openai:other"),
    ]
    assert merge_answers(answers) == {("1", 2, "flake_reply"): False, ("2", 2, "flake_reply"): False}


async def test_rejected_findings_do_not_count_and_confirmed_candidates_do(tmp_path: Path) -> None:
    sessions = [
        *(session(name, texts=[ASK, ECHO], code="max_messages") for name in ("1", "2")),
        session("3", texts=[ASK, IN_SMALL_LETTERS], code="max_messages"),
    ]
    await make_run(tmp_path / "dial.db", sessions)

    def read() -> dict[str, Any]:
        return json.loads(bactrian("analyze", "dial.db", "--json", cwd=tmp_path).stdout)["behaviours"]

    before = read()
    assert before["repeats_instruction"]["sessions"] == 2
    assert before["repeats_instruction"]["read"]["found"] == 0
    assert (before["missing_marker"]["sessions"], before["missing_marker"]["possible"]) == (0, 1)
    async with open_store(tmp_path / "dial.db") as store:
        await store.add_confirmation(answer("1", 2, "repeats_instruction", holds=False))
        await store.add_confirmation(answer("2", 2, "repeats_instruction", holds=True))
        await store.add_confirmation(answer("3", 2, "missing_marker", holds=True))
    after = read()
    repeats, missing = after["repeats_instruction"], after["missing_marker"]
    assert (repeats["sessions"], repeats["read"]["found"]) == (1, 2)
    assert repeats["read"]["precision"]["rate"] == 0.5
    assert (missing["sessions"], missing["read"]["confirmed_possible"]) == (1, 1)
    shown = bactrian("analyze", "dial.db", cwd=tmp_path).stdout
    assert "1 of 2" in shown
    assert "1 of 1 possible" in shown
    for code, left in (("repeats_instruction", {"1", "3"}), ("missing_marker", {"1", "2"})):
        words = ("--format", "messages", "--out", f"{code}.jsonl", "--drop", f"finding={code}")
        assert bactrian("export", "dial.db", *words, cwd=tmp_path).returncode == 0
        lines = (tmp_path / f"{code}.jsonl").read_text("utf-8").splitlines()
        assert {json.loads(line)["session"] for line in lines} == left


async def test_findings_in_files_tables_and_on_screen_are_those_that_count(tmp_path: Path) -> None:
    run = tmp_path / "dial.db"
    await make_run(run, [session(name, texts=[ASK, ECHO], code="max_messages") for name in ("1", "2")])
    async with open_store(run) as store:
        await store.add_confirmation(answer("1", 2, "repeats_instruction", holds=False))
    assert bactrian("analyze", "dial.db", "--findings", "found.jsonl", cwd=tmp_path).returncode == 0
    lines = map(json.loads, (tmp_path / "found.jsonl").read_text("utf-8").splitlines())
    said = {
        line["session"]: line["confirmed"] for line in lines if line["behaviour"] == "repeats_instruction"
    }
    assert said == {"1": False, "2": None}
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(lambda: open_run(run).findings()).result()
    assert found.filter(found["behaviour"] == "repeats_instruction")["session"].to_list() == ["2"]
    assert "repeats" not in bactrian("show", "dial.db", "1", cwd=tmp_path).stdout
    assert "repeats" in bactrian("show", "dial.db", "2", cwd=tmp_path).stdout


async def test_training_leaves_out_what_people_confirmed_and_uses_what_they_rejected(tmp_path: Path) -> None:
    run = tmp_path / "dial.db"
    await make_run(run, [session(name, texts=[ASK, ECHO], code="max_messages") for name in ("1", "2")])
    async with open_store(run) as store:
        await store.add_confirmation(answer("1", 2, "repeats_instruction", holds=False))
    counts = ReadCounts()
    source = DataSource(path=str(run), drop=("repeats_instruction",))
    used = [conversation.id async for conversation in read_source(source, counts)]
    assert used == ["dial:1"]
    assert counts.left_out == {"repeats_instruction": 1}
