"""The files of a program in a folder of the user: all that can be kept, and nothing outside."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bactrian.sandbox.kept_files import keep_files
from tests.helpers.command import bactrian

UNSAFE = (
    "../out.txt",
    "/etc/out.txt",
    "a/../../out.txt",
    "",
    "a//b",
    ".",
    "a\x1b[31m",
    "a\nb",
    "a\udcff",
    "x" * 300,
)


def list_files(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text("utf-8")
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


def test_no_name_leads_out_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    good = {"a/b/c.txt": b"1", "d e.txt": b"2", "ü.txt": b"3"}
    # A file and a folder of one name cannot both be kept.
    faults = keep_files(folder, {**good, **dict.fromkeys(UNSAFE, b"x"), "d e.txt/f": b"4"}, overwrite=False)
    assert faults.keys() == {*UNSAFE, "d e.txt/f"}
    assert all(faults.values())
    assert list_files(tmp_path) == {f"kept/{name}": content.decode() for name, content in good.items()}


@pytest.mark.parametrize("overwrite", [False, True])
def test_links_are_not_followed_and_files_replaced_only_on_request(overwrite: bool, tmp_path: Path) -> None:
    folder, outside = tmp_path / "kept", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "mine").write_text("mine", "utf-8")
    (folder / "link").symlink_to(outside / "mine")
    (folder / "folder").symlink_to(outside, target_is_directory=True)
    (folder / "old").write_text("old", "utf-8")
    os.mkfifo(folder / "pipe")
    new: dict[str, bytes] = {"link": b"new", "folder/mine": b"new", "old": b"new", "pipe": b"new"}
    faults = keep_files(folder, new, overwrite=overwrite)
    assert faults.keys() == ({"folder/mine"} if overwrite else set(new))
    assert list_files(outside) == {"mine": "mine"}
    replaced = dict.fromkeys(("link", "old", "pipe"), "new")
    assert list_files(folder) == (replaced if overwrite else {"old": "old"})
    assert not list(folder.glob(".*"))


@pytest.mark.slow
def test_out_keeps_what_a_program_writes_and_nothing_is_run_if_it_cannot(tmp_path: Path) -> None:
    program = (
        "import os\nos.mkdir('d')\nopen('d/a.txt', 'w').write('1')\nopen(b'\\xff', 'w')\n"
        "os.symlink('/etc/passwd', 'link')\nopen('large', 'w').truncate(3 << 20)\n"
        "open('larger', 'w').truncate(3 << 20)"
    )
    (tmp_path / "make.py").write_text(program, "utf-8")
    words = ("sandbox", "run", "make.py", "--disk", "4")
    done = bactrian(*words, "--out", "new/kept", cwd=tmp_path)
    assert done.returncode == 1  # some files were not kept
    assert "kept in new/kept" in done.stderr
    assert "not kept: larger: it is too large" in done.stderr
    kept = tmp_path / "new" / "kept"
    assert {path.name for path in kept.rglob("*")} == {"d", "a.txt", "large"}
    again = bactrian(*words, "--out", "new/kept", "--json", cwd=tmp_path)
    assert (again.returncode, again.stdout) == (2, "")
    assert "is not empty" in again.stderr
    (kept / "d" / "a.txt").write_text("old", "utf-8")
    report = json.loads(bactrian(*words, "--out", "new/kept", "--overwrite", "--json", cwd=tmp_path).stdout)
    assert (report["out"], len(report["not_kept"])) == ("new/kept", 3)
    assert (kept / "d" / "a.txt").read_text("utf-8") == "1"
    for wrong in (("--overwrite",), ("--out", "make.py")):
        assert bactrian(*words, *wrong, cwd=tmp_path).returncode == 2


@pytest.mark.system
def test_names_of_a_program_stay_on_one_line_and_links_are_named(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text(
        "import os\nopen('x\\nok (exit code 0) · 0 s', 'w').close()\nos.symlink('/etc/passwd', 'link')\n"
    )
    done = bactrian("sandbox", "run", "p.py", "--out", "kept", cwd=tmp_path)
    assert done.returncode == 1
    assert "not kept: link: it is no file that can be read" in done.stderr
    assert "not kept: x ok (exit code 0) · 0 s: the name is not safe" in done.stderr
    starts = [line.split(" ")[0] for line in done.stderr.splitlines()]
    assert starts == ["ok", "not", "not", "wrote:"]
    assert list(list_files(tmp_path / "kept")) == []
