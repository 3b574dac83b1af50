"""What is acknowledged is on disk, and what is no run is refused."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.errors import InputError, StoreError
from bactrian.records.run import Call, ItemList, Progress
from bactrian.records.session import Ending, Provenance, Role, Session, Task
from bactrian.records.text import Text
from bactrian.records.turn import Decision, Instruction, Proposal, Sampling, Turn, Usage
from bactrian.runs.spending import read_spending
from bactrian.store import RunStore, open_store
from bactrian.store.database import (
    SCHEMA,
    STEPS,
    begin_transaction,
    create_run,
    explain_errors,
    migrate,
    open_for_writing,
)
from tests.helpers.command import start_python


def session(name: str = "one") -> Session:
    origin = Provenance(
        "ai-society", "ab" * 32, "free", {"user": "scripted"}, {"user": Sampling(0.2, stop=("x",))}
    )
    return Session(name, Role("A", "who"), Role("B"), Task("idea"), origin)


def turn(number: int, text: str = "Instruction: Go.\nInput: None") -> Turn:
    return Turn(
        number,
        "user",
        "B",
        Text(text),
        Instruction("Go."),
        Usage(5, 6, 1),
        0.5,
        None,
        "m",
        "stop",
        lossy=True,
    )


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[RunStore]:
    async with open_store(tmp_path / "run.db") as opened:
        yield opened


async def test_a_session_is_read_back_as_it_was_written(store: RunStore) -> None:
    whole = replace(
        session(),
        task=Task("idea", "specified", "planned"),
        preparation=Usage(3, 4, 0),
        turns=(turn(1), turn(2, "שלום 🐫 {{ x }}")),
        ending=Ending("task_done", 2, "user", "evidence"),
    )
    await store.begin(session())
    await store.save_task(whole)
    for spoken in whole.turns:
        await store.add_turn("one", spoken)
    await store.end("one", whole.ending or pytest.fail())
    assert await store.session("one") == whole
    assert [found async for found in store.sessions()] == [whole]


async def test_writing_twice_stores_once(store: RunStore) -> None:
    await store.begin(session())
    await store.add_turn("one", turn(1))
    await store.add_turn("one", turn(1, "something else"))
    again = await store.begin(session())
    assert [stored.text for stored in again.turns] == [turn(1).text]


async def test_a_final_ending_stays_and_a_failure_does_not(store: RunStore) -> None:
    await store.begin(session())
    for code, stored in (("failed", "failed"), ("task_done", "task_done"), ("max_messages", "task_done")):
        await store.end("one", Ending(code, 1, "user", code))
        found = await store.session("one")
        assert found is not None
        assert found.ending is not None
        assert found.ending.code == stored


async def test_many_conversations_write_at_once(store: RunStore) -> None:
    names = [f"s{number}" for number in range(50)]
    await asyncio.gather(*(store.begin(session(name)) for name in names))
    await asyncio.gather(*(store.add_turn(name, turn(number)) for name in names for number in range(1, 9)))
    found = [len(session.turns) async for session in store.sessions()]
    assert found == [8] * 50


async def test_what_cannot_be_stored_is_told_and_the_next_write_goes_on(store: RunStore) -> None:
    await store.begin(session())
    with pytest.raises(OverflowError):
        await store.add_turn("one", replace(turn(1), usage=Usage(2**70)))
    await store.add_turn("one", turn(1))
    stored = await store.session("one")
    assert stored is not None
    assert stored.turns == (turn(1),)


async def test_every_call_is_kept_failed_ones_too(store: RunStore) -> None:
    await store.add_call(Call("one", "user", 0, "m", 0.1, b"raw", usage=Usage(1, 2)))
    await store.add_call(Call("one", "user", 1, "m", 0.1, b"<html>", error="Not a reply."))
    with closing(sqlite3.connect(store.path)) as connection, connection:
        assert connection.execute("SELECT raw, error FROM calls").fetchall() == [
            (b"raw", None),
            (b"<html>", "Not a reply."),
        ]


async def test_a_flipped_letter_is_noticed(store: RunStore) -> None:
    await store.begin(session())
    await store.add_turn("one", turn(1))
    with closing(sqlite3.connect(store.path)) as connection, connection:
        connection.execute("UPDATE turns SET text = 'Instruction: Ga.'")
    with pytest.raises(StoreError, match="Turn 1 of session one is damaged"):
        await store.session("one")


WRITER = """
import asyncio, sys
from pathlib import Path
from bactrian.store import open_store
from tests.helpers.runs import session, turn

async def main():
    async with open_store(Path(sys.argv[1])) as store:
        await store.begin(session("one", texts=[], code=None))
        for number in range(1, 100_000):
            await store.add_turn("one", turn(number, "<CAMEL_TASK_DONE>"))
            print(number, flush=True)

