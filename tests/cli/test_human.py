"""A person takes part in ``bactrian play``: over a pipe, and at a real pseudo-terminal."""

from __future__ import annotations

import asyncio
import json
import re
import shlex
from collections import Counter
from pathlib import Path

import pytest

import bactrian as bt
from bactrian.api.conversation import order_session
from bactrian.errors import InputError
from bactrian.explore.playing import LiveStage
from bactrian.options import Critic, PlayOptions
from bactrian.records.session import Session
from bactrian.roleplay.role_play import SessionOrder
from bactrian.store import open_store
from tests.helpers.command import bactrian, events
from tests.helpers.terminal import at_a_terminal

SCRIPT = {
    "user": [["Instruction: Boil.\nInput: None", "Instruction: Pour.\nInput: None"]] * 3
    + ["<CAMEL_TASK_DONE>"],
    "assistant": [["Solution: Hot.\nNext request.", "Solution: Cold.\nNext request."]] * 3,
}


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    (tmp_path / "script.json").write_text(json.dumps(SCRIPT))
    model = f"scripted:{tmp_path / 'script.json'}"
    return ["play", "tea", "--model", model, "--no-specify", "--run", "run.db"]


def stored(folder: Path) -> Session:
    async def read() -> Session:
        async with open_store(folder / "run.db", read_only=True) as store:
            (session,) = [session async for session in store.sessions()]
            return session

    return asyncio.run(read())


def test_a_person_plays_the_user_without_knowing_the_protocol(tmp_path: Path, command: list[str]) -> None:
    lines = b"Fill the pot\nInstruction: Wait.\\\nInput: ten minutes\n\ndone\n"
    done = bactrian(*command, "--as", "user", "--json", cwd=tmp_path, text=lines)
    assert done.returncode == 0, done.stderr
    spoken = [line for line in events(done.stdout) if line["event"] == "spoke"]
    assert [line["text"] for line in spoken] == [
        "Instruction: Fill the pot\nInput: None",
        "Solution: Hot.\nNext request.",
        "Instruction: Wait.\nInput: ten minutes",
        "Solution: Hot.\nNext request.",
        "<CAMEL_TASK_DONE>",
    ]
    assert {line["model"] for line in spoken[::2]} == {"human"}
    assert spoken[0]["usage"]["prompt_tokens"] == 0
    assert {line["seconds"] for line in spoken[::2]} == {0.0}, "a person may take any time"
    assert "Your instruction" in done.stderr


def test_a_person_plays_the_assistant(tmp_path: Path, command: list[str]) -> None:
    done = bactrian(
        *command, "--as", "assistant", "--json", cwd=tmp_path, text=b"It boils\nIt pours\nIt is tea\n"
    )
    assert done.returncode == 0, done.stderr
    texts = [line["text"] for line in events(done.stdout) if line["event"] == "spoke"]
    assert texts[1] == "Solution: It boils\nNext request."
    assert texts[-1] == "<CAMEL_TASK_DONE>"


def test_stop_ends_the_session_with_an_ending(tmp_path: Path, command: list[str]) -> None:
    done = bactrian(*command, "--as", "user", "--json", cwd=tmp_path, text=b"Fill the pot\nstop\n")
    assert done.returncode == 0, done.stderr
    ended = events(done.stdout)[-1]
    assert (ended["event"], ended["code"], ended["turn"]) == ("ended", "stopped", 2)
    ending = stored(tmp_path).ending
    assert ending is not None
    assert ending.code == "stopped"


