"""The index is built in the background, goes on after a kill, and keeps up with the run."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest

from bactrian.analyze.behaviours import find_behaviours
from bactrian.explore.facets import read_facets
from bactrian.explore.index_builder import IndexBuilder, follow_run
from bactrian.explore.library_index import prepare_index, register_run, write_index
from bactrian.explore.session_findings import (
    SearchedSession,
    pack_evidence,
    read_evidence,
    read_known,
    search_sessions,
)
from bactrian.explore.session_lists import IndexStages, ListFilter, Listing
from bactrian.records.run import Finding, Mark
from bactrian.store import RunStore, open_store
from tests.helpers.explorer import RunningExplorer, explore
from tests.helpers.runs import make_run, session

pytestmark = pytest.mark.system
FLIP = ["Instruction: Plan it.\nInput: None", "Instruction: Now you plan it.\nInput: None"]
FLIPPED = session("flip", texts=FLIP, code="assistant_instruct")


def found(explorer: RunningExplorer, query: str) -> list[str]:
    return [row["id"] for row in json.loads(explorer.get(f"/conversations.json?{query}").text)["sessions"]]


def list_index_processes(explorer: int) -> list[str]:
    """The processes that index for the explorer with this process id."""
    children = Path(f"/proc/{explorer}/task/{explorer}/children").read_text().split()
    commands = [Path(f"/proc/{child}/cmdline").read_text() for child in children]
    return [command for command in commands if "bactrian.explore.index_upkeep" in command]


async def count_steps(folder: Path, sessions: int) -> int:
    """Index a run, and return the steps of SQLite that find the neighbours of its middle conversation."""
    number = await index_sessions(folder, f"{sessions}.db", [f"s{number:03}" for number in range(sessions)])
    steps: list[int] = []
    with Listing(prepare_index(), {number: "run"}, ListFilter()).open_once() as listing:
        assert listing.opened is not None
        listing.opened.set_progress_handler(lambda: steps.append(1), 1)
        before, after = listing.find_neighbours((number << 32) + sessions // 2)
    assert (before, after) == (("run", f"s{sessions // 2 - 2:03}"), ("run", f"s{sessions // 2:03}"))
    return len(steps)


async def test_the_neighbours_of_a_conversation_are_found_without_reading_the_list(tmp_path: Path) -> None:
    assert await count_steps(tmp_path, 120) == await count_steps(tmp_path, 12)


@contextmanager
def build(store: RunStore, run: int = 1) -> Generator[IndexBuilder]:
    """The builder of ``store``, whose run has this number in the index."""
    with write_index(prepare_index(), [run]) as connection:
        yield IndexBuilder(store, connection, run)


async def fill(builder: IndexBuilder) -> None:
    while await builder.step():
        pass


async def test_a_new_index_has_the_marks_as_soon_as_it_has_the_sessions(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("first")])
    async with open_store(run) as store:
        await store.add_mark(Mark("first", "good", "a note", 1.0))
        with build(store) as builder:
            await builder.refresh()  # As the process does that builds it: nothing is there yet.
            await builder.step()
            assert builder.index.execute("SELECT mark, note FROM marks").fetchall() == [("good", "a note")]


@pytest.mark.slow
async def test_whatever_is_written_to_the_run_appears_and_can_be_searched(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("first")])
    later = session("later", texts=["Instruction: Say zebra.\nInput: None", "Solution: Zebra and okapi."])
    with explore(tmp_path, "run.db", sessions=1) as explorer:
        async with open_store(tmp_path / "run.db") as store:
            await store.begin(replace(later, turns=(), ending=None))
            await store.add_turn("later", later.turns[0])
            await asyncio.to_thread(explorer.wait, lambda state: state["texts"] == 2 and state["turns"] == 6)
            assert found(explorer, "q=zebra") == ["later"]
            assert found(explorer, "q=okapi") == []
            assert found(explorer, "ending=unfinished") == ["later"]
            await store.add_turn("later", later.turns[1])
            assert later.ending is not None
            await store.end("later", later.ending)
            await asyncio.to_thread(
                explorer.wait,
                lambda state: state["turns"] == 7 and "unfinished" not in dict(state["endings"]),
            )
            await asyncio.to_thread(explorer.wait, lambda state: state["texts"] == state["seen"] == 2)
            assert found(explorer, "q=okapi+zebra") == ["later"]
        for number in range(3, 6):
            await make_run(tmp_path / "run.db", [session(f"s{number}")])
            await asyncio.to_thread(explorer.wait, lambda state, number=number: state["seen"] == number)


@pytest.mark.slow
async def test_an_index_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    sessions = [session(f"s{number:04}", rounds=8) for number in range(200)]
    await make_run(tmp_path / "run.db", sessions)
    with explore(tmp_path, "run.db") as explorer:
        before = explorer.wait(lambda state: state["texts"] and state["seen"] < 200)
        os.kill(explorer.command.pid, signal.SIGKILL)
    with explore(tmp_path, "run.db") as explorer:
        after = explorer.status()[0]
        assert after["texts"] >= before["texts"]
        assert after["seen"] >= before["seen"]
        explorer.wait(lambda state: state["texts"] == state["seen"] == 200)
        assert json.loads(explorer.get("/conversations.json?q=dial").text)["count"] == 200


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
async def test_a_run_that_is_being_written_is_small_though_its_log_is_long(tmp_path: Path) -> None:
    talk = session("talk", rounds=25)
    async with open_store(tmp_path / "run.db") as store:
        await store.begin(replace(talk, turns=(), ending=None))
        for turn in talk.turns:
            await store.add_turn("talk", turn)
        assert (tmp_path / "run.db-wal").stat().st_size > 1_000_000
        with explore(tmp_path, "run.db", sessions=1) as explorer:
            assert list_index_processes(explorer.command.pid) == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")
async def test_a_small_run_is_indexed_by_the_explorer_itself_until_it_is_large(tmp_path: Path) -> None:
    await make_run(tmp_path / "run.db", [session("first")])
    with explore(tmp_path, "run.db", sessions=1) as explorer:
        assert list_index_processes(explorer.command.pid) == []
        await make_run(tmp_path / "run.db", [session("large", texts=["Instruction: " + "word " * 300_000])])
        await asyncio.to_thread(explorer.wait, lambda state: state["seen"] == 2)
        await make_run(tmp_path / "run.db", [session("last")])
        await asyncio.to_thread(explorer.wait, lambda state: state["seen"] == 3)
        assert len(list_index_processes(explorer.command.pid)) == 1
        await asyncio.to_thread(
            explorer.wait, lambda _: not list_index_processes(explorer.command.pid)
        )  # It has nothing to do.
        await make_run(tmp_path / "run.db", [session("later")])
        await asyncio.to_thread(explorer.wait, lambda state: state["seen"] == 4)


@pytest.mark.slow
async def test_a_run_is_not_changed_and_one_that_replaces_it_has_a_new_index(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("old")])
    before = run.read_bytes()
    with explore(tmp_path, "run.db", sessions=1) as explorer:
        assert found(explorer, "") == ["old"]
        assert explorer.get("/c/run/old").status == 200
    assert run.read_bytes() == before
    run.unlink()
    await make_run(run, [session("new", task="Something else")])
    with explore(tmp_path, "run.db") as explorer:
        explorer.wait(lambda state: state["seen"] == 1 and found(explorer, "") == ["new"])


@pytest.mark.slow
async def test_an_archive_of_camel_is_read_and_left_as_it_is(tmp_path: Path) -> None:
    from tests.helpers.exports import exported

    sessions = [session(f"00{number}_001_001", task=f"Task {number}") for number in range(1, 8)]
    await exported(tmp_path, sessions, "camel-chat", "chats.zip")
    before = (tmp_path / "chats.zip").read_bytes()
    with explore(tmp_path, "chats.zip", "chats.zip") as explorer:  # Named twice, it is shown once.
        # The import is followed as it goes on: a conversation can be there before its turns are.
        explorer.wait(lambda state: state["seen"] == 7 and len(found(explorer, f"q={quote('dial')}")) == 7)
        assert len(explorer.status()) == 1
    assert (tmp_path / "chats.zip").read_bytes() == before


async def test_the_index_keeps_the_words_that_show_a_behaviour_until_the_conversation_changes(
    tmp_path: Path,
) -> None:
    first, second = session("first"), FLIPPED
    run = await make_run(tmp_path / "run.db", [first, second])
    async with open_store(run) as store:
        with build(store) as builder:
            await fill(builder)
            unsearched = builder.list_unsearched(10)
            builder.add_behaviours(await asyncio.to_thread(search_sessions, run, [*unsearched]), unsearched)
            assert builder.list_unsearched(10) == {}
            row, _ = unsearched["flip"]
            detected = [
                (finding.turn, finding.behaviour, finding.quote) for finding in find_behaviours(second)
            ]
            assert [
                (finding.turn, finding.behaviour, finding.quote)
                for finding in read_evidence(builder.index, row, second) or ()
            ] == detected
            assert any("Now you plan it" in quote for _, _, quote in detected)
            assert read_evidence(builder.index, row, replace(second, turns=second.turns[:1])) is None
            assert read_evidence(builder.index, row, replace(second, ending=None)) is None
            builder.forget_behaviours()
            assert set(builder.list_unsearched(10)) == {"first", "flip"}


async def test_a_conversation_shows_the_findings_of_the_index(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [FLIPPED])
    async with open_store(run, read_only=True) as store:
        with build(store) as builder:
            await fill(builder)
            flake = pack_evidence(FLIPPED, [Finding("flip", 2, "flake_reply", 1.0, "you plan")])
            builder.add_behaviours([SearchedSession("flip", flake)], builder.list_unsearched(1))
            findings = read_known(builder.index, FLIPPED).findings
    assert [(finding.turn, finding.behaviour, finding.quote) for finding in findings] == [
        (2, "flake_reply", "you plan")
    ]


async def test_shares_of_behaviours_are_of_the_conversations_that_were_searched(tmp_path: Path) -> None:
    flips = [replace(FLIPPED, id=f"flip{number}") for number in range(3)]
    run = await make_run(tmp_path / "run.db", flips)
    async with open_store(run, read_only=True) as store:
        with build(store) as builder:
            await fill(builder)
            unsearched = builder.list_unsearched(2)
            builder.add_behaviours(await asyncio.to_thread(search_sessions, run, [*unsearched]), unsearched)
    facets = read_facets(prepare_index(), {1: "run"})
    assert list(facets.count_pairs(facets.searched).values()) == [2]
    assert dict(facets.count("behaviour", facets.everything))["role_flip"] == 2
    assert facets.everything.bit_count() == 3


async def test_behaviours_are_searched_for_in_a_scattered_sample_first(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session(f"s{number:02}", rounds=1) for number in range(80)])
    async with open_store(run, read_only=True) as store:
        with build(store) as builder:
            await fill(builder)
            rows = [row & 0xFFFF for row, _ in builder.list_unsearched(16).values()]
    assert {(row - 1) // 20 for row in rows} == {0, 1, 2, 3}
    assert abs(sum(rows) / 16 - 40) < 10


async def index_sessions(folder: Path, file: str, ids: Sequence[str], identity: str = "") -> int:
    """Write a run with these sessions, index it, and return its number."""
    run = await make_run(folder / file, [session(name) for name in ids])
    number = register_run(prepare_index(), run, identity)
    async with open_store(run, read_only=True) as store:
        with build(store, number) as builder:
            await fill(builder)
    return number


def list_pages(runs: Mapping[int, str], list_filter: ListFilter) -> list[tuple[str, str]]:
    """Data set and id of all conversations of a list, page by page."""
    pages: list[tuple[str, str]] = []
    while True:
        page = Listing(prepare_index(), runs, list_filter).read_page()
        pages += [(head["data"], head["id"]) for head in page.sessions]
        if not page.after:
            return pages
        list_filter = replace(list_filter, after=page.after)


async def test_a_list_over_several_runs_is_one_and_knows_no_other_runs_of_the_index(tmp_path: Path) -> None:
    ids = [f"s{number:02}" for number in range(40)]
    numbers = {name: await index_sessions(tmp_path, f"{name}.db", ids) for name in "abc"}
    runs = {numbers[name]: name for name in "ac"}
    every = [(name, session_id) for name in "ac" for session_id in ids]
    for list_filter, expected in (
        (ListFilter(), every),
        (ListFilter(q="dial"), every),
        (ListFilter(sort="newest"), every[::-1]),
        (ListFilter(sort="longest"), every[::-1]),
        (ListFilter(sort="best", q="dial"), every),
        (ListFilter(ids=("s07",)), [("a", "s07"), ("c", "s07")]),
    ):
        listing = Listing(prepare_index(), runs, list_filter)
        assert list_pages(runs, list_filter) == expected, list_filter
        assert listing.count() == listing.read_page().count == len(expected)
    everything = Listing(prepare_index(), runs, ListFilter())
    last = (numbers["a"] << 32) + 40
    assert everything.find_neighbours(last) == (("a", "s38"), ("c", "s00"))
    assert everything.count_stages() == IndexStages(80, 80, 0, None)
    assert [count for _, count in everything.count_values("ending")] == [80]
    assert list_pages({numbers["b"]: "b"}, ListFilter(q="dial")) == [("b", session_id) for session_id in ids]


async def test_the_index_forgets_a_run_that_was_replaced_or_is_gone(tmp_path: Path) -> None:
    old = await index_sessions(tmp_path, "run.db", ["old", "older"], "first")
    assert register_run(prepare_index(), tmp_path / "run.db", "first") == old
    (tmp_path / "run.db").unlink()
    new = await index_sessions(tmp_path, "run.db", ["new"], "second")
    assert list_pages({old: "run"}, ListFilter()) == []
    assert list_pages({new: "run"}, ListFilter(q="dial")) == [("run", "new")]
    (tmp_path / "run.db").unlink()
    await index_sessions(tmp_path, "other.db", ["other"])
    with closing(sqlite3.connect(prepare_index())) as index:
        for table in ("facts", "heads", "runs", "words_docsize"):
            assert index.execute(f"SELECT count(*) FROM {table}").fetchone() == (1,), table


async def test_texts_are_read_again_when_most_of_the_index_is_of_forgotten_runs(tmp_path: Path) -> None:
    kept = await index_sessions(tmp_path, "kept.db", ["kept"])
    await index_sessions(tmp_path, "gone.db", [f"s{number}" for number in range(5)])
    (tmp_path / "gone.db").unlink()
    assert register_run(prepare_index(), tmp_path / "kept.db", "") == kept
    assert Listing(prepare_index(), {kept: "kept"}, ListFilter()).count_stages() == IndexStages(1, 0, 0, None)
    async with open_store(tmp_path / "kept.db", read_only=True) as store:
        with build(store, kept) as builder:
            await fill(builder)
    assert list_pages({kept: "kept"}, ListFilter(q="dial")) == [("kept", "kept")]


@pytest.mark.slow
async def test_a_second_explorer_goes_on_with_the_index_when_the_first_ends(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session("first")])
    index = prepare_index()
    number = register_run(index, run, "")

    async def wait(sessions: int) -> None:
        complete = IndexStages(sessions, sessions, sessions, sessions)
        while Listing(index, {number: "run"}, ListFilter()).count_stages() != complete:
            await asyncio.sleep(0.05)

    async with asyncio.timeout(60):
        first, second = (asyncio.create_task(follow_run(run, index, number, lambda: True)) for _ in "12")
        await wait(1)
        first.cancel()
        await make_run(run, [session("second")])
        await wait(2)
        second.cancel()
        await asyncio.wait([first, second])


def test_a_damaged_index_is_made_anew_and_one_that_cannot_be_in_the_cache_is_beside_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = prepare_index()
    path.write_bytes(b"no database" * 1000)
    assert prepare_index() == path
    assert Listing(path, {1: "run"}, ListFilter()).count() == 0
    assert path.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))  # No folder can be in a file.
    assert prepare_index(tmp_path / "run.db") == tmp_path / "run.db.explore"


async def test_a_page_says_how_much_of_a_run_is_read_until_all_is(tmp_path: Path) -> None:
    path = await make_run(tmp_path / "run.db", [session(f"s{number:02}") for number in range(3)])
    async with open_store(path, read_only=True) as store:
        with build(store) as builder:
            listing = Listing(prepare_index(), {builder.run: "run"}, ListFilter())
            assert (
                listing.count_stages().describe(ListFilter()) == "The conversations are being read: 0 so far."
            )
            await builder.refresh()
            assert "0 of 3 so far" in listing.count_stages().describe(ListFilter())
            await builder.step()
            assert listing.count_stages().describe(ListFilter()) == ""
            assert "search knows 0 of 3" in listing.count_stages().describe(ListFilter(q="dial"))
            assert "known of 0 of 3" in listing.count_stages().describe(ListFilter(), behaviours=True)
