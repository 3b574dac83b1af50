"""An export is there whole or not at all, and the same each time."""

from __future__ import annotations

import random
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from bactrian.errors import BactrianError, InputError
from bactrian.export.formats import FORMATS
from bactrian.store import open_store
from tests.helpers.command import start_python
from tests.helpers.exports import exported, handed
from tests.helpers.runs import answer, make_run, session

FILES = {"camel-chat": "tea.tar.gz", "camel-science": "tea.zip", "camel-translated": "tea.zip"}


def sessions_for(form: str, count: int = 30) -> list[object]:
    if form == "camel-science":
        return [answer(f"{number:03}", problem=f"Why {number}?") for number in range(count)]
    plays = [session(f"{number:03}", user=f"U{number}", rounds=3) for number in range(count)]
    if form == "camel-translated":
        origin = replace(plays[0].provenance, models={"translator": "openai:one"})
        return [
            replace(play, provenance=origin, values={"language": "de", "source": play.id}) for play in plays
        ]
    return list(plays)


def content(path: Path) -> dict[str, bytes]:
    files = [path] if path.is_file() else sorted(path.rglob("*"))
    return {file.name: file.read_bytes() for file in files if file.is_file()}


@pytest.mark.parametrize("form", [name for name in FORMATS if name != "preference"])
async def test_the_same_run_gives_the_same_bytes(tmp_path: Path, form: str) -> None:
    run = await make_run(tmp_path / "tea.db", sessions_for(form))  # type: ignore[arg-type]
    name = FILES.get(form, "tea")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        await handed(run, form, tmp_path / folder / name)
    one, two = (content(tmp_path / folder / name) for folder in ("one", "two"))
    assert one
    assert one == two
    manifests = (
        [content(tmp_path / folder)["manifest.json"] for folder in ("one", "two")]
        if (tmp_path / "one" / name / "manifest.json").exists()
        else [(tmp_path / folder / f"{name}.manifest.json").read_bytes() for folder in ("one", "two")]
    )
    assert manifests[0] == manifests[1]


@pytest.mark.parametrize("form", ["messages", "camel-chat", "parquet", "hf"])
async def test_a_full_disk_is_named_and_nothing_is_left(tmp_path: Path, form: str) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(small)]
    if subprocess.run(mounted, check=False).returncode:
        pytest.skip("mounting a small file system is not permitted here")
    try:
        noise = [random.Random(number).randbytes(700).hex() for number in range(300)]
        plays = [
            session(f"{n:03}", texts=["Instruction: Go.", f"Solution: {noise[n]}"], code="max_messages")
            for n in range(300)
        ]
        with pytest.raises(BactrianError, match=r"No space is left on the disk: more than [\d,]+ bytes"):
            await exported(tmp_path, plays, form, "small/tea")
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


KILLED = """
import asyncio, sys, time
from pathlib import Path
from bactrian.export.session_filters import Filters
from tests.helpers.exports import handed

seen = []

def wait(session):
    seen.append(session)
    if len(seen) == 200:
        print("half", flush=True)
        time.sleep(60)
    return False

asyncio.run(handed(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), filters=Filters(reject={"wait": wait})))
"""


@pytest.mark.system
@pytest.mark.parametrize("form", ["messages", "camel-chat", "hf"])
async def test_a_killed_export_leaves_nothing_under_the_final_name(tmp_path: Path, form: str) -> None:
    run = await make_run(tmp_path / "tea.db", [session(f"{n:03}", rounds=1) for n in range(300)])
    out = tmp_path / "out" / "tea"
    out.parent.mkdir()
    child = start_python(KILLED, run, form, out)
    child.wait_for_lines(1)
    child.kill()
    assert child.finish() == (b"half\n", b"")
    assert not out.exists()
    assert all(left.name.endswith(".bactrian-part") for left in out.parent.iterdir())
    made = await handed(run, form, out)
    assert made["counts"]["sessions"] == 300


async def test_what_is_there_stays_unless_it_is_to_be_replaced(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "tea.db", [session()])
    out = tmp_path / "tea.jsonl"
    out.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        await handed(run, "messages", out)
    assert out.read_text() == "mine"
    with pytest.raises(InputError, match="is not an export"):
        await handed(run, "messages", out, overwrite=True)
    assert out.read_text() == "mine"


async def test_a_manifest_that_is_in_the_way_stays_too(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "tea.db", [session()])
    other = tmp_path / "tea.jsonl.manifest.json"
    other.write_text("mine")
    with pytest.raises(InputError, match="exists already"):
        await handed(run, "messages", tmp_path / "tea.jsonl")
    assert other.read_text() == "mine"
    assert not (tmp_path / "tea.jsonl").exists()


async def test_a_folder_of_somebody_elses_is_never_replaced(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "tea.db", [session()])
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("mine")
    for form in ("messages", "camel-chat", "hf"):
        with pytest.raises(InputError, match="something other than an export"):
            await handed(run, form, precious, overwrite=True)
    assert (precious / "thesis.tex").read_text() == "mine"


@pytest.mark.parametrize("form", ["camel-chat", "hf", "parquet"])
async def test_a_folder_that_an_export_made_can_be_replaced(tmp_path: Path, form: str) -> None:
    run = await make_run(tmp_path / "tea.db", [session("one"), session("two", user="Guest")])
    await handed(run, form, tmp_path / "tea")
    more = await make_run(tmp_path / "more.db", [session("three")])
    made = await handed(more, form, tmp_path / "tea", overwrite=True)
    left = {path.relative_to(tmp_path / "tea").as_posix() for path in (tmp_path / "tea").rglob("*.*")}
    named = {file["path"].removeprefix("tea/") for file in made["files"]}
    assert left - {"manifest.json"} == named


async def test_the_run_itself_is_no_target(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "tea.db", [session()])
    before = run.read_bytes()
    with pytest.raises(InputError, match="the input file"):
        await handed(run, "messages", run, overwrite=True)
    assert run.read_bytes() == before


async def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no session"):
        await exported(tmp_path, [], "messages", "tea.jsonl")
    assert not (tmp_path / "tea.jsonl").exists()


async def test_a_run_of_another_kind_is_refused_with_the_formats_that_fit(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'answer'") as caught:
        await exported(tmp_path, [answer()], "camel-chat", "tea.zip")
    assert "camel-science" in (caught.value.next or "")
    assert not (tmp_path / "tea.zip").exists()


async def test_a_run_without_choices_has_no_preferences(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no choices"):
        await exported(tmp_path, [session()], "preference", "tea.jsonl")


async def test_a_run_that_is_being_written_is_exported_as_far_as_it_has_come(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "tea.db", [session("one")])
    async with open_store(run) as store:
        open_one = session("two", code=None)
        await store.begin(replace(open_one, turns=()))
        await store.add_turn("two", open_one.turns[0])
        made = await handed(run, "messages", tmp_path / "tea.jsonl")
        await store.add_turn("two", open_one.turns[1])
    assert made["counts"]["sessions"] == 1
    assert made["counts"]["left_out"] == {"unfinished": 1}
