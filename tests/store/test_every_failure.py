"""Writes, flushes and renames fail in turn: what was paid is kept, and the same command makes the same run."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from pathlib import Path

import pytest

from bactrian.records.session import Session
from bactrian.store import open_store
from bactrian.store.care import verify
from tests.helpers.command import bactrian
from tests.helpers.endpoint import Endpoint, Received
from tests.helpers.faulty_disk import run_with_faults
from tests.helpers.runs import make_run, session

RECIPE = """
name = "tea"
[[axes]]
name = "idea"
count = 2
ask = "List {{ count }} ideas."
[role_play]
assistant = "Cook"
user = "Guest"
idea = "{{ idea }}"
specify = false
max_messages = 2
"""
IN_FLIGHT = 2
"""Conversations at once: as many answers may be paid twice, because they came while the run was failing."""


def said(request: Received) -> str:
    first = request.json["messages"][0]
    if first["role"] == "user":
        return "1. Boil\n2. Pour"
    if "you instruct" in first["content"]:
        return "Instruction: Go on.\nInput: None"
    return "Solution: Done.\nNext request."


async def read(run: Path) -> dict[str, list[str]]:
    def tell(session: Session) -> list[str]:
        return [*(turn.text for turn in session.turns), session.ending.code if session.ending else "open"]

    async with open_store(run, read_only=True) as store:
        return {session.id: tell(session) async for session in store.sessions()}


@pytest.mark.soak
@pytest.mark.parametrize(
    ("kinds", "error", "forever", "step"),
    [
        ("s", errno.EIO, False, 7),
        ("s", errno.EIO, True, 11),
        ("w", errno.EIO, False, 29),
        ("w", errno.ENOSPC, True, 31),
        ("rt", errno.EACCES, False, 1),
    ],
    ids=["flush", "flush from then on", "write", "full from then on", "rename and truncate"],
)
async def test_a_run_goes_on_after_any_call_to_the_disk_failed(
    tmp_path: Path, kinds: str, error: int, forever: bool, step: int
) -> None:
    folder = tmp_path / "tea"
    folder.mkdir()
    (folder / "tea.toml").write_text(RECIPE)
    async with Endpoint([said]) as endpoint:
        command = (
            *("generate", "tea.toml", "--run", "run.db", "--model", "openai:any", "--base-url", endpoint.url),
            *("--concurrency", str(IN_FLIGHT)),
        )
        whole = 1 + 2 * 2
        paid: list[int] = []
        failed = await asyncio.to_thread(
            run_with_faults, folder, command, kinds=kinds, error=error, forever=forever, step=step
        )
        assert len(failed) >= 1
        before = len(endpoint.requests)
        for failure in failed:
            assert "Traceback" not in failure.err, failure.err
            assert failure.code in (0, 1, 2), failure.err
            if failure.code:
                assert len(failure.err.strip().splitlines()) >= 2, failure.err
            if (failure.folder / "run.db").exists():
                assert verify(failure.folder / "run.db").faults == ()
            kept = await read(failure.folder / "run.db") if (failure.folder / "run.db").exists() else {}
            asked = len(endpoint.requests)
            done = await asyncio.to_thread(bactrian, *command, cwd=failure.folder)
            assert done.returncode == 0, done.stderr
            turns = sum(len(texts) - 1 for texts in kept.values())
            paid.append(len(endpoint.requests) - asked)
            assert paid[-1] <= whole - turns, "a turn that was kept is not paid again"
            after = await read(failure.folder / "run.db")
            assert len(after) == 2
            assert Counter(map(tuple, after.values())).most_common(1)[0][1] == 2
            assert all(
                texts[: len(kept[name]) - 1] == kept[name][:-1]
                for name, texts in after.items()
                if name in kept
            )
            assert verify(failure.folder / "run.db").faults == ()
        again = before - len(failed) * whole + sum(paid)
        assert again <= len(failed) * (IN_FLIGHT + 1), "only what was in flight is paid twice"


@pytest.mark.soak
@pytest.mark.parametrize("kinds", ["s", "r", "w"])
@pytest.mark.parametrize("form", ["messages", "camel-chat"])
async def test_an_export_is_there_whole_or_not_at_all_after_any_call_failed(
    tmp_path: Path, kinds: str, form: str
) -> None:
    folder = tmp_path / "tea"
    folder.mkdir()
    run = await make_run(folder / "run.db", [session(f"{number:03}") for number in range(3)])
    command = ("export", "run.db", "--format", form, "--out", "out", "--overwrite")
    bactrian(*command, cwd=folder)
    old = {path.name for path in folder.rglob("*")}
    run.touch()
    failed = await asyncio.to_thread(run_with_faults, folder, command, kinds=kinds, error=errno.EIO, step=3)
    assert failed
    for failure in failed:
        assert "Traceback" not in failure.err
        assert failure.code in (0, 1, 2)
        done = bactrian(*command, cwd=failure.folder)
        assert done.returncode == 0, done.stderr
        assert {path.name for path in failure.folder.rglob("*")} == old
        assert verify(failure.folder / "run.db").faults == ()
