"""A disk that fills up, at any moment: what was committed stays, and the same command goes on when there is room."""

from __future__ import annotations

import os
import re
import sqlite3
from pathlib import Path

import pytest

from bactrian.errors import StoreError
from bactrian.store.care import recover, verify
from bactrian.store.database import explain_error
from tests.helpers.command import Command, clean_environment
from tests.helpers.disks import mounted, resize
from tests.helpers.endpoint import Endpoint, Received
from tests.helpers.runs import make_run, session

RECIPE = """
name = "tea"
[[axes]]
name = "idea"
count = 8
given = ["Boil", "Pour", "Drink", "Wash", "Dry", "Stack", "Buy", "Sell"]
[role_play]
assistant = "Cook"
user = "Guest"
idea = "{{ idea }}"
specify = false
max_messages = 4
"""
TOLD = re.compile(r"run\.db: The disk is full: ([\d,]+) bytes or more are needed, ([\d,]+) are free\.")


def said(request: Received) -> str:
    asks = "and you instruct" in request.json["messages"][0]["content"]
    return f"Instruction: {'x' * 20_000}\nInput: None" if asks else f"Solution: {'y' * 20_000}\nNext request."


async def generate(folder: Path, url: str) -> tuple[int | None, str]:
    recipe = folder.parent / "tea.toml"
    recipe.write_text(RECIPE)
    arguments = ("generate", str(recipe), "--run", str(folder / "run.db"), "--concurrency", "3")
    where = ("--model", "openai:any", "--base-url", url)
    process = Command((*arguments, *where), folder.parent, clean_environment())
    _, told = await process.communicate()
    return process.returncode, told.decode()


@pytest.mark.system
@pytest.mark.parametrize("size", ["8k", "200k", "400k", "500k", "600k", "900k"])
async def test_a_run_that_fills_the_disk_says_what_it_needs_and_goes_on_when_there_is_room(
    tmp_path: Path, size: str
) -> None:
    with mounted(tmp_path / "small", f"size={size}") as small:
        async with Endpoint([said]) as endpoint:
            code, told = await generate(small, endpoint.url)
            found = TOLD.search(told)
            assert code == 1
            assert found, told
            needed, free = (int(number.replace(",", "")) for number in found.groups())
            assert needed > free
            assert "Free some space and run the same command." in told
            kept = 0
            if (small / "run.db").exists():
                assert verify(small / "run.db").faults == ()
                kept = verify(small / "run.db").turns
            asked = len(endpoint.requests)
            assert (
                asked <= kept + 2 * 3
            )  # what was in flight, and what was never kept because of the full disk
            resize(small, "20m")
            code, told = await generate(small, endpoint.url)
            assert (code, "warning" in told) == (0, False), told
            assert len(endpoint.requests) - asked == 8 * 4 - kept
        assert verify(small / "run.db").faults == ()
        assert verify(small / "run.db").turns == 8 * 4


async def test_a_run_is_recovered_to_a_full_disk_or_not_at_all(tmp_path: Path) -> None:
    run = await make_run(tmp_path / "run.db", [session(f"{number:03}", rounds=9) for number in range(50)])
    with mounted(tmp_path / "small", "size=128k") as small:
        with pytest.raises(StoreError, match=r"new\.db: The disk is full: [\d,]+ bytes or more are needed"):
            recover(run, small / "new.db")
        assert os.listdir(small) == []


def test_a_full_disk_of_temporary_files_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = sqlite3.connect(":memory:")
    database.execute("PRAGMA max_page_count = 1")
    with pytest.raises(sqlite3.OperationalError) as full:
        database.execute("CREATE TABLE one (text)")
    database.close()
    assert "run.db: The disk is full" in str(explain_error(full.value, tmp_path / "run.db"))
    with mounted(tmp_path / "small", "size=8k") as small:
        (small / "all").write_bytes(bytes(8 << 10))
        monkeypatch.setattr("tempfile.tempdir", str(small))
        assert f"{small}: The disk of temporary files" in str(explain_error(full.value, tmp_path / "run.db"))
