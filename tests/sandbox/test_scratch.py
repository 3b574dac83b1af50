"""Scratch folders that a program has left in a bad state."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bactrian.sandbox.scratch import collect_files, measure_folder, remove_folder
from tests.helpers.command import start_python


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
    assert measure_folder(str(deep)) == float("inf")


def test_a_folder_that_is_too_deep_for_a_path_is_removed(deep: Path) -> None:
    handle = os.open(deep, os.O_RDONLY)
    assert collect_files(handle, 0) == []
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


# Prints what the deleted files take that a child of this process holds, before and after it closes them.
HOLDER = """
import os, socket, subprocess, sys
from bactrian.sandbox.measures import measure_deleted
before = measure_deleted(os.getcwd())
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(before, measure_deleted(os.getcwd()))
child.communicate()
"""
HELD = """
import ctypes, os, socket, sys
handle = os.open("f", os.O_CREAT | os.O_RDWR)
os.write(handle, b"x" * 100_000)
os.unlink("f")
{keep}
print(flush=True)
sys.stdin.read()
"""
MAP = """
libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, *[ctypes.c_size_t] * 4, ctypes.c_long]
libc.mmap(None, 4096, 1, 1, handle, 0)
os.close(handle)
"""


@pytest.mark.system
@pytest.mark.parametrize(
    ("keep", "most"),
    [
        ("", 110_000),
        ("left, right = socket.socketpair()\nsocket.send_fds(left, [b'x'], [handle])", float("inf")),
        (MAP, float("inf")),
    ],
    ids=["open", "in a socket", "in memory"],
)
def test_deleted_files_count_wherever_a_process_keeps_them(keep: str, most: float, tmp_path: Path) -> None:
    done = start_python(HOLDER, HELD.format(keep=keep), cwd=tmp_path)
    before, held = map(float, done.finish()[0].split())
    assert (before, 100_000 <= held <= most, held == most or most != float("inf")) == (0, True, True)


START = """
from bactrian.sandbox.programs import run
from bactrian.sandbox.tiers import LandlockOnly
run("pass", tier=LandlockOnly())
"""


@pytest.mark.system
def test_what_a_killed_process_has_left_is_removed_by_the_next_start(tmp_path: Path) -> None:
    names = {kind: f"bactrian-sandbox-{number:016x}" for number, kind in enumerate(("left", "used"))}
    names["another's"] = "bactrian-sandbox-mine"
    for name in names.values():
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("tea", "utf-8")
    handle = os.open(tmp_path / names["used"], os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    start_python(f"import tempfile\ntempfile.tempdir = {str(tmp_path)!r}\n{START}").finish()
    os.close(handle)
    assert {path.name for path in tmp_path.iterdir()} == {names["used"], names["another's"]}
