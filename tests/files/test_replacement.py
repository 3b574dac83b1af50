"""``--overwrite`` deletes what an export wrote, byte for byte, and nothing else."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from bactrian.errors import BactrianError, BactrianWarning, InputError
from bactrian.evaluate.comparison import write_page
from bactrian.files.atomic import list_files, write_atomically
from tests.helpers.exports import handed
from tests.helpers.runs import make_run, session


def forge(folder: Path, *paths: str, **more: object) -> None:
    """Write a manifest of ours into ``folder`` that lists ``paths`` with their true hashes."""
    facts = {file["path"]: file for file in list_files(folder.parent)}
    files = [{**facts.get(path, {"bytes": 4, "sha256": "0" * 64}), "path": path} for path in paths]
    text = json.dumps({"bactrian": "1.0", "format": "hf", "files": files, **more})
    (folder / "manifest.json").write_text(text)


def plant(folder: Path, name: str, text: str = "mine") -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)


def by_another_program(folder: Path) -> None:
    shutil.rmtree(folder)
    plant(folder, "thesis.tex")
    plant(folder, ".git/HEAD")
    plant(folder, "manifest.json", json.dumps({"name": "app", "files": ["thesis.tex"]}))


def with_listed_outside(folder: Path) -> None:
    plant(folder, "thesis.tex")
    forge(folder, "out/thesis.tex", "out/../../precious.txt")


def with_absolute_path(folder: Path) -> None:
    plant(folder, "thesis.tex")
    forge(folder, "out/thesis.tex", str(folder.parent.parent / "precious.txt"))


def with_wrong_hash(folder: Path) -> None:
    plant(folder, "thesis.tex")
    forge(folder, "out/thesis.tex")
    plant(folder, "thesis.tex", "mend")


def with_true_hashes(folder: Path) -> None:
    by_another_program(folder)
    forge(folder, "out/thesis.tex", "out/.git/HEAD")


def with_linked_file(folder: Path) -> None:
    readme = folder / "README.md"
    shutil.move(readme, folder.parent.parent / "kept.md")
    readme.symlink_to(folder.parent.parent / "kept.md")


def with_linked_folder(folder: Path) -> None:
    shutil.move(folder / "data", folder.parent.parent / "data")
    (folder / "data").symlink_to(folder.parent.parent / "data")


def with_linked_manifest(folder: Path) -> None:
    shutil.move(folder / "manifest.json", folder.parent.parent / "kept.json")
    (folder / "manifest.json").symlink_to(folder.parent.parent / "kept.json")


ATTACKS: dict[str, Callable[[Path], object]] = {
    "the manifest of another program": by_another_program,
    "a file beside those of the export": lambda folder: plant(folder, "thesis.tex"),
    "a file in a folder of the export": lambda folder: plant(folder, "data/thesis.tex"),
    "a hidden repository": lambda folder: plant(folder, ".git/HEAD"),
    "an empty folder": lambda folder: (folder / "drafts").mkdir(),
    "a file that was changed": lambda folder: plant(folder, "README.md"),
    "a manifest that lists a path outside": with_listed_outside,
    "a manifest that lists an absolute path": with_absolute_path,
    "a manifest with another hash": with_wrong_hash,
    "a link in the place of a file": with_linked_file,
    "a link in the place of a folder": with_linked_folder,
    "a link in the place of the manifest": with_linked_manifest,
    "a manifest that is a folder": lambda folder: (
        (folder / "manifest.json").unlink(),
        plant(folder, "manifest.json/thesis.tex"),
    ),
    "a manifest that is a pipe": lambda folder: (
        (folder / "manifest.json").unlink(),
        os.mkfifo(folder / "manifest.json"),
    ),
    "a forged manifest with the true hashes of other files": with_true_hashes,
    "a listed path with NUL": lambda folder: forge(folder, "out/a\0b"),
    "a listed path that is no UTF-8": lambda folder: forge(folder, "out/\ud800"),
    "a listed path that is too long": lambda folder: forge(folder, "out/" + "x" * 5000),
    "a listed path that is a folder": lambda folder: forge(folder, "out/data", "out/README.md"),
    "a manifest that is broken": lambda folder: plant(folder, "manifest.json", '{"files": ['),
    "the working folder": os.chdir,
    "a folder above the working folder": lambda folder: os.chdir(folder / "data"),
    "the home folder": lambda folder: os.environ.update(HOME=str(folder)),
}


def read_all(folder: Path) -> dict[str, str | bytes]:
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes()
        if path.is_file()
        else "other"
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("attack", ATTACKS)
async def test_a_folder_with_anything_else_is_refused_before_anything_is_deleted(
    tmp_path: Path, attack: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    run = await make_run(tmp_path / "tea.db", [session()])
    (tmp_path / "precious.txt").write_text("mine")
    folder = tmp_path / "sets" / "out"
    folder.parent.mkdir()
    await handed(run, "hf", folder)
    ATTACKS[attack](folder)
    before = read_all(tmp_path)
    for form in ("hf", "messages", "camel-chat"):
        with pytest.raises(InputError):
            await handed(run, form, folder, overwrite=True)
    assert read_all(tmp_path) == before


async def test_a_file_that_no_manifest_lists_is_not_replaced(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "tea.db", [session()])
    out = tmp_path / "tea.jsonl"
    await handed(run, "messages", out)
    await handed(run, "messages", out, overwrite=True)
    out.write_text("changed by hand")
    with pytest.raises(InputError, match="was changed"):
        await handed(run, "messages", out, overwrite=True)
    assert out.read_text() == "changed by hand"


async def test_an_export_that_was_renamed_or_is_of_another_format_can_be_replaced(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "tea.db", [session()])
    out = tmp_path / "out"
    await handed(run, "hf", tmp_path / "first")
    (tmp_path / "first").rename(out)
    for form in ("camel-chat", "messages", "parquet"):
        await handed(run, form, out, overwrite=True)
    assert sorted(path.name for path in out.iterdir()) == [
        "manifest.json",
        "messages.parquet",
        "sessions.parquet",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "tea.db"]


def test_what_came_to_the_name_after_a_crash_stays(tmp_path: Path) -> None:
    ready = tmp_path / ".out.abcd1234.bactrian-ready"
    (ready / "out").mkdir(parents=True)
    plant(tmp_path / "out", "thesis.tex")
    plant(ready, "out/data")
    with (
        pytest.warns(BactrianWarning, match="so it stays"),
        pytest.raises(InputError, match="thesis.tex"),
        write_atomically(tmp_path / "out", overwrite=True),
    ):
        pass
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"
    assert (ready / "out").is_dir()


LEFTOVERS: dict[str, Callable[[Path, Path], object]] = {
    "a link to a folder among the replaced": lambda left, other: (
        plant(left / ".replaced/out", "manifest.json", LISTED),
        (left / ".replaced/out/sub").symlink_to(other),
    ),
    "a link in the place of the replaced": lambda left, other: (left / ".replaced").symlink_to(other),
    "a link as the new export": lambda left, other: (left / "out").symlink_to(other),
    "a file of another name": lambda left, _: plant(left, "evil.sh"),
    "an export that is well formed": lambda left, _: (plant(left, "out/sub/thesis.tex"), forge(left / "out")),
}
LISTED = json.dumps({"bactrian": "1", "files": [{"path": "out/sub/thesis.tex", "bytes": 1, "sha256": "0"}]})


@pytest.mark.parametrize("suffix", ["bactrian-ready", "bactrian-part"])
@pytest.mark.parametrize("attack", LEFTOVERS)
async def test_a_leftover_that_was_not_made_here_is_left_alone(
    tmp_path: Path, attack: str, suffix: str
) -> None:
    run = await make_run(tmp_path / "tea.db", [session()])
    plant(tmp_path / "victim", "thesis.tex")
    plant(tmp_path / "victim", "out/sub/thesis.tex")
    plant(tmp_path / "victim", "out/manifest.json", LISTED)
    left = tmp_path / f".out.abcd1234.{suffix}"
    left.mkdir()
    LEFTOVERS[attack](left, tmp_path / "victim")
    before = read_all(tmp_path)
    with pytest.warns(BactrianWarning, match="abcd1234"):
        await handed(run, "hf", tmp_path / "out", overwrite=True)
    after = read_all(tmp_path)
    assert {name: content for name, content in after.items() if name.split("/")[0] != "out"} == before


async def test_a_file_that_is_changed_while_its_export_is_replaced_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await make_run(tmp_path / "tea.db", [session()])
    out = tmp_path / "out"
    await handed(run, "hf", out)
    replace = Path.replace

    def replace_late(path: Path, target: Path) -> Path:
        for readme in tmp_path.glob(".out.*/.replaced/out/README.md"):
            readme.write_text("mine")
        return replace(path, target)

    with (
        monkeypatch.context() as patch,
        pytest.raises(BactrianError, match="changed while they were replaced") as caught,
    ):
        patch.setattr(Path, "replace", replace_late)
        await handed(run, "hf", out, overwrite=True)
    (kept,) = tmp_path.glob(".out.*/.replaced/out/README.md")
    assert kept.read_text() == "mine"
    assert str(kept.parent.parent) in str(caught.value)
    with pytest.warns(BactrianWarning, match="so it stays"):
        await handed(run, "hf", out, overwrite=True)
    assert kept.read_text() == "mine"


def test_what_comes_into_an_export_while_it_is_replaced_stays(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with (
        pytest.raises(InputError, match="thesis.tex"),
        write_atomically(tmp_path / "out", overwrite=True) as s,
    ):
        (s / "out").mkdir()
        plant(tmp_path / "out", "thesis.tex")
    assert (tmp_path / "out" / "thesis.tex").read_text() == "mine"


def test_a_report_replaces_only_a_page_that_was_written_here(tmp_path: Path) -> None:
    report = {"titles": {}, "warnings": [], "comparisons": [], "seeds": [], "facts": 0, "asked": 0}
    report |= {"stages": [], "holds": True, "models": {}, "clusters": "task", "solved": 0, "tasks": 0}
    page = tmp_path / "page.html"
    for _ in range(2):
        write_page(page, "matrix.html.j2", report)
    page.write_text("<!doctype html><p>mine")
    (tmp_path / "folder.html").mkdir()
    for name in ("page.html", "folder.html", "thesis.tex", "report"):
        with pytest.raises(InputError):
            write_page(tmp_path / name, "matrix.html.j2", report)
    assert page.read_text() == "<!doctype html><p>mine"