@pytest.mark.system
@pytest.mark.parametrize("part", ["user", "critic"])
def test_a_part_that_a_person_took_on_a_page_is_asked_of_a_person_when_it_is_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.chdir(tmp_path)
    script = {**SCRIPT, "critic": ["Choice: 1\nReason: Good."] * 9}
    (tmp_path / "script.json").write_text(json.dumps(script))
    order = order_session(
        "tea",
        model="scripted:script.json",
        critic=Critic("Taster", proposals=2) if part == "critic" else None,
        options=PlayOptions(specify=False),
        run=tmp_path / "run.db",
    )
    assert isinstance(order, SessionOrder)

    async def play_on_a_page() -> None:
        stage = LiveStage("run", ("user", "assistant", "critic"), order, taken={part})
        await stage.start()
        for line in ("2", "2") if part == "critic" else ("Fill the pot",):
            while stage.question is None:
                await asyncio.sleep(0.01)
            stage.answer(line)
            await asyncio.sleep(0.05)
        while stage.question is None:
            await asyncio.sleep(0.01)
        await stage.stop()

    asyncio.run(play_on_a_page())
    before = len(stored(tmp_path).turns)
    alone = bactrian("resume", "run.db", "--json", cwd=tmp_path, text=b"")
    assert (alone.returncode, "The input has ended without an answer" in alone.stderr) == (1, True)
    assert f"A person played {part}, and is asked again" in alone.stderr
    assert len(stored(tmp_path).turns) == before, "no model took the part"
    with pytest.raises(InputError, match="No person can take part here"):
        bt.open_run("run.db").resume()
    lines = b"2\n2\nstop\n" if part == "critic" else b"Pour it\ndone\n"
    back = bactrian("resume", "run.db", "--json", cwd=tmp_path, text=lines)
    assert back.returncode == 0, back.stderr
    said = [
        line for line in events(back.stdout) if line["event"] in ("spoke", "chose") and not line.get("stored")
    ]
    if part == "user":
        assert [line["model"] for line in said] == ["human", "scripted:script.json", "human"]
    else:
        assert [line["model"] for line in said if line["event"] == "chose"] == ["human"] * 2


def test_a_session_that_lost_its_person_goes_on_with_the_same_command(
    tmp_path: Path, command: list[str]
) -> None:
    left = bactrian(*command, "--as", "user", "--json", cwd=tmp_path, text=b"Fill the pot\n")
    assert (left.returncode, "The input has ended" in left.stderr) == (1, True)
    assert "Traceback" not in left.stderr
    assert stored(tmp_path).ending is None
    back = bactrian(*command, "--as", "user", "--json", cwd=tmp_path, text=b"Pour it\ndone\n")
    assert back.returncode == 0, back.stderr
    session = stored(tmp_path)
    assert [turn.said.instruction for turn in session.turns[:4:2]] == ["Fill the pot", "Pour it"]  # type: ignore[union-attr]
    assert session.ending is not None
    assert session.ending.code == "task_done"


def test_a_stopped_session_goes_on_when_its_command_is_given_again(
    tmp_path: Path, command: list[str]
) -> None:
    bactrian(*command, "--as", "user", cwd=tmp_path, text=b"Fill the pot\nstop\n")
    back = bactrian(*command, "--as", "user", cwd=tmp_path, text=b"done\n")
    assert back.returncode == 0, back.stderr
    assert "every turn was stored before" not in back.stderr
    ending = stored(tmp_path).ending
    assert ending is not None
    assert (ending.code, ending.turn) == ("task_done", 3)


def test_a_person_chooses_mends_writes_and_wants_better(tmp_path: Path, command: list[str]) -> None:
    lines = b"7\nwhat\n2 it flows\nedit 1\nVery hot\nagain say how much\nwrite Stir it\n1\n1\n1\n1\n"
    done = bactrian(
        *(*command, "--critic", "human", "--proposals", "2", "--set", "critic.rounds=2", "--json"),
        cwd=tmp_path,
        text=lines,
    )
    told = events(done.stdout)
    chose = [line for line in told if line["event"] == "chose"]
    assert (chose[0]["place"], chose[0]["reason"]) == (2, "it flows")
    assert chose[1]["instead"] == "Solution: Very hot\nNext request."
    texts = [line["text"] for line in told if line["event"] == "spoke"]
    assert texts[:2] == ["Instruction: Pour.\nInput: None", "Solution: Very hot\nNext request."]
    assert (chose[2]["feedback"], chose[2]["place"]) == ("say how much", None)
    bactrian("export", "run.db", "--format", "preference", "--out", "p.jsonl", "--unfinished", cwd=tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "p.jsonl").read_text().splitlines()]
    mended = [row for row in rows if row["chosen"][0]["content"].startswith("Solution: Very hot")]
    assert len(mended) == 2, "what a person wrote is preferred to each proposal"
    assert Counter(row["turn"] for row in rows) == {1: 1, 2: 2}, "nothing was chosen for the third turn"
    assert {row["chooser"] for row in rows} == {"human"}


