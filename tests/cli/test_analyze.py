"""The command ``bactrian analyze`` as a person and a program meet it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bactrian import open_run
from tests.helpers.command import bactrian
from tests.helpers.runs import make_run, session

FLAKE = (
    "Instruction: Design the dial of the timer.\nInput: None",
    "Solution: I will get started on it right away.\nNext request.",
)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sessions = [
        session("001_001_001", rounds=3),
        session("001_002_001", texts=FLAKE, user="Guest", code="max_messages"),
        session("001_003_001", user="Nurse", code=None),
    ]
    return asyncio.run(make_run(tmp_path / "tea.db", sessions))


def test_a_person_reads_endings_behaviours_and_names(tmp_path: Path, run: Path) -> None:
    done = bactrian("analyze", "tea.db", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tea: 3 sessions (3 role-play)" in done.stdout
    assert "flake_reply" in done.stdout
    assert "33.3 % (–)" in done.stdout
    assert "Not seen" in done.stdout
    assert "001_002_001 (Programmer × Guest), 2 messages, max_messages: flake_reply 1" in done.stdout
    assert "Not ended: 1," in done.stdout


def test_a_program_reads_one_object(tmp_path: Path, run: Path) -> None:
    done = bactrian("analyze", "tea.db", "--json", cwd=tmp_path)
    report = json.loads(done.stdout)
    assert (report["run"], report["sessions"], report["messages"]) == ("tea", 3, 7 + 2 + 4)
    assert report["behaviours"]["flake_reply"]["sessions"] == 1
    assert report["open"] == 1


def test_findings_are_lines_with_the_evidence(tmp_path: Path, run: Path) -> None:
    done = bactrian("analyze", "tea.db", "--findings", "found.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = (tmp_path / "found.jsonl").read_text("utf-8").splitlines()
    report = json.loads(line)
    keys = ["session", "turn", "behaviour", "confidence", "quote", "reason", "possible", "confirmed"]
    assert list(report) == keys
    assert (report["session"], report["turn"], report["behaviour"]) == ("001_002_001", 2, "flake_reply")
    assert report["quote"] == "I will get started on it right away."


def test_the_page_is_one_file(tmp_path: Path, run: Path) -> None:
    done = bactrian("analyze", "tea.db", "--report", "tea.html", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tea.html").read_text("utf-8").startswith("<!doctype html>")
    assert not list(tmp_path.glob("*.bactrian-part"))


def test_three_runs_are_compared(tmp_path: Path, run: Path) -> None:
    asyncio.run(make_run(tmp_path / "good.db", [session(str(n), rounds=3) for n in range(5)]))
    asyncio.run(make_run(tmp_path / "best.db", [session(str(n), rounds=1) for n in range(12)]))
    names = ("tea.db", "good.db", "best.db")
    written = bactrian("analyze", *names, "--json", "--report", "all.html", cwd=tmp_path)
    assert written.returncode == 0, written.stderr
    report = json.loads(written.stdout)
    assert [run["run"] for run in report["runs"]] == ["tea", "good", "best"]
    assert [run["endings"]["task_done"]["after"] for run in report["differences"]] == [1.0, 1.0]
    assert "flake replies" in (tmp_path / "all.html").read_text("utf-8")


def test_three_runs_stand_side_by_side(tmp_path: Path, run: Path) -> None:
    asyncio.run(make_run(tmp_path / "good.db", [session(str(n), rounds=3) for n in range(5)]))
    asyncio.run(make_run(tmp_path / "best.db", [session(str(n), rounds=1) for n in range(12)]))
    shown = bactrian("analyze", "tea.db", "good.db", "best.db", cwd=tmp_path)
    (flakes,) = (line for line in shown.stdout.splitlines() if "flake replies" in line)
    assert flakes.split()[-3:] == ["0.33", "0.00", "0.00"]
    (done,) = (line for line in shown.stdout.splitlines() if line.split()[:1] == ["task_done"])
    assert done.split()[-2:] == ["100", "%"]


def test_two_runs_are_compared(tmp_path: Path, run: Path) -> None:
    asyncio.run(make_run(tmp_path / "good.db", [session(str(n), rounds=3) for n in range(5)]))
    done = bactrian("analyze", "tea.db", "good.db", "--json", "--report", "both.html", cwd=tmp_path)
    comparison = json.loads(done.stdout)
    assert [run["run"] for run in comparison["runs"]] == ["tea", "good"]
    assert comparison["differences"]["endings"]["task_done"]["difference"] == pytest.approx(1 / 2)
    assert "Differences are good minus tea" in (tmp_path / "both.html").read_text("utf-8")


def test_the_differences_of_two_runs_are_shown(tmp_path: Path, run: Path) -> None:
    asyncio.run(make_run(tmp_path / "good.db", [session(str(n), rounds=3) for n in range(5)]))
    shown = bactrian("analyze", "tea.db", "good.db", cwd=tmp_path)
    assert "tea and good: 3 and 5 sessions. Differences are good minus tea." in shown.stdout
    assert "No intervals (95 %): only 5 conversations, and an interval needs 10." in shown.stdout
    assert "+50.0" in shown.stdout
    assert "cost of a finished conversation" in shown.stdout
    roles = [session(str(n), user=f"Cook {n}") for n in range(7)]
    asyncio.run(make_run(tmp_path / "roles.db", roles))
    listed = bactrian("analyze", "roles.db", cwd=tmp_path).stdout
    assert "2 user roles more: --json has all." in listed
    assert "2 pairs more: --json has all." in listed


@pytest.mark.parametrize(("flag", "name"), [("--findings", "mine.jsonl"), ("--report", "mine.html")])
def test_a_file_that_is_there_is_kept(tmp_path: Path, run: Path, flag: str, name: str) -> None:
    (tmp_path / name).write_text("mine")
    done = bactrian("analyze", "tea.db", flag, name, cwd=tmp_path)
    assert done.returncode == 2
    assert "--overwrite" in done.stderr
    assert (tmp_path / name).read_text() == "mine"
    assert bactrian("analyze", "tea.db", flag, name, "--overwrite", cwd=tmp_path).returncode == 0
    assert (tmp_path / name).read_text() != "mine"


@pytest.mark.parametrize("words", [["--report", "tea.db"], ["--findings", "one", "--report", "one"]])
def test_the_run_itself_and_one_file_for_both_are_refused(
    tmp_path: Path, run: Path, words: list[str]
) -> None:
    before = run.read_bytes()
    done = bactrian("analyze", "tea.db", *words, "--overwrite", cwd=tmp_path)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert run.read_bytes() == before


def test_a_run_that_is_not_there_or_empty_is_explained(tmp_path: Path) -> None:
    missing = bactrian("analyze", "none.db", cwd=tmp_path)
    assert (missing.returncode, "Traceback" in missing.stderr) == (2, False)
    asyncio.run(make_run(tmp_path / "empty.db", []))
    empty = bactrian("analyze", "empty.db", "--report", "empty.html", cwd=tmp_path)
    assert empty.returncode == 2
    assert "has no session" in empty.stderr
    assert not list(tmp_path.glob("*.html*"))


def test_a_run_is_read_as_data_frames(run: Path) -> None:
    tea = open_run(run)
    assert tea.sessions()["session"].to_list() == ["001_001_001", "001_002_001", "001_003_001"]
    assert tea.messages().height == 7 + 2 + 4
    assert tea.findings()["behaviour"].to_list() == ["flake_reply"]


async def test_data_frames_can_be_had_inside_an_event_loop_as_notebooks_have_one(tmp_path: Path) -> None:
    assert open_run(await make_run(tmp_path / "tea.db", [session()])).sessions().height == 1


def test_an_empty_run_has_frames_with_columns_and_no_rows(tmp_path: Path) -> None:
    empty = open_run(asyncio.run(make_run(tmp_path / "empty.db", [])))
    assert (empty.sessions().height, empty.findings().height) == (0, 0)
    assert "specified_task" in empty.sessions().columns


@pytest.mark.parametrize("name", ["sub/../tea.db", "linked/tea.db", "tea.db-wal", "tea.db.lock"])
@pytest.mark.parametrize("flags", [["--report"], ["--findings"]])
def test_the_run_is_never_replaced_by_what_is_written_about_it(
    tmp_path: Path, name: str, flags: list[str]
) -> None:
    run = asyncio.run(make_run(tmp_path / "tea.db", [session()]))
    (tmp_path / "sub").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path)
    (tmp_path / "link.db").symlink_to(run)
    before = run.read_bytes()
    for argument in ("tea.db", "link.db"):
        done = bactrian("analyze", argument, *flags, name, "--overwrite", cwd=tmp_path)
        assert done.returncode == 2
        assert any(words in done.stderr for words in ("belongs to", "input file", "not written as"))
        done = bactrian(
            "export", argument, "--format", "messages", "--out", name, "--overwrite", cwd=tmp_path
        )
        assert done.returncode == 2
    assert run.read_bytes() == before
