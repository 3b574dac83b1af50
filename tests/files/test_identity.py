"""A file that is read is never written, by whatever name it is called."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bactrian import open_run
from bactrian.errors import InputError
from bactrian.files.atomic import write_atomically
from bactrian.store.locations import list_run_files
from tests.helpers.exports import handed
from tests.helpers.runs import make_run, session


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.db"
    path.write_text("precious")
    (tmp_path / "run.db-wal").write_text("precious too")
    (tmp_path / "sub").mkdir()
    (tmp_path / "linked").symlink_to(tmp_path)
    (tmp_path / "link.db").symlink_to(path)
    os.link(path, tmp_path / "hard.db")
    return path


NAMES = [
    "run.db",
    "sub/../run.db",
    "linked/run.db",
    "linked/sub/../run.db",
    "link.db",
    "hard.db",
    "run.db-wal",
    "linked/run.db-wal",
    "run.db-shm",
    "run.db-journal",
    "run.db.lock",
]
TARGETS = ["run.db", "link.db", "linked/run.db"]


@pytest.mark.parametrize(
    ("name", "target"),
    [(name, target) for name in NAMES for target in TARGETS] + [("link.db-wal", "link.db")],
)
def test_no_name_of_the_run_or_of_what_belongs_to_it_is_a_target(
    tmp_path: Path, run: Path, name: str, target: str
) -> None:
    files = {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    with (
        pytest.raises(InputError, match="input file|belongs to"),
        write_atomically(tmp_path / name, overwrite=True, protect=list_run_files(tmp_path / target)) as stage,
    ):
        (stage / Path(name).name).write_text("new")
    assert files == {path: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert run.exists()


def test_a_file_beside_the_target_is_protected_too(tmp_path: Path) -> None:
    run = tmp_path / "tea.jsonl.manifest.json"
    run.write_text("precious")
    with (
        pytest.raises(InputError, match="input file"),
        write_atomically(tmp_path / "tea.jsonl", overwrite=True, protect=[run]) as stage,
    ):
        (stage / "tea.jsonl").write_text("new")
        (stage / "tea.jsonl.manifest.json").write_text("new")
    assert run.read_text() == "precious"
    assert not (tmp_path / "tea.jsonl").exists()


async def test_no_run_is_replaced_whichever_it_is(tmp_path: Path) -> None:
    other = await make_run(tmp_path / "other.db", [session()])
    run = await make_run(tmp_path / "run.db", [session()])
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats" / "manifest.json").write_text("{}")
    (tmp_path / "chats" / "kept.db").write_bytes(run.read_bytes())
    (tmp_path / "link.db").symlink_to(other)
    os.link(other, tmp_path / "hard.db")
    precious = [other, tmp_path / "chats" / "kept.db"]
    before = [path.read_bytes() for path in precious]
    for name in ("other.db", "link.db", "hard.db", "chats"):
        with pytest.raises(InputError, match="database|regular file|kept.db"):
            await handed(run, "messages", tmp_path / name, overwrite=True)
    for name in ("other.db", "hard.db"):
        with pytest.raises(InputError, match="database|written as"):
            open_run(run).analyze().save(tmp_path / name, overwrite=True)
    assert [path.read_bytes() for path in precious] == before


def test_a_folder_that_holds_the_run_is_not_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "tea"
    folder.mkdir()
    (folder / "manifest.json").write_text("{}")
    (folder / "run.db").write_text("precious")
    with (
        pytest.raises(InputError, match=r"contains the input file run\.db"),
        write_atomically(folder, overwrite=True, protect=[folder / "run.db"]) as stage,
    ):
        (stage / "tea").mkdir()
    assert (folder / "run.db").read_text() == "precious"
