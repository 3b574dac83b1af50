"""One process writes a run, by whatever name it is opened and whatever becomes of the lock's file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bactrian.errors import InputError, RunInUse, StoreError
from bactrian.store import open_store
from bactrian.store.care import is_locked, recover, verify
from bactrian.store.lock import lock_run
from tests.helpers.command import start_python
from tests.store.test_store import WRITER, session, turn


def link_to(run: Path) -> Path:
    """A link to the run in a folder of its own."""
    folder = run.parent / "links"
    folder.mkdir()
    link = folder / "linked.db"
    link.symlink_to(os.path.relpath(run, folder))
    return link


async def test_a_run_that_is_written_is_refused_through_a_link_to_it(tmp_path: Path) -> None:
    link = link_to(tmp_path / "run.db")
    async with open_store(tmp_path / "run.db") as store:
        await store.begin(session())
        with pytest.raises(StoreError, match="is being written by another process"):
            async with open_store(link):
                pass
        async with open_store(link, read_only=True) as reader:
            assert await reader.session("one") == session()
    assert os.listdir(link.parent) == ["linked.db"]


async def test_a_run_that_is_made_through_a_link_has_its_lock_and_log_beside_itself(tmp_path: Path) -> None:
    link = link_to(tmp_path / "run.db")
    async with open_store(link) as store:
        await store.begin(session())
        with pytest.raises(StoreError, match="is being written by another process"):
            async with open_store(tmp_path / "run.db"):
                pass
        assert {"run.db", "run.db-wal", "run.db.lock"} <= set(os.listdir(tmp_path))
    assert link.is_symlink()
    assert os.listdir(link.parent) == ["linked.db"]


def test_what_a_killed_writer_left_in_the_log_is_found_through_a_link(tmp_path: Path) -> None:
    link = link_to(tmp_path / "run.db")
    child = start_python(WRITER, link)
    child.wait_for_lines(20)
    child.kill()
    child.finish()
    copy = link_to_copy(tmp_path, link)
    assert recover(copy, tmp_path / "new.db").turns >= 20
    found = verify(copy)
    assert found.faults == ()
    assert found.turns >= 20


def link_to_copy(folder: Path, link: Path) -> Path:
    """A link to a copy of the run and its log, which no process has open."""
    (folder / "copy").mkdir()
    for name in ("run.db", "run.db-wal"):
        shutil.copy(folder / name, folder / "copy" / name)
    copy = link.with_name("copy.db")
    copy.symlink_to(folder / "copy" / "run.db")
    return copy


async def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "run.db"
    link.symlink_to(link)
    with pytest.raises(InputError):
        async with open_store(link):
            pass


async def test_a_run_with_a_hard_link_is_not_written(tmp_path: Path) -> None:
    path, other = tmp_path / "run.db", tmp_path / "other.db"
    async with open_store(path) as store:
        await store.begin(session())
    os.link(path, other)
    for name in (path, other):
        with pytest.raises(InputError, match="hard link"):
            async with open_store(name):
                pass
        async with open_store(name, read_only=True) as reader:
            assert await reader.session("one") == session()
    other.unlink()
    async with open_store(path) as store:
        await store.add_turn("one", turn(1))


def delete_lock(run: Path) -> None:
    run.with_name("run.db.lock").unlink()


def replace_lock(run: Path) -> None:
    lock = run.with_name("run.db.lock")
    lock.with_suffix(".new").touch()
    lock.with_suffix(".new").rename(lock)


def replace_run(run: Path) -> None:
    shutil.copy(run, run.with_suffix(".copy"))
    run.with_suffix(".copy").rename(run)


@pytest.mark.parametrize("tamper", [replace_run, Path.unlink])
async def test_nothing_is_written_once_the_run_was_taken_away(
    tmp_path: Path, tamper: Callable[[Path], None]
) -> None:
    path = tmp_path / "run.db"
    async with open_store(path) as store:
        await store.begin(session())
        await store.add_turn("one", turn(1))
        tamper(path)
        with pytest.raises(StoreError, match="was deleted or replaced while it was written"):
            await store.add_turn("one", turn(2))
        with pytest.raises(StoreError, match="was deleted or replaced while it was written"):
            await store.add_turn("one", turn(3))


@pytest.mark.parametrize("tamper", [delete_lock, replace_lock])
async def test_a_run_stays_locked_without_the_file_of_its_lock(
    tmp_path: Path, tamper: Callable[[Path], None]
) -> None:
    path = tmp_path / "run.db"
    async with open_store(path) as first:
        await first.begin(session())
        await first.add_turn("one", turn(1))
        tamper(path)
        assert is_locked(path)
        with pytest.raises(RunInUse):
            async with open_store(path):
                pass
        await first.add_turn("one", turn(2))
    assert verify(path).faults == ()
    async with open_store(path) as second:
        found = await second.session("one")
        assert found is not None
        assert found.turns == (turn(1), turn(2))


STORM = """
import asyncio, fcntl, json, os, random, signal, sys, time
from pathlib import Path
from bactrian.errors import RunInUse
from bactrian.store import open_store
from tests.store.test_store import session, turn

RUN, CHANCE = Path(sys.argv[1]), random.Random(1)
SAID = RUN.with_name("said")
SAID.touch()

def write_turns(witness, said):
    chance = random.Random(os.getpid())

    async def write_once():
        try:
            async with open_store(RUN) as store:
                # Opened before the run's lock, so that a kill gives it back first.
                fcntl.flock(witness, fcntl.LOCK_EX | fcntl.LOCK_NB)
                turns = len((await store.begin(session())).turns)
                for number in range(turns + 1, turns + chance.randint(2, 5)):
                    await store.add_turn("one", turn(number))
                    os.write(said, f"{number}\\n".encode())
                fcntl.flock(witness, fcntl.LOCK_UN)
        except BlockingIOError:
            os.write(said, b"two writers\\n")
        except RunInUse:
            pass

    while True:
        asyncio.run(write_once())
        time.sleep(chance.random() / 100)

for storm in range(5):
    children, size = [], os.path.getsize(SAID)
    for _ in range(3):
        witness = os.open(RUN.with_name("witness"), os.O_RDWR | os.O_CREAT)
        said = os.open(SAID, os.O_WRONLY | os.O_APPEND)
        children.append(os.fork())
        if not children[-1]:
            write_turns(witness, said)
        os.close(witness)
        os.close(said)
    while os.path.getsize(SAID) == size:
        time.sleep(0.001)
    for child in children:
        time.sleep(CHANCE.random() / 50)
        os.kill(child, signal.SIGKILL)
    for child in children:
        os.waitpid(child, 0)
"""


@pytest.mark.soak
async def test_writers_that_begin_and_are_killed_at_any_moment_are_never_two_and_leave_the_run_writable(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.db"
    async with open_store(path) as store:
        await store.begin(session())
    storm = start_python(STORM, path)
    _, told = storm.finish()
    assert storm.wait() == 0, told
    said = (tmp_path / "said").read_text().split("\n")[:-1]
    assert said
    assert len(set(said)) == len(said)  # No turn was acknowledged twice; "two writers" never came.
    assert "two writers" not in said
    async with open_store(path) as store:
        turns = len((await store.begin(session())).turns)
        assert turns >= len(said)
        await store.add_turn("one", turn(turns + 1))
    assert verify(path).faults == ()
    assert sorted(os.listdir(tmp_path)) == ["run.db", "said", "witness"]


def test_a_lock_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("no folder")
    with (
        pytest.raises(InputError, match="The run cannot be written"),
        lock_run(tmp_path / "notes" / "run.db"),
    ):
        pass
