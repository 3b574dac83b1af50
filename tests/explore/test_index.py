"""The side file is built in the background, goes on after a kill, and keeps up with the run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from bactrian.explore.index.build import IndexBuilder
from bactrian.explore.index.side import open_for_building
from bactrian.records.run import Mark
from bactrian.store import open_store
from tests.helpers.explorer import RunningExplorer, explore
from tests.helpers.runs import make_run, session


def found(one: RunningExplorer, query: str) -> list[str]:
    return [row["id"] for row in json.loads(one.get(f"/conversations.json?{query}").text)["sessions"]]


async def test_a_new_index_has_the_marks_as_soon_as_it_has_the_sessions(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("first")])
    async with open_store(run) as store:
        await store.add_mark(Mark("first", "good", "a note", 1.0))
        with closing(open_for_building(tmp_path / "side", "run")) as side:
            builder = IndexBuilder(store, side, lambda _: None)
            await builder.refresh()  # As the process does that builds it: nothing is there yet.
            await builder.step()
            assert side.execute("SELECT mark, note FROM marks").fetchall() == [("good", "a note")]


async def test_what_is_written_to_the_run_appears_and_can_be_searched(tmp_path: Path) -> None:
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


async def test_an_index_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    sessions = [session(f"s{number:04}", rounds=8) for number in range(600)]
    await make_run(tmp_path / "run.db", sessions)
    with explore(tmp_path, "run.db") as one:
        one.wait(lambda state: 0 < state["texts"] < 600)
        before = one.status()[0]
        os.kill(one.command.pid, signal.SIGKILL)
    with explore(tmp_path, "run.db", sessions=600) as one:
        after = one.status()[0]
        assert after["texts"] >= before["texts"]
        assert json.loads(one.get("/conversations.json?q=dial").text)["count"] == 600


async def test_a_run_that_was_replaced_has_a_new_index(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("old")])
    with explore(tmp_path, "run.db", sessions=1) as one:
        assert found(one, "") == ["old"]
    (tmp_path / "run.db").unlink()
    await make_run(tmp_path / "run.db", [session("new", task="Something else")])
    with explore(tmp_path, "run.db") as one:
        one.wait(lambda state: state["seen"] == 1 and found(one, "") == ["new"])


async def test_the_run_itself_is_not_changed(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session(f"s{number}") for number in range(20)])
    before = run.read_bytes()
    with explore(tmp_path, "run.db", sessions=20) as one:
        one.get("/c/run/s1")
    assert run.read_bytes() == before


async def test_an_archive_of_camel_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    from tests.helpers.exports import exported

    sessions = [session(f"00{number}_001_001", task=f"Task {number}") for number in range(1, 8)]
    await exported(tmp_path, sessions, "camel-chat", "chats.zip")
    before = (tmp_path / "chats.zip").read_bytes()
    with explore(tmp_path, "chats.zip", sessions=7) as one:
        assert len(found(one, f"q={quote('dial')}")) == 7
    assert (tmp_path / "chats.zip").read_bytes() == before
    with explore(tmp_path, "chats.zip", "chats.zip", sessions=7) as one:
        assert len(one.status()) == 1
