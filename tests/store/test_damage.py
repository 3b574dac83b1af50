"""A damaged run is told from a whole one, and what it still holds can be saved."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from bactrian.errors import BactrianWarning, InputError, StoreError
from bactrian.records.session import Session
from bactrian.store import open_store
from bactrian.store.care import recover, verify
from bactrian.store.lock import find_log, find_network_file_system, find_network_kind
from tests.helpers.command import bactrian, start_python
from tests.helpers.runs import make_run, session
from tests.store.test_store import WRITER

PAGE = 16384


async def make_long_run(path: Path, conversations: int) -> Path:
    """Write conversations of eight turns, some of which have not ended."""
    long = [f"Instruction: Name part {number}. {'x' * 400}\nInput: None" for number in range(8)]
    made = (
        session(f"{number:03}", texts=long, code=None if number % 5 == 0 else "max_messages")
        for number in range(conversations)
    )
    return await make_run(path, made)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, guarded_processes: Path) -> Path:
    """A run of eighty conversations."""
    return asyncio.run(make_long_run(tmp_path_factory.mktemp("long") / "run.db", 80))


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be damaged."""
    assert [file.name for file in made.parent.iterdir()] == ["run.db"]
    return Path(shutil.copy(made, tmp_path / "run.db"))


async def read(path: Path) -> dict[str, Session]:
    async with open_store(path, read_only=True) as store:
        return {session.id: session async for session in store.sessions()}


def sql(path: Path, statement: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()


def overwrite(path: Path, page: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(content)


async def test_a_run_as_it_was_written_has_no_faults(run: Path) -> None:
    verdict = verify(run)
    assert (verdict.sessions, verdict.turns, verdict.faults) == (80, 640, ())


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        (
            "UPDATE turns SET text = 'other' WHERE session = '007' AND number = 3",
            "Turn 3 of session 007 is damaged",
        ),
        ("DELETE FROM turns WHERE session = '007' AND number = 3", "Session 007 lacks turns: it has 7 of 8"),
        ("DELETE FROM turns WHERE session = '007' AND number = 8", "Session 007 lacks turns: it has 7 of 8"),
        ("UPDATE sessions SET provenance = '{' WHERE id = '007'", "Session 007 is damaged"),
    ],
)
async def test_a_fault_is_told_with_its_conversation(run: Path, statement: str, says: str) -> None:
    sql(run, statement)
    assert any(says in fault for fault in verify(run).faults)


async def test_the_command_ends_with_1_and_names_the_way_on(run: Path) -> None:
    whole = bactrian("verify", str(run), cwd=run.parent)
    assert (whole.returncode, whole.stdout) == (0, "80 sessions and 640 turns, no damage found.\n")
    sql(run, "UPDATE turns SET text = 'other' WHERE session = '007' AND number = 3")
    damaged = bactrian("verify", str(run), cwd=run.parent)
    assert damaged.returncode == 1
    assert "Turn 3 of session 007" in damaged.stdout
    assert "bactrian recover" in damaged.stderr
    saved = bactrian("recover", str(run), "--out", str(run.with_name("new.db")), cwd=run.parent)
    assert saved.returncode == 0
    assert "80 sessions with 634 turns" in saved.stdout
    assert "Lost: 0 sessions and 6 turns" in saved.stdout
    # There may be nothing left to save.
    whole_file = run.read_bytes()
    run.write_bytes(whole_file[:100] + bytes(len(whole_file) - 100))
    lost = bactrian("verify", str(run), cwd=run.parent)
    assert (lost.returncode, "or use an older copy" in lost.stderr) == (1, True)


async def test_values_that_cannot_be_read_are_called_damage(run: Path) -> None:
    for broken in ("'{'", "CAST(x'ff7b' AS TEXT)"):
        sql(run, f"UPDATE sessions SET provenance = {broken} WHERE id = '007'")
        shown = bactrian("status", str(run), cwd=run.parent)
        assert shown.returncode == 1
        assert "The run's file is damaged." in shown.stderr
        assert "bactrian recover" in shown.stderr


def killed(path: Path) -> None:
    """Write a run in another process, and kill that."""
    child = start_python(WRITER, path)
    child.wait_for_lines(20)
    child.kill()
    child.finish()


async def test_a_log_that_was_deleted_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "run.db"
    killed(path)
    assert verify(path).turns >= 20
    assert verify(path).faults == ()
    find_log(path).unlink()
    assert "its log (-wal) is not beside it" in verify(path).faults[0]
    with pytest.warns(BactrianWarning, match=r"run.db-wal is not beside it"):
        async with open_store(path):
            pass


async def test_a_run_that_was_copied_without_its_log_is_told(tmp_path: Path) -> None:
    path, copy = tmp_path / "run.db", tmp_path / "copy.db"
    async with open_store(path) as store:
        await store.begin(session("one", texts=(), code=None))
        shutil.copyfile(path, copy)
    assert verify(path).faults == ()
    assert "its log (-wal) is not beside it" in verify(copy).faults[0]