asyncio.run(main())
"""


async def test_a_killed_writer_loses_no_turn_that_was_acknowledged(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    child = start_python(WRITER, path)
    child.wait_for_lines(100)
    async with open_store(path, read_only=True) as reader:
        meanwhile = await reader.session("one")
    child.kill()
    seen = [int(line) for line in child.finish()[0].splitlines()]
    assert meanwhile is not None
    assert len(meanwhile.turns) >= 100
    async with open_store(path) as store:
        found = await store.session("one")
    assert found is not None
    assert [stored.number for stored in found.turns][: seen[-1]] == list(range(1, seen[-1] + 1))
    assert len(found.turns) <= seen[-1] + 1


async def test_a_full_disk_keeps_what_was_committed(tmp_path: Path) -> None:
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(tmp_path)], check=False
    ).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        async with open_store(tmp_path / "run.db") as store:
            await store.begin(session())
            number = 0
            with pytest.raises(StoreError) as caught:
                for number in range(1, 1000):
                    await store.add_turn("one", turn(number, "x" * 10_000))
            found = await store.session("one")
            assert found is not None
            assert [stored.number for stored in found.turns] == list(range(1, number))
            assert "full" in str(caught.value)
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


async def test_a_place_that_cannot_be_written_is_told_before_anything_is_made(tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(tmp_path)], check=False).returncode:
        pytest.skip("mounting a file system is not permitted here")
    try:
        with pytest.raises(InputError, match="The folder cannot be written"):
            async with open_store(tmp_path / "run.db"):
                pass
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


async def test_a_write_waits_for_another_program_that_holds_the_file(store: RunStore) -> None:
    await store.begin(session())
    backup = sqlite3.connect(store.path, isolation_level=None)
    backup.execute("BEGIN IMMEDIATE")
    writing = asyncio.create_task(store.add_turn("one", turn(1)))
    await asyncio.sleep(0.3)
    assert not writing.done()
    backup.execute("ROLLBACK")
    backup.close()
    await writing
    found = await store.session("one")
    assert found is not None
    assert len(found.turns) == 1


def test_who_holds_the_file_for_too_long_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    open_for_writing(path).close()
    hold = (
        "import sqlite3, sys, time\n"
        "held = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "held.execute('BEGIN IMMEDIATE')\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        connection = open_for_writing(path, wait=0.1)
        try:
            with pytest.raises(StoreError) as caught, explain_errors(path), begin_transaction(connection):
                pass
        finally:
            other.kill()
            connection.close()
    assert f"process {other.pid}" in caught.value.what
    assert str(path) in str(caught.value)
    assert "run the same command" in str(caught.value)


def text_file(path: Path) -> None:
    path.write_text("These are notes, not a run.\n" * 20)


def foreign_database(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE notes (text)")


@pytest.mark.parametrize("make", [text_file, foreign_database, Path.touch, Path.mkdir])
async def test_what_is_no_run_is_refused_and_left_as_it_was(tmp_path: Path, make: object) -> None:
    path = tmp_path / "notes"
    make(path)  # type: ignore[operator]
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(InputError):
        async with open_store(path):
            pass
    assert before is None or path.read_bytes() == before
    assert os.listdir(tmp_path) == ["notes"]


async def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no folder .*missing"):
        async with open_store(tmp_path / "missing" / "run.db"):
            pass


@pytest.mark.parametrize("read_only", [True, False])
async def test_a_run_with_another_schema_is_refused_and_stays_as_it_was(
    tmp_path: Path, *, read_only: bool
) -> None:
    path = tmp_path / "run.db"
    async with open_store(path):
        pass
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO migrations (number, applied) VALUES (?, 0)", (SCHEMA + 1,))
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"has schema {SCHEMA + 1}.*reads those up to {SCHEMA}") as caught:
        async with open_store(path, read_only=read_only):
            pass
    assert "A later version made it, or one before the first release." in str(caught.value)
    assert (os.listdir(tmp_path), path.read_bytes()) == (["run.db"], before)


def test_a_step_brings_an_older_run_to_the_next_schema_once_and_whole_or_not_at_all(tmp_path: Path) -> None:
    def add_rating(connection: sqlite3.Connection) -> None:
        connection.execute("ALTER TABLE marks ADD COLUMN rating INTEGER")

    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE marks")
        raise ValueError("a defect")

    def look(connection: sqlite3.Connection) -> tuple[int, set[str]]:
        (schema,) = connection.execute("SELECT max(number) FROM migrations").fetchone()
        return schema, {name for _, name, *_ in connection.execute("PRAGMA table_info(marks)")}

    path = tmp_path / "run.db"
    create_run(path)
    with closing(open_for_writing(path)) as connection:
        schema, columns = look(connection)
        assert schema == SCHEMA
        steps = (*STEPS, add_rating)
        for _ in range(2):
            migrate(connection, steps)
            assert look(connection) == (SCHEMA + 1, {*columns, "rating"})
        with pytest.raises(ValueError, match="a defect"):
            migrate(connection, (*steps, fail))
        assert look(connection) == (SCHEMA + 1, {*columns, "rating"})


async def test_a_store_that_was_opened_before_a_fork_does_not_write(store: RunStore) -> None:
    await store.begin(session())
    child = os.fork()
    if child == 0:
        try:
            store.add_turn("one", turn(1)).send(None)
        except StoreError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


async def test_only_one_process_writes_a_run_and_others_may_read_it(store: RunStore) -> None:
    _, told = start_python(WRITER, store.path).finish()
    assert b"is being written by another process" in told
    await store.begin(session())
    async with open_store(store.path, read_only=True) as reader:
        assert await reader.session("one") == session()


async def test_a_run_that_is_closed_is_one_file(tmp_path: Path) -> None:
    async with open_store(tmp_path / "run.db") as store:
        await store.begin(session())
    assert os.listdir(tmp_path) == ["run.db"]
    async with open_store(tmp_path / "run.db", read_only=True) as reader:
        assert await reader.session("one") is not None
    assert os.listdir(tmp_path) == ["run.db"]


async def test_a_reader_takes_nothing_away_from_a_writer(tmp_path: Path) -> None:
    async with open_store(tmp_path / "run.db") as store:
        await store.begin(session())
        for number in (1, 2):
            async with open_store(tmp_path / "run.db", read_only=True) as reader:
                assert await reader.session("one") is not None
            await store.add_turn("one", turn(number))
    async with open_store(tmp_path / "run.db", read_only=True) as reader:
        stored = await reader.session("one")
        assert stored is not None
        assert len(stored.turns) == 2


async def test_a_pipe_is_no_run_and_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.db")
    with pytest.raises(InputError, match="This file is not a run"):
        async with open_store(tmp_path / "pipe.db"):
            pass


async def test_a_recipe_is_frozen_at_the_first_start(store: RunStore) -> None:
    assert await store.recipe() is None
    made = {"recipe": {"name": "a", "axes": [{"name": "role"}]}}
    assert await store.freeze(made) == made
    assert await store.freeze({"recipe": {"name": "b"}}) == made


async def test_a_list_of_items_grows(store: RunStore) -> None:
    short = ItemList("task@001_002", ("one", "two"), complete=False, usage=Usage(1, 2), calls=1)
    whole = replace(short, items=("one", "two", 'thr"ee'), complete=True, calls=2)
    await store.save_list(short)
    await store.save_list(whole)
    assert await store.item_list("task@001_002") == whole
    assert [items async for items in store.item_lists()] == [whole]
    assert await store.item_list("task@001_003") is None


async def test_progress_names_every_session_and_what_it_used(store: RunStore) -> None:
    for name in ("001", "002"):
        await store.begin(session(name))
    await store.end("002", Ending("max_messages", 40, "assistant", "40 messages"), Usage(7, 8, 9))
    assert [progress async for progress in store.progress()] == [
        Progress("001", None, None, None, None, None),
        Progress("002", "max_messages", 40, 7, 8, 9),
    ]


async def test_sessions_that_begin_together_are_new_or_found_as_they_are(store: RunStore) -> None:
    await store.begin(session("old"))
    await store.add_turn("old", turn(1))
    old, new = await asyncio.gather(store.begin(session("old")), store.begin(session("new")))
    assert old.turns == (turn(1),)
    assert new.turns == ()


async def test_what_a_run_has_used_is_told_by_agent(store: RunStore) -> None:
    prepared = replace(session(), preparation=Usage(10, 20))
    await store.begin(prepared)
    await store.add_turn("one", turn(1))
    await store.add_turn("one", replace(turn(2), speaker="assistant"))
    await store.add_turn("one", turn(3))
    await store.save_list(ItemList("task@", ("x",), complete=True, usage=Usage(3, 4), calls=1))
    assert (await read_spending(store)).agents == {
        "user": Usage(10, 12, 2),
        "assistant": Usage(5, 6, 1),
        "task_specifier": Usage(10, 20),
        "lister": Usage(3, 4),
    }


async def test_proposals_and_decisions_are_read_back_and_stored_once(store: RunStore) -> None:
    made = Proposal(1, 1, 1, "user", Text("a"), Usage(1, 2), 0.1, "m", "stop")
    chosen = Decision(1, 1, 1, "user", "Critic", Text("Choice: 1"), 1, "It is one.", kept=(1,))
    await store.begin(session())
    await store.add_proposal("one", made)
    await store.add_decision("one", chosen)
    await store.add_proposal("one", replace(made, place=2, parent=1))
    await store.add_proposal("one", replace(made, text=Text("twice")))
    known = await store.deliberation("one")
    assert known.proposals == (made, replace(made, place=2, parent=1))
    assert known.verdicts == (chosen,)
    assert (await store.deliberation("one", after=1)).proposals == ()
