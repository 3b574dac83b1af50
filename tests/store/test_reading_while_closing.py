"""The last process that closes a run deletes the files of its log, while others may look at them."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

from bactrian.store.database import can_read_log, has_journal, has_log


def test_a_file_of_the_log_that_disappears_is_a_file_that_is_missing(tmp_path: Path) -> None:
    run = tmp_path / "run.db"
    files = [tmp_path / f"run.db{suffix}" for suffix in ("-wal", "-shm", "-journal")]
    ended = Event()

    def come_and_go() -> None:
        while not ended.is_set():
            for file in files:
                file.touch()
            for file in files:
                file.unlink()

    others = Thread(target=come_and_go)
    others.start()
    try:
        for _ in range(3000):
            assert (has_log(run), can_read_log(run), has_journal(run)) == (False, True, False)
    finally:
        ended.set()
        others.join()