def page_lost(path: Path) -> None:
    overwrite(path, path.stat().st_size // PAGE // 2, b"\xa5" * PAGE)


def cut_short(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 65 // 100 + 100)


def a_text_changed(path: Path) -> None:
    content = path.read_bytes()
    place = content.index(b"Instruction: Name part 4.", len(content) // 2)
    path.write_bytes(content[:place] + b"Unstruction" + content[place + 11 :])


def test_an_instruction_that_changed_beside_its_text_is_found(run: Path) -> None:
    content = run.read_bytes()
    place = content.index(b'"instruction":"Name part 4')
    run.write_bytes(content[:place] + content[place : place + 15] + b"Fame" + content[place + 19 :])
    assert [fault for fault in verify(run).faults if "its parts do not match its text" in fault]


@pytest.mark.system
@pytest.mark.parametrize("damage", [page_lost, cut_short, a_text_changed])
async def test_what_is_whole_is_saved_and_what_lacks_turns_is_open_again(
    run: Path, damage: Callable[[Path], None]
) -> None:
    before = await read(run)
    damage(run)
    left = run.read_bytes()
    new = run.with_name("new.db")
    found = recover(run, new)
    assert run.read_bytes() == left
    assert verify(new).faults == ()
    after = await read(new)
    assert (found.sessions, found.turns) == (
        len(after),
        sum(len(session.turns) for session in after.values()),
    )
    assert found.turns >= 200
    for name, recovered in after.items():
        old = before[name]
        assert recovered.turns == old.turns[: len(recovered.turns)]
        assert recovered.ending == (old.ending if recovered.turns == old.turns else None)
    cut = [name for name, recovered in after.items() if before[name].ending and not recovered.ending]
    assert found.opened == len(cut)
    assert found.turns < 640


@pytest.mark.soak
async def test_whichever_page_is_lost_the_others_are_saved(tmp_path: Path) -> None:
    run = await make_long_run(tmp_path / "run.db", 20)
    before = await read(run)
    whole = run.read_bytes()
    saved: list[int] = []
    for page in range(2, len(whole) // PAGE + 1):
        run.write_bytes(whole)
        overwrite(run, page, bytes(PAGE))
        new = run.with_name(f"new{page}.db")
        try:
            saved.append(recover(run, new).turns)
        except StoreError:
            assert not new.exists()
            continue
        assert verify(new).faults == ()
        for name, recovered in (await read(new)).items():
            assert recovered.turns == before[name].turns[: len(recovered.turns)]
    # The root of a table is a page too; what hangs on it is lost with it.
    assert sum(turns > 125 for turns in saved) > len(saved) / 2
    assert sorted(path.name for path in run.parent.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize(
    "content", [b"", b"These are notes, not a run.\n" * 2000, b"SQLite format 3\0" + bytes(99_999)]
)
async def test_what_holds_nothing_of_a_run_is_refused_and_left_as_it_was(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="no readable data of a run"):
        recover(path, tmp_path / "new.db")
    assert path.read_bytes() == content
    assert [file.name for file in tmp_path.iterdir()] == ["notes"]


async def test_nothing_that_exists_is_written_over(run: Path) -> None:
    before = run.read_bytes()
    with pytest.raises(InputError, match="This file exists"):
        recover(run, run)
    with pytest.raises(InputError, match="no such run"):
        recover(run.with_name("missing.db"), run.with_name("new.db"))
    assert run.read_bytes() == before


MOUNTS = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:44 / /home rw,relatime shared:9 - nfs4 filer:/home rw,vers=4.2
31 30 8:2 / /home/me/scratch rw - xfs /dev/sdb1 rw
32 22 0:50 / /mnt/the\040share rw - cifs //host/share rw
33 22 0:51 / /mnt/far rw - fuse.sshfs me@host:/ rw
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/data/run.db", None),
        ("/home/me/run.db", "nfs4"),
        ("/homes/run.db", None),
        ("/home/me/scratch/run.db", None),
        ("/mnt/the share/run.db", "cifs"),
        ("/mnt/far/run.db", "fuse.sshfs"),
    ],
)
def test_a_network_file_system_is_told_by_the_nearest_mount(path: str, kind: str | None) -> None:
    assert find_network_kind(Path(path), MOUNTS) == kind


def test_this_machine_s_own_disk_is_none(tmp_path: Path) -> None:
    assert find_network_file_system(tmp_path) is None


def test_two_recoveries_to_one_file_at_once_give_one_whole_run(run: Path) -> None:
    new = run.with_name("new.db")
    command = "import sys; from pathlib import Path; from bactrian.store.care import recover; "
    children = [start_python(f"{command}recover(*map(Path, sys.argv[1:]))", run, new) for _ in range(3)]
    errors = sorted(child.finish()[1].decode() for child in children)
    assert errors[0] == ""
    assert all("exists" in error or "being written" in error for error in errors[1:])
    assert verify(new).faults == ()
    assert sorted(file.name for file in run.parent.iterdir()) == ["new.db", "run.db"]