def test_a_repeated_proposal_is_named_by_its_own_number_too(tmp_path: Path, command: list[str]) -> None:
    boil = "Instruction: Boil.\nInput: None"
    script = {"user": [[boil, boil], [boil, boil], "<CAMEL_TASK_DONE>"], "assistant": SCRIPT["assistant"]}
    (tmp_path / "script.json").write_text(json.dumps(script))
    lines = b"2 it boils\n1\nedit 2\nPour it\nstop\n"
    options = ("--critic", "human", "--proposals", "2", "--json")
    done = bactrian(*command, *options, cwd=tmp_path, text=lines)
    chose = [line for line in events(done.stdout) if line["event"] == "chose"]
    assert [(of["place"], of["reason"]) for of in chose[:2]] == [(1, "it boils"), (1, "")]
    assert chose[2]["instead"] == "Instruction: Pour it\nInput: None"


def test_a_person_who_asks_for_better_proposals_is_not_told_to_have_taken_one(
    tmp_path: Path, command: list[str]
) -> None:
    options = ("--critic", "human", "--proposals", "2", "--set", "critic.rounds=2")
    done = bactrian(*command, *options, cwd=tmp_path, text=b"again give an example\nstop\n")
    assert "You want it better: give an example" in done.stdout
    assert "You take" not in done.stdout


@pytest.mark.parametrize("run", [(), ("--run", "run.db")])
def test_a_critic_that_says_stop_is_told_the_command_that_goes_on_and_it_does(
    tmp_path: Path, command: list[str], run: tuple[str, ...]
) -> None:
    kept = [*(word for word in command if word not in ("--run", "run.db")), *run]
    critic = ("--critic", "human", "--proposals", "2")
    done = bactrian(*kept, *critic, cwd=tmp_path, text=b"1\nstop\n")
    assert done.returncode == 0, done.stderr
    assert "stopped · turn 1" in done.stdout
    hint = next(line for line in done.stderr.splitlines() if "To continue it:" in line)
    again = shlex.split(hint.partition("To continue it: ")[2])
    # Without --run, the file holds the plays of other tests, too.
    if run:
        status = json.loads(bactrian("status", again[2], "--json", cwd=tmp_path).stdout)
        paid = f"{status['prompt_tokens']:,} prompt + {status['completion_tokens']:,} completion tokens"
        assert paid in done.stdout
    back = bactrian(*again[1:], "--json", cwd=tmp_path, text=b"1\nstop\n")
    assert back.returncode == 0, back.stderr
    told = events(back.stdout)
    assert [line["turn"] for line in told if line["event"] == "spoke"] == [1, 2]
    assert (told[-1]["event"], told[-1]["code"], told[-1]["turn"]) == ("ended", "stopped", 2)


def test_proposals_that_no_turn_took_count_alike_when_they_are_made_and_when_they_are_read(
    tmp_path: Path, command: list[str]
) -> None:
    made = bactrian(*command, "--critic", "human", "--proposals", "2", cwd=tmp_path, text=b"1\nstop\n").stdout
    line = next(line for line in made.splitlines() if "tokens led to no message" in line)
    shown = bactrian("show", "run.db", "--full", cwd=tmp_path).stdout.splitlines()[-1]
    tokens = re.compile(r"[\d,]+ prompt \+ [\d,]+ completion tokens|[\d,]+ tokens led to no message")
    assert tokens.findall(line) == tokens.findall(shown)


