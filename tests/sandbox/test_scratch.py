"""Scratch folders that a program has left in a bad state."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from bactrian.sandbox import supervisor
from bactrian.sandbox.orders import remove_folder


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """A folder below which a path is too long for the kernel, with a file at the end."""
    top = tmp_path / "scratch"
    top.mkdir()
    handle = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("folder", dir_fd=handle)
        inner = os.open("folder", os.O_RDONLY, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)
    yield top
    # pytest cannot remove such a folder: it would stop each third run from now on.
    remove_folder(str(top))


def test_a_folder_that_is_too_deep_to_be_measured_counts_as_full(deep: Path) -> None:
    assert supervisor._measure_folder(str(deep)) == float("inf")  # pyright: ignore[reportPrivateUsage]


def test_a_folder_that_is_too_deep_for_a_path_is_removed(deep: Path) -> None:
    handle = os.open(deep, os.O_RDONLY)
    assert supervisor._collect_files(handle, 0) == []  # pyright: ignore[reportPrivateUsage]
    os.close(handle)
    remove_folder(str(deep))
    assert not deep.exists()


def test_folders_that_forbid_it_are_removed_and_links_are_not_followed(tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("tea", "utf-8")
    top = tmp_path / "scratch"
    (top / "a" / "b").mkdir(parents=True)
    (top / "a" / "b" / "link").symlink_to(kept)
    (top / "folders").symlink_to(tmp_path, target_is_directory=True)
    (top / "a" / "b").chmod(0o300)
    (top / "a").chmod(0o000)
    remove_folder(str(top))
    assert not top.exists()
    assert kept.read_text("utf-8") == "tea"


def test_deleted_files_that_are_open_count_until_they_are_closed(tmp_path: Path) -> None:
    before = _measure_own()
    with (tmp_path / "deleted").open("wb") as file:
        file.write(b"x" * 100_000)
        file.flush()
        (tmp_path / "deleted").unlink()
        assert before + 100_000 <= _measure_own() < float("inf")
    assert _measure_own() == before


def test_files_that_a_process_keeps_in_a_socket_count_as_too_many() -> None:
    left, right = socket.socketpair()
    with left, right, Path("/dev/null").open("rb") as file:
        socket.send_fds(left, [b"x"], [file.fileno()])
        assert _measure_own() == float("inf")


def _measure_own() -> float:
    return supervisor._measure_deleted(os.getpid())  # pyright: ignore[reportPrivateUsage]
