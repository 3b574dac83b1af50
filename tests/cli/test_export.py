"""The commands ``bactrian export`` and ``bactrian import`` as a person and a program meet them."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from tests.helpers.command import bactrian
from tests.helpers.exports import lines
from tests.helpers.runs import answer, make_run, session


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sessions = [
        session("001_001_001", rounds=3),
        session("001_002_001", user="Guest", code="max_messages"),
        session("001_003_001", user="Nurse", code=None),
    ]
    return asyncio.run(make_run(tmp_path / "tea.db", sessions))


def test_the_data_is_written_and_what_was_left_out_is_said(tmp_path: Path, run: Path) -> None:
    done = bactrian("export", "tea.db", "--format", "messages", "--out", "tea.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "tea.jsonl: messages, 2 rows from 2 sessions with 11 messages\n"
    assert "Left out: 1 × unfinished" in done.stderr
    assert "The run is incomplete" in done.stderr
    assert len(lines(tmp_path / "tea.jsonl")) == 2


def test_json_is_the_manifest_and_nothing_else(tmp_path: Path, run: Path) -> None:
    done = bactrian(
        *(
            "export",
            "tea.db",
            "--format",
            "camel-chat",
            "--out",
            "tea.zip",
            "--only",
            "ending=task_done",
            "--json",
        ),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert made == json.loads((tmp_path / "tea.zip.manifest.json").read_bytes())
    assert made["filters"] == {"only_endings": ["task_done"]}
    assert made["counts"]["left_out"] == {"ending max_messages": 1, "unfinished": 1}


def test_every_flag_reaches_the_data(tmp_path: Path, run: Path) -> None:
    done = bactrian(
        *(
            "export",
            "tea.db",
            "--format",
            "messages",
            "--out",
            "tea",
            "--side",
            "user",
            "--drop",
            "ending=failed",
        ),
        *("--min-rounds", "1", "--dedup", "--redact", "--split", "validation=0.5", "--for", "axolotl"),
        *("--license", "cc0-1.0", "--unfinished", "--prompts", "ai-society"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    made = json.loads((tmp_path / "tea" / "manifest.json").read_bytes())
    assert made["side"] == "user"
    assert made["license"] == "cc0-1.0"
    assert made["split"] == {"by": "pair of roles", "validation": 0.5}
    assert made["filters"] == {
        "dedup": True,
        "min_rounds": 1,
        "rejected": ["ending=failed"],
        "unfinished": True,
    }
    assert made["redacted"] is True
    assert (tmp_path / "tea" / "tea.axolotl.yaml").exists()


@pytest.mark.parametrize("arguments", [["camel-chat"], ["messages", "--split", "validation=0.5"]])
def test_a_folder_never_has_the_name_of_a_file(tmp_path: Path, run: Path, arguments: list[str]) -> None:
    done = bactrian("export", run.name, "--out", "out.jsonl", "--format", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Name a folder: --out out" in done.stderr
    assert not list(tmp_path.glob("out*"))


def test_a_code_alone_says_its_kind(tmp_path: Path, run: Path) -> None:
    def count(name: str, *filters: str) -> str:
        bactrian("export", run.name, "--format", "messages", "--out", name, *filters, cwd=tmp_path)
        return (tmp_path / name).read_text("utf-8")

    assert count("short", "--drop", "role_flip") == count("long", "--drop", "finding=role_flip")
    assert count("one", "--only", "task_done") == count("other", "--only", "ending=task_done")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--format", "mesages"], "Did you mean 'messages'?"),
        (["--format", "camel-science"], "Formats for them: messages, sharegpt, alpaca, hf,"),
        (["--format", "preference"], "has no choices"),
        (["--format", "messages", "--only", "ending=done"], "There is no ending 'done'"),
        (["--format", "messages", "--only", "colour=red"], "is not a valid filter"),
        (["--format", "messages", "--only", "role_flip"], "3 not finding=role_flip"),
        (["--format", "trl"], "--format messages --for trl"),
        (["--format", "jsonl"], "Did you mean 'messages'?"),
        (["--format", "messages", "--drop", "finding=flip"], "Did you mean 'role_flip'?"),
        (["--format", "messages", "--split", "validation=2"], "is not a split"),
        (["--format", "messages", "--min-rounds", "9"], "No session is left to write"),
        (["--format", "messages", "--decontaminate", "nothing.jsonl"], "benchmark cannot be read"),
        (["--format", "csv", "--for", "trl"], "trl does not read csv"),
    ],
)
def test_a_wish_that_cannot_be_granted_is_explained_in_three_lines_and_writes_nothing(
    tmp_path: Path, run: Path, arguments: list[str], message: str
) -> None:
    done = bactrian("export", "tea.db", "--out", "out", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) <= 3
    assert "Traceback" not in done.stderr
    assert "never awaited" not in done.stderr
    assert not [path.name for path in tmp_path.iterdir() if "out" in path.name]


@pytest.mark.parametrize(("name", "message"), [("no.db", "no such run"), ("notes.txt", "not a run")])
def test_what_is_no_run_is_refused(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "notes.txt").write_text("notes" * 100)
    done = bactrian("export", name, "--format", "messages", "--out", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr


def test_an_export_is_taken_in_again_and_broken_files_are_named(tmp_path: Path, run: Path) -> None:
    bactrian("export", "tea.db", "--format", "camel-chat", "--out", "chats", cwd=tmp_path)
    (tmp_path / "chats" / "broken.json").write_text("{")
    done = bactrian("import", "chats", "--run", "back.db", "--made-by", "gpt-3.5-turbo", cwd=tmp_path)
    assert done.returncode == 4
    assert "Skipped broken.json: it is not JSON" in done.stderr
    assert done.stdout == "back.db: 2 conversations with 11 messages stored, 0 stored before, 1 skipped\n"
    again = bactrian("import", "chats", "--run", "back.db", "--json", cwd=tmp_path)
    report = json.loads(again.stdout)
    assert (report["stored"], report["already"], report["broken"]) == (0, 2, 1)
    done = bactrian("export", "back.db", "--format", "hf", "--out", "hub", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "gpt-3.5-turbo" in (tmp_path / "hub" / "README.md").read_text()


def test_an_import_of_nothing_makes_no_run(tmp_path: Path) -> None:
    done = bactrian("import", "nothing.zip", "--run", "new.db", cwd=tmp_path)
    assert done.returncode == 2
    assert "no such file" in done.stderr
    assert not (tmp_path / "new.db").exists()


def test_answers_become_camels_problems(tmp_path: Path) -> None:
    asyncio.run(make_run(tmp_path / "physics.db", [answer()]))
    done = bactrian("export", "physics.db", "--format", "camel-science", "--out", "physics.zip", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