def test_nobody_chooses_for_a_person(tmp_path: Path, command: list[str]) -> None:
    script = json.loads((tmp_path / "script.json").read_text())
    (tmp_path / "script.json").write_text(json.dumps({**script, "critic": ["-", "Choice: 2\nIt is cold."]}))
    done = bactrian(
        *(*command, "--as", "user", "--critic", "Cook", "--proposals", "2", "--json"),
        cwd=tmp_path,
        text=b"Fill the pot\ndone\n",
    )
    assert done.returncode == 0, done.stderr
    assert [line["event"] for line in events(done.stdout)] == [
        *("started", "spoke", "proposed", "proposed", "chose", "spoke", "spoke", "ended")
    ]


def test_the_idea_and_the_persons_part_cannot_both_come_from_standard_input(tmp_path: Path) -> None:
    done = bactrian("play", "-", "--as", "user", cwd=tmp_path, text=b"tea\n")
    assert (done.returncode, "cannot both" in done.stderr) == (2, True)


def test_at_a_terminal_a_person_talks_and_stops(tmp_path: Path, command: list[str]) -> None:
    code, seen = at_a_terminal(
        tmp_path,
        [*command, "--as", "user"],
        keys=[(b"Your instruction", b"Fill the pot\n"), (b"Your instruction", b"stop\n")],
    )
    assert code == 0, seen
    assert b"Hot." in seen
    assert b"stopped" in seen


def test_ctrl_c_ends_the_session_with_an_ending_and_it_can_go_on(tmp_path: Path, command: list[str]) -> None:
    code, seen = at_a_terminal(
        tmp_path,
        [*command, "--as", "user"],
        keys=[(b"Your instruction", b"Fill the pot\n"), (b"Your instruction", b"\x03")],
    )
    assert code == 130, seen
    session = stored(tmp_path)
    assert session.ending is not None
    assert (session.ending.code, len(session.turns)) == ("stopped", 2)
    code, seen = at_a_terminal(tmp_path, [*command, "--as", "user"], keys=[(b"Your instruction", b"done\n")])
    assert code == 0, seen
    ending = stored(tmp_path).ending
    assert ending is not None
    assert ending.code == "task_done"


def test_a_person_mends_a_proposal_in_their_editor(
    tmp_path: Path, command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDITOR", "sed -i s/Boil/Simmer/")
    _, seen = at_a_terminal(
        tmp_path,
        [*command, "--critic", "human", "--proposals", "2"],
        keys=[(b"edit N", b"edit 1\n"), (b"edit N", b"stop\n")],
    )
    assert stored(tmp_path).turns[0].text == "Instruction: Simmer.\nInput: None", seen


SOCIETY = """name = "tea"
task = "tea"
[[agents]]
name = "asker"
role = "Guest"
[[agents]]
name = "maker"
role = "Host"
[[stages]]
name = "make"
user = "asker"
assistant = "maker"
[stages.critic]
role = "{role}"
proposals = 2
"""


@pytest.mark.parametrize(("role", "more"), [("human", []), ("Taster", ["--critic", "human"])])
def test_a_person_is_the_critic_of_a_society(
    tmp_path: Path, command: list[str], role: str, more: list[str]
) -> None:
    (tmp_path / "tea.toml").write_text(SOCIETY.format(role=role))
    arguments = [argument for argument in command if argument != "--no-specify"]
    done = bactrian(
        *(*arguments, "--society", "tea.toml", *more, "--json"), cwd=tmp_path, text=b"2\n2\n1\n1\n1\n1\n1\n"
    )
    told = events(done.stdout)
    assert [line["place"] for line in told if line["event"] == "chose"][:3] == [2, 2, 1], done.stderr
    assert told[-1]["code"] == "task_done"
