"""A run in a place that cannot be written is read there: on a disk that is mounted for reading only."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from bactrian.store.care import verify
from tests.helpers.command import bactrian
from tests.helpers.disks import mounted
from tests.helpers.runs import make_run, session

READERS = (
    ("analyze", "disk/run.db"),
    ("verify", "disk/run.db"),
    ("failures", "disk/run.db"),
    ("export", "disk/run.db", "--format", "messages", "--out", "out.jsonl", "--overwrite"),
    ("recover", "disk/run.db", "--out", "new.db"),
)
KILLED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("PRAGMA journal_mode = WAL")
connection.execute("PRAGMA user_version = 7")
connection.commit()
os._exit(0)
"""


UNFINISHED = """
import os, sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("PRAGMA journal_mode = DELETE")
connection.execute("PRAGMA cache_size = 1")
connection.execute("BEGIN")
connection.execute("UPDATE turns SET text = text || 'half', checksum = 1")
connection.execute("UPDATE turns SET text = text || printf('%99999d', 1)")
os._exit(0)
"""


@contextmanager
def read_only(folder: Path) -> Generator[None]:
    """Let nothing be written to the file system that is mounted at ``folder``."""
    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)


def read_everything(folder: Path) -> None:
    for command in READERS:
        done = bactrian(*command, cwd=folder)
        assert done.returncode == 0, done.stderr
        assert "cannot be written" not in done.stderr
    (folder / "new.db").unlink()


async def test_a_run_on_a_read_only_disk_is_read(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "size=8m") as disk:
        await make_run(disk / "run.db", [session(f"{number:03}") for number in range(3)])
        with read_only(disk):
            read_everything(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("shared", ["with", "without"])
async def test_what_a_killed_writer_left_in_the_log_is_read_on_a_read_only_disk(
    tmp_path: Path, shared: str
) -> None:
    run = await make_run(tmp_path / "run.db", [session()])
    subprocess.run([sys.executable, "-c", KILLED, str(run)], check=True)
    with mounted(tmp_path / "disk", "size=8m") as disk:
        for ending in ("", "-wal", *(["-shm"] if shared == "with" else [])):
            shutil.copy(f"{run}{ending}", disk)
        with read_only(disk):
            read_everything(tmp_path)
    with closing(sqlite3.connect(run)) as connection, connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (7,)


async def test_a_transaction_that_a_kill_left_unfinished_is_read_as_if_it_never_began(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session(f"{number:03}", rounds=9) for number in range(9)])
    subprocess.run([sys.executable, "-c", UNFINISHED, str(run)], check=True)
    left = run.read_bytes()
    assert (tmp_path / "run.db-journal").stat().st_size > 0
    assert b"half" in left
    verdict = verify(run)
    assert (verdict.sessions, verdict.turns, verdict.faults) == (9, 9 * 19, ())
    assert run.read_bytes() == left
