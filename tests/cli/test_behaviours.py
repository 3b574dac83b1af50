"""``bactrian behaviours``: list, show, train, label."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from bactrian.analyze.behaviours import read_behaviours
from bactrian.records.run import BEHAVIOURS
from tests.helpers.command import bactrian
from tests.helpers.runs import make_run, session
from tests.helpers.terminal import at_a_terminal

SORRY = (
    "Sorry about that, the {} was my mistake.",
    "I apologise for the {}.",
    "My apologies, the {} should have been better.",
    "I am so sorry for the {}!",
)
PLAIN = (
    "The {} has three parts: a dial, a bell and a spring.",
    "Put the {} on the left side.",
    "A {} costs about 12 euros.",
    "Paint the {} red and let it dry for two hours.",
)
THINGS = ("timer", "shelf", "garden", "letter", "poster", "menu", "bridge", "song")


def write_data(path: Path) -> None:
    lines: list[str] = []
    for number, thing in enumerate(THINGS * 3):
        for label, texts in (("apology", SORRY), (None, PLAIN)):
            reply = texts[number % 4].format(thing)
            turns = [
                {"speaker": "user", "text": f"Instruction: Describe the {thing}.", "labels": []},
                {"speaker": "assistant", "text": reply, "labels": [label] if label else []},
            ]
            lines.append(json.dumps({"author": f"author {number % 4}", "turns": turns}))
    path.write_text("\n".join(lines), "utf-8")


def test_all_behaviours_are_listed_and_defined(tmp_path: Path) -> None:
    listed = bactrian("behaviours", cwd=tmp_path)
    assert listed.returncode == 0, listed.stderr
    assert [line.split()[0] for line in listed.stdout.splitlines()] == [*BEHAVIOURS, "code_fails"]
    assert "promises" in bactrian("behaviours", "show", "flake_reply", cwd=tmp_path).stdout
    unknown = bactrian("behaviours", "show", "flake", cwd=tmp_path)
    assert unknown.returncode == 2
    assert "flake_reply" in unknown.stderr


@pytest.mark.slow
async def test_a_behaviour_is_learned_from_examples_and_found_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_data(tmp_path / "data.jsonl")
    home = str(tmp_path / "home")
    trained = bactrian("behaviours", "train", "data.jsonl", cwd=tmp_path, BACTRIAN_DATA=home)
    assert trained.returncode == 0, trained.stderr
    assert "4 parts left out in turn" in trained.stdout
    assert "apology" in bactrian("behaviours", cwd=tmp_path, BACTRIAN_DATA=home).stdout
    again = bactrian("behaviours", "train", "data.jsonl", cwd=tmp_path, BACTRIAN_DATA=home)
    assert again.returncode == 2
    assert "left out" not in again.stderr + again.stdout, "it is refused before anything is learned"
    texts = ("Instruction: Describe the lamp.", "I apologise for the lamp, I am so sorry.")
    plain = ("Instruction: Describe the lamp.", "The lamp has two parts: a foot and a shade.")
    await make_run(tmp_path / "run.db", [session("1", texts=texts), session("2", texts=plain)])
    analyzed = bactrian("analyze", "run.db", "--json", cwd=tmp_path, BACTRIAN_DATA=home)
    assert json.loads(analyzed.stdout)["behaviours"]["apology"]["sessions"] == 1
    monkeypatch.setenv("BACTRIAN_DATA", home)
    (behaviour,) = read_behaviours(["apology"])
    assert behaviour.code == "apology"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "not a labelled conversation"),
        ('{"turns": [{"speaker": "user", "text": "Hi", "labels": ["rude"]}]}', "Too few turns"),
        ('{"turns": [{"speaker": "user", "text": "Hi", "labels": []}]}', "no behaviour"),
    ],
)
def test_data_from_which_nothing_can_be_learned_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "data.jsonl").write_text(text, "utf-8")
    refused = bactrian("behaviours", "train", "data.jsonl", cwd=tmp_path)
    assert refused.returncode == 2
    assert message in refused.stderr


async def test_what_a_person_says_of_a_finding_in_a_terminal_counts_in_the_run(tmp_path: Path) -> None:
    texts = (
        "Instruction: Write a poem on rain.\nInput: None",
        "Of course! Rain is a lovely topic for a poem. You want it on rain, and rain it shall be.",
    )
    await make_run(tmp_path / "run.db", [session("1", texts=texts)])
    code, seen = at_a_terminal(
        tmp_path,
        ["behaviours", "label", "run.db"],
        keys=[(b"[y/n/Enter/q] ", b"perhaps\n"), (b"Answer y", b"n\n")],
    )
    assert code == 0, seen
    assert b"Answer y (shows it)" in seen
    assert b"0 of 1 finding right." in seen
    flakes = json.loads(bactrian("analyze", "run.db", "--json", cwd=tmp_path).stdout)["behaviours"][
        "flake_reply"
    ]
    assert (flakes["sessions"], flakes["read"]["found"]) == (0, 1)
    code, seen = at_a_terminal(tmp_path, ["behaviours", "label", "run.db"], keys=[])
    assert code == 0, seen
    assert b"No finding of flake_reply in this run is unread." in seen


async def test_labelling_without_a_terminal_says_so(tmp_path: Path) -> None:
    await make_run(tmp_path / "talk.db", [session()])
    refused = await asyncio.to_thread(bactrian, "behaviours", "label", "talk.db", cwd=tmp_path)
    assert refused.returncode == 2
    assert "terminal" in refused.stderr
