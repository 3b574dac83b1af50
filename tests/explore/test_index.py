"""The side file is built in the background, goes on after a kill, and keeps up with the run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.explore.index_builder import IndexBuilder
from bactrian.explore.session_findings import (
    SearchedSession,
    pack_evidence,
    read_evidence,
    read_known,
    search_sessions,
)
from bactrian.explore.session_lists import ListFilter, Listing
from bactrian.explore.side_file import open_for_building
from bactrian.records.run import Finding, Mark
from bactrian.store import open_store
from tests.helpers.explorer import RunningExplorer, explore
from tests.helpers.runs import make_run, session

pytestmark = pytest.mark.system
FLIP = ["Instruction: Plan it.\nInput: None", "Instruction: Now you plan it.\nInput: None"]
FLIPPED = session("flip", texts=FLIP, code="assistant_instruct")


def found(one: RunningExplorer, query: str) -> list[str]:
    return [row["id"] for row in json.loads(one.get(f"/conversations.json?{query}").text)["sessions"]]


def list_index_processes(explorer: int) -> list[str]:
    """The processes that index for the explorer with this process id."""
    children = Path(f"/proc/{explorer}/task/{explorer}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_text() for child in children]
    return [command for command in commands if "bactrian.explore.index_upkeep" in command]


async def test_a_new_index_has_the_marks_as_soon_as_it_has_the_sessions(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("first")])
    async with open_store(run) as store:
        await store.add_mark(Mark("first", "good", "a note", 1.0))
        with closing(open_for_building(tmp_path / "side", "run")) as side:
            builder = IndexBuilder(store, side, lambda _: None)
            await builder.refresh()  # As the process does that builds it: nothing is there yet.
            await builder.step()
            assert side.execute("SELECT mark, note FROM marks").fetchall() == [("good", "a note")]


async def test_whatever_is_written_to_the_run_appears_and_can_be_searched(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("first")])
    later = session("later", texts=["Instruction: Say zebra.\nInput: None", "Solution: Zebra and okapi."])
    with explore(tmp_path, "run.db", sessions=1) as one:
        async with open_store(tmp_path / "run.db") as store:
            await store.begin(replace(later, turns=(), ending=None))
            await store.add_turn("later", later.turns[0])
            await asyncio.to_thread(one.wait, lambda state: state["texts"] == 2 and state["turns"] == 6)
            assert found(one, "q=zebra") == ["later"]
            assert found(one, "q=okapi") == []
            assert found(one, "ending=unfinished") == ["later"]
            await store.add_turn("later", later.turns[1])
            assert later.ending is not None
            await store.end("later", later.ending)
            await asyncio.to_thread(
                one.wait, lambda state: state["turns"] == 7 and "unfinished" not in dict(state["endings"])
            )
            await asyncio.to_thread(one.wait, lambda state: state["texts"] == state["seen"] == 2)
            assert found(one, "q=okapi+zebra") == ["later"]
        for number in range(3, 6):
            await make_run(tmp_path / "run.db", [session(f"s{number}")])
            await asyncio.to_thread(one.wait, lambda state, number=number: state["seen"] == number)


async def test_an_index_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    sessions = [session(f"s{number:04}", rounds=8) for number in range(200)]
    await make_run(tmp_path / "run.db", sessions)
    with explore(tmp_path, "run.db") as one:
        before = one.wait(lambda state: state["texts"] and state["seen"] < 200)
        os.kill(one.command.pid, signal.SIGKILL)
    with explore(tmp_path, "run.db") as one:
        after = one.status()[0]
        assert after["texts"] >= before["texts"]
        assert after["seen"] >= before["seen"]
        one.wait(lambda state: state["texts"] == state["seen"] == 200)
        assert json.loads(one.get("/conversations.json?q=dial").text)["count"] == 200


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
async def test_a_run_that_is_being_written_is_small_though_its_log_is_long(tmp_path: Path) -> None:
    talk = session("talk", rounds=25)
    async with open_store(tmp_path / "run.db") as store:
        await store.begin(replace(talk, turns=(), ending=None))
        for turn in talk.turns:
            await store.add_turn("talk", turn)
        assert (tmp_path / "run.db-wal").stat().st_size > 1_000_000
        with explore(tmp_path, "run.db", sessions=1) as one:
            assert list_index_processes(one.command.pid) == []


@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
async def test_a_small_run_is_indexed_by_the_explorer_itself_until_it_is_large(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("first")])
    with explore(tmp_path, "run.db", sessions=1) as one:
        assert list_index_processes(one.command.pid) == []
        await make_run(tmp_path / "run.db", [session("large", texts=["Instruction: " + "word " * 300_000])])
        await asyncio.to_thread(one.wait, lambda state: state["seen"] == 2)
        await make_run(tmp_path / "run.db", [session("last")])
        await asyncio.to_thread(one.wait, lambda state: state["seen"] == 3)
        assert len(list_index_processes(one.command.pid)) == 1


async def test_a_run_is_not_changed_and_one_that_replaces_it_has_a_new_index(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("old")])
    before = run.read_bytes()
    with explore(tmp_path, "run.db", sessions=1) as one:
        assert found(one, "") == ["old"]
        assert one.get("/c/run/old").status == 200
    assert run.read_bytes() == before
    run.unlink()
    await make_run(run, [session("new", task="Something else")])
    with explore(tmp_path, "run.db") as one:
        one.wait(lambda state: state["seen"] == 1 and found(one, "") == ["new"])


async def test_an_archive_of_camel_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    from tests.helpers.exports import exported

    sessions = [session(f"00{number}_001_001", task=f"Task {number}") for number in range(1, 8)]
    await exported(tmp_path, sessions, "camel-chat", "chats.zip")
    before = (tmp_path / "chats.zip").read_bytes()
    with explore(tmp_path, "chats.zip", "chats.zip", sessions=7) as one:  # Named twice, it is shown once.
        assert len(one.status()) == 1
        assert len(found(one, f"q={quote('dial')}")) == 7
    assert (tmp_path / "chats.zip").read_bytes() == before


async def test_the_index_keeps_the_words_that_show_a_behaviour_until_the_conversation_changes(
    tmp_path: Path,
) -> None:
    first, second = session("first"), FLIPPED
    run = await make_run(tmp_path / "run.db", [first, second])
    async with open_store(run) as store:
        with closing(open_for_building(tmp_path / "side", "run")) as side:
            builder = IndexBuilder(store, side, lambda _: None)
            while await builder.step():
                pass
            unsearched = builder.list_unsearched(10)
            builder.add_behaviours(await asyncio.to_thread(search_sessions, run, [*unsearched]), unsearched)
            assert builder.list_unsearched(10) == {}
            row, _ = unsearched["flip"]
            detected = [(one.turn, one.behaviour, one.quote) for one in find_behaviours(second)]
            assert [
                (one.turn, one.behaviour, one.quote) for one in read_evidence(side, row, second) or ()
            ] == detected
            assert any("Now you plan it" in quote for _, _, quote in detected)
            assert read_evidence(side, row, replace(second, turns=second.turns[:1])) is None
            assert read_evidence(side, row, replace(second, ending=None)) is None
            builder.forget_behaviours()
            assert set(builder.list_unsearched(10)) == {"first", "flip"}


async def test_a_conversation_shows_the_findings_of_the_index(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [FLIPPED])
    with closing(open_for_building(tmp_path / "run.db.explore", "run")) as side:
        async with open_store(run, read_only=True) as store:
            builder = IndexBuilder(store, side, lambda _: None)
            while await builder.step():
                pass
        known = SearchedSession("flip", (("flake_reply", 2),), b"")
        flake = replace(
            known, evidence=pack_evidence(FLIPPED, [Finding("flip", 2, "flake_reply", 1.0, "you plan")])
        )
        builder.add_behaviours([flake], builder.list_unsearched(1))
    found = read_known(tmp_path / "run.db.explore", FLIPPED).findings
    assert [(one.turn, one.behaviour, one.quote) for one in found] == [(2, "flake_reply", "you plan")]


async def test_shares_of_behaviours_are_of_the_conversations_that_were_searched(tmp_path: Path) -> None:
    flips = [replace(FLIPPED, id=f"flip{number}") for number in range(3)]
    run = await make_run(tmp_path / "run.db", flips)
    with closing(open_for_building(tmp_path / "side", "run")) as side:
        async with open_store(run, read_only=True) as store:
            builder = IndexBuilder(store, side, lambda _: None)
            while await builder.step():
                pass
        unsearched = builder.list_unsearched(2)
        builder.add_behaviours(await asyncio.to_thread(search_sessions, run, [*unsearched]), unsearched)
    everything = Listing({"run": tmp_path / "side"}, ListFilter())
    assert [counts for _, _, *counts in everything.count_pairs(["role_flip"])] == [[2, 2]]
    assert everything.count() == 3
    assert everything.count(searched=True) == 2
